/* Gradients between the copies of a stage, and updated weights back.
 *
 * The copies of a stage deal its parameter blocks among them (plan_shards).
 * Every copy sends each owner that owner's part of its gradient sum; the owner
 * adds the parts pairwise in the order of the gradient blocks, updates its
 * part of the weights and sends it to the others. The order is that of the
 * copies, so it does not matter who owns what: the sum has the bits that one
 * rank gets alone. `copies` is the mask of REDUCE: bit c is set if copy c has a
 * gradient in the running program (not so with fewer micro-batches than
 * blocks); the others take no part in the addition.
 *
 * One step: post (receives), send (REDUCE), sum (before UPDATE), gather_send
 * (GATHER), gather_wait (before the stage runs again). Nothing blocks but sum
 * and the waits. Thread: compute.
 */
#ifndef GEMS_WORKER_RANK_REDUCE_H
#define GEMS_WORKER_RANK_REDUCE_H

#include "plan/plan.h"
#include "worker/rank/arena.h"
#include "worker/rank/link.h"
#include "worker/rank/stage.h"

enum { REDUCE_MAX_COPIES = 32 /* bits of the mask */ };

struct reduce {
    const struct stage *stage;
    struct link *link;
    uint32_t element_bytes;
    uint32_t n_copies, mine; /* mine: index of this rank among the copies */
    uint32_t *ranks;         /* owned, [n_copies] */
    uint64_t *first_byte;    /* owned, [n_copies + 1]: shards as ranges of the parameter bytes */
    void *receive;           /* (n_copies - 1) parts of this rank's shard, in copy order */
    void **parts;            /* owned, [n_copies]: addends of the running sum */
    struct link_request *reduce_in, *reduce_out, *gather_in,
        *gather_out; /* owned, [n_copies] each */
};

int reduce_init(struct reduce *reduce, const struct stage *stage, uint32_t rank, struct link *link,
                uint32_t element_bytes, struct gems_error *err);
void reduce_fini(struct reduce *reduce); /* also of a zeroed one */
int reduce_ask(struct reduce *reduce, struct arena *arena, struct gems_error *err);

/* Range of the parameter bytes that this rank owns. */
uint64_t reduce_shard_first(const struct reduce *reduce);
uint64_t reduce_shard_bytes(const struct reduce *reduce);

/* Posts the receives of the parts of this rank's shard. */
void reduce_post(struct reduce *reduce, uint32_t copies);
/* Sends the owners their parts of the gradient block `grads`, and posts the
 * receives of GATHER: nothing reads the weights of the stage any more. */
void reduce_send(struct reduce *reduce, uint32_t copies, void *grads);
/* Waits for the parts and adds them. *ret_sum points to this rank's shard of
 * the sum, in `grads` or in a receive buffer, until the next reduce_post. The
 * shard of the weights may be written after it: earlier sends are done. */
int reduce_sum(struct reduce *reduce, uint32_t copies, void *grads, const void **ret_sum,
               struct gems_error *err);
void reduce_gather_send(struct reduce *reduce);
int reduce_gather_wait(struct reduce *reduce, struct gems_error *err);
/* Waits until the gradients that reduce_send sent may be overwritten. */
int reduce_sent_wait(struct reduce *reduce, struct gems_error *err);
/* Waits for everything that is in flight. */
int reduce_finish(struct reduce *reduce, struct gems_error *err);

#endif
