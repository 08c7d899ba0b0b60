#include "worker/rank/reduce.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

static int shard_stage(struct reduce *reduce, struct gems_error *err)
{
    const struct stage *stage = reduce->stage;
    uint64_t *bytes = calloc(stage->n_nodes, sizeof *bytes);
    uint32_t *first = calloc(reduce->n_copies + 1, sizeof *first);

    if (!bytes || !first) {
        free(bytes);
        free(first);
        return gems_error_set(err, GEMS_E_NOMEM, "reduction: no host memory");
    }
    for (uint32_t i = 0; i < stage->n_nodes; i++) {
        bytes[i] = stage->block_offset[i + 1] - stage->block_offset[i];
    }
    plan_shards(bytes, stage->n_nodes, reduce->n_copies, first);
    for (uint32_t i = 0; i <= reduce->n_copies; i++) {
        reduce->first_byte[i] = stage->block_offset[first[i]];
    }
    free(bytes);
    free(first);
    return GEMS_OK;
}

int reduce_init(struct reduce *reduce, const struct stage *stage, uint32_t rank, struct link *link,
                uint32_t element_bytes, struct gems_error *err)
{
    uint32_t n_ranks = stage->plan->n_ranks;
    uint32_t k;

    *reduce = (struct reduce){ .stage = stage, .link = link, .element_bytes = element_bytes };
    reduce->ranks = calloc(n_ranks, sizeof *reduce->ranks);
    if (!reduce->ranks) {
        return gems_error_set(err, GEMS_E_NOMEM, "reduction: no host memory");
    }
    k = plan_copies(stage->plan, stage->index, reduce->ranks, n_ranks);
    reduce->n_copies = k;
    reduce->mine = k;
    for (uint32_t i = 0; i < k; i++) {
        if (reduce->ranks[i] == rank) {
            reduce->mine = i;
        }
    }
    if (reduce->mine == k || (k > 1 && !link) || k > REDUCE_MAX_COPIES) {
        return gems_error_set(err, GEMS_E_INTERNAL,
                              "plan: stage %u on rank %u: impossible copies (%u)", stage->index,
                              rank, k);
    }
    reduce->first_byte = calloc(k + 1, sizeof *reduce->first_byte);
    reduce->parts = calloc(k, sizeof *reduce->parts);
    reduce->reduce_in = calloc(k, sizeof *reduce->reduce_in);
    reduce->reduce_out = calloc(k, sizeof *reduce->reduce_out);
    reduce->gather_in = calloc(k, sizeof *reduce->gather_in);
    reduce->gather_out = calloc(k, sizeof *reduce->gather_out);
    if (!reduce->first_byte || !reduce->parts || !reduce->reduce_in || !reduce->reduce_out ||
        !reduce->gather_in || !reduce->gather_out) {
        return gems_error_set(err, GEMS_E_NOMEM, "reduction: no host memory");
    }
    return shard_stage(reduce, err);
}

void reduce_fini(struct reduce *reduce)
{
    free(reduce->ranks);
    free(reduce->first_byte);
    free(reduce->parts);
    free(reduce->reduce_in);
    free(reduce->reduce_out);
    free(reduce->gather_in);
    free(reduce->gather_out);
    memset(reduce, 0, sizeof *reduce);
}

static uint64_t shard_bytes(const struct reduce *reduce, uint32_t copy)
{
    return reduce->first_byte[copy + 1] - reduce->first_byte[copy];
}

uint64_t reduce_shard_first(const struct reduce *reduce)
{
    return reduce->first_byte[reduce->mine];
}

uint64_t reduce_shard_bytes(const struct reduce *reduce)
{
    return shard_bytes(reduce, reduce->mine);
}

int reduce_ask(struct reduce *reduce, struct arena *arena, struct gems_error *err)
{
    return arena_ask(arena, ARENA_BUFFERS, (reduce->n_copies - 1) * reduce_shard_bytes(reduce),
                     &reduce->receive, err);
}

static bool has_gradient(uint32_t copies, uint32_t copy)
{
    return copies >> copy & 1;
}

static uint64_t shard_tag(const struct reduce *reduce, enum tag_kind kind, uint32_t owner)
{
    return program_tag(kind, 0, 0, reduce->stage->index, 0, owner);
}

static void *receive_part(const struct reduce *reduce, uint32_t copy)
{
    uint32_t part = copy < reduce->mine ? copy : copy - 1;

    return (uint8_t *)reduce->receive + part * reduce_shard_bytes(reduce);
}

