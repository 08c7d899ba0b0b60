#include "worker/rank/arena.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/error.h"
#include "plan/plan.h"

void arena_init(struct arena *arena, const struct backend *backend, struct be_device *device)
{
    *arena = (struct arena){ .backend = backend, .device = device };
}

void arena_fini(struct arena *arena)
{
    if (arena->region) {
        arena->backend->device->free(arena->device, arena->region, arena->bytes);
    }
    free(arena->asks);
    *arena = (struct arena){ 0 };
}

int arena_ask(struct arena *arena, enum arena_class class, uint64_t bytes, void **where,
              struct gems_error *err)
{
    *where = NULL;
    if (bytes == 0) {
        return GEMS_OK;
    }
    if (arena->n_asks == arena->capacity) {
        uint32_t capacity = arena->capacity ? 2 * arena->capacity : 32;
        struct arena_ask *asks = reallocarray(arena->asks, capacity, sizeof *asks);

        if (!asks) {
            return gems_error_set(err, GEMS_E_NOMEM, "arena: no host memory for its table");
        }
        arena->asks = asks;
        arena->capacity = capacity;
    }
    arena->asks[arena->n_asks++] = (struct arena_ask){ .where = where, .offset = arena->bytes };
    arena->asked[class] += bytes;
    arena->bytes += (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    return GEMS_OK;
}

static uint64_t asked_total(const struct arena *arena)
{
    uint64_t total = 0;

    for (int i = 0; i < ARENA_CLASS_COUNT; i++) {
        total += arena->asked[i];
    }
    return total;
}

int arena_commit(struct arena *arena, uint64_t limit_bytes, struct gems_error *err)
{
    uint64_t total = asked_total(arena);
    int status;

    if (limit_bytes != 0 && total > limit_bytes) {
        return gems_error_set(err, GEMS_E_NOMEM,
                              "memory: this rank needs %" PRIu64 " bytes, its limit is %" PRIu64,
                              total, limit_bytes);
    }
    if (arena->bytes == 0) {
        return GEMS_OK;
    }
    status = arena->backend->device->alloc(arena->device, arena->bytes, &arena->region, err);
    if (status < 0) {
        return status;
    }
    for (uint32_t i = 0; i < arena->n_asks; i++) {
        *arena->asks[i].where = (uint8_t *)arena->region + arena->asks[i].offset;
    }
    return GEMS_OK;
}

void arena_report(const struct arena *arena, struct rank_memory *ret_memory)
{
    ret_memory->weights_bytes = arena->asked[ARENA_WEIGHTS];
    ret_memory->gradients_bytes = arena->asked[ARENA_GRADIENTS];
    ret_memory->optimizer_bytes = arena->asked[ARENA_OPTIMIZER];
    ret_memory->activations_bytes = arena->asked[ARENA_ACTIVATIONS];
    ret_memory->buffers_bytes = arena->asked[ARENA_BUFFERS];
    ret_memory->workspace_bytes = arena->asked[ARENA_WORKSPACE];
    ret_memory->total_bytes = asked_total(arena);
}
