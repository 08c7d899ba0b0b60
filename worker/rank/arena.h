/* All device memory of a rank: one region, taken once, accounted by class.
 *
 * Whoever needs memory asks while the rank is being built and gets its pointer
 * at arena_commit, which takes one region from the back end (huge pages,
 * zeroed, touched) for everything. Nothing is given back before arena_fini:
 * a rank dies with its attempt. What was asked is summed as it was asked,
 * without the alignment between the pieces, so that the sums can be held
 * against the plan byte for byte. Thread: compute.
 */
#ifndef GEMS_WORKER_RANK_ARENA_H
#define GEMS_WORKER_RANK_ARENA_H

#include "worker/backend/backend.h"

struct rank_memory;

enum arena_class {
    ARENA_WEIGHTS,
    ARENA_GRADIENTS,
    ARENA_OPTIMIZER,
    ARENA_ACTIVATIONS,
    ARENA_BUFFERS,
    ARENA_WORKSPACE,
    ARENA_CLASS_COUNT
};

enum { ARENA_ALIGN = 256 };

struct arena_ask {
    void **where;
    uint64_t offset;
};

struct arena {
    const struct backend *backend;
    struct be_device *device;
    struct arena_ask *asks; /* owned */
    uint32_t n_asks, capacity;
    uint64_t asked[ARENA_CLASS_COUNT];
    uint64_t bytes; /* of the region */
    void *region;   /* owned; NULL before commit */
};

void arena_init(struct arena *arena, const struct backend *backend, struct be_device *device);
/* Also of a zeroed one. Every pointer handed out is dead after it. */
void arena_fini(struct arena *arena);

/* Asks for bytes (0: *where becomes NULL). *where is written by
 * arena_commit, aligned to ARENA_ALIGN, and must stay at its address until
 * then. GEMS_E_NOMEM. */
int arena_ask(struct arena *arena, enum arena_class class, uint64_t bytes, void **where,
              struct gems_error *err);

/* Takes the region. GEMS_E_NOMEM names the bytes and, if limit_bytes is not 0
 * and what was asked is above it, the limit. */
int arena_commit(struct arena *arena, uint64_t limit_bytes, struct gems_error *err);

/* What was asked so far, by class; limit_bytes is left alone. */
void arena_report(const struct arena *arena, struct rank_memory *ret_memory);

#endif