void reduce_post(struct reduce *reduce, uint32_t copies)
{
    uint64_t bytes = reduce_shard_bytes(reduce);

    for (uint32_t i = 0; i < reduce->n_copies && bytes != 0; i++) {
        if (i != reduce->mine && has_gradient(copies, i)) {
            link_recv(reduce->link, &reduce->reduce_in[i], reduce->ranks[i],
                      shard_tag(reduce, TAG_REDUCE, reduce->mine), receive_part(reduce, i), bytes);
        }
    }
}

void reduce_send(struct reduce *reduce, uint32_t copies, void *grads)
{
    bool is_sending = has_gradient(copies, reduce->mine);

    for (uint32_t i = 0; i < reduce->n_copies; i++) {
        uint64_t bytes = shard_bytes(reduce, i);

        if (i == reduce->mine || bytes == 0) {
            continue;
        }
        if (is_sending) {
            link_send(reduce->link, &reduce->reduce_out[i], reduce->ranks[i],
                      shard_tag(reduce, TAG_REDUCE, i), (uint8_t *)grads + reduce->first_byte[i],
                      bytes);
        }
        link_recv(reduce->link, &reduce->gather_in[i], reduce->ranks[i],
                  shard_tag(reduce, TAG_GATHER, i),
                  (uint8_t *)reduce->stage->params + reduce->first_byte[i], bytes);
    }
}

/* Waits for requests that were posted; idle ones were not needed. */
static int wait_all(struct link_request *requests, uint32_t n, struct gems_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        int status;

        if (atomic_load_explicit(&requests[i].state, memory_order_acquire) == LINK_IDLE) {
            continue;
        }
        status = link_wait(&requests[i], err);
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

/* parts[i] += parts[i + stride], stride doubling: a tree over the copies, which
 * own whole subtrees of the tree over the blocks. */
static int add_parts(struct reduce *reduce, uint64_t n_elements, struct gems_error *err)
{
    const struct stage *stage = reduce->stage;
    void **parts = reduce->parts;

    /* The same tree as gradient_split: the left part of every node is full. */
    for (uint32_t stride = 1; stride < reduce->n_copies; stride *= 2) {
        for (uint32_t i = 0; i + stride < reduce->n_copies; i += 2 * stride) {
            int status;

            if (!parts[i] || !parts[i + stride]) {
                parts[i] = parts[i] ? parts[i] : parts[i + stride];
                continue;
            }
            status = stage->backend->vector->add(stage->device, parts[i], parts[i + stride],
                                                 parts[i], n_elements, err);
            if (status < 0) {
                return status;
            }
        }
    }
    return GEMS_OK;
}

int reduce_sum(struct reduce *reduce, uint32_t copies, void *grads, const void **ret_sum,
               struct gems_error *err)
{
    int status = wait_all(reduce->gather_out, reduce->n_copies, err);

    if (status < 0) {
        return status;
    }
    status = wait_all(reduce->reduce_in, reduce->n_copies, err);
    if (status < 0) {
        return status;
    }
    for (uint32_t i = 0; i < reduce->n_copies; i++) {
        reduce->parts[i] = NULL;
        if (has_gradient(copies, i)) {
            reduce->parts[i] = i == reduce->mine ? (uint8_t *)grads + reduce_shard_first(reduce)
                                                 : receive_part(reduce, i);
        }
    }
    status = add_parts(reduce, reduce_shard_bytes(reduce) / reduce->element_bytes, err);
    if (status < 0) {
        return status;
    }
    *ret_sum = reduce->parts[0];
    return GEMS_OK;
}

void reduce_gather_send(struct reduce *reduce)
{
    uint64_t bytes = reduce_shard_bytes(reduce);

    for (uint32_t i = 0; i < reduce->n_copies && bytes != 0; i++) {
        if (i != reduce->mine) {
            link_send(reduce->link, &reduce->gather_out[i], reduce->ranks[i],
                      shard_tag(reduce, TAG_GATHER, reduce->mine),
                      (uint8_t *)reduce->stage->params + reduce_shard_first(reduce), bytes);
        }
    }
}

int reduce_gather_wait(struct reduce *reduce, struct gems_error *err)
{
    return wait_all(reduce->gather_in, reduce->n_copies, err);
}

int reduce_sent_wait(struct reduce *reduce, struct gems_error *err)
{
    return wait_all(reduce->reduce_out, reduce->n_copies, err);
}

int reduce_finish(struct reduce *reduce, struct gems_error *err)
{
    struct link_request *const requests[] = { reduce->reduce_in, reduce->reduce_out,
                                              reduce->gather_in, reduce->gather_out };

    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        int status = wait_all(requests[i], reduce->n_copies, err);

        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}
