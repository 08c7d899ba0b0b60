/* Evaluation: forward passes only, for every schedule.
 *
 *     rank 0  02.14365.7       P = 4, N = 8, two chains: even micro-batches run
 *     rank 1  .01234567.       on chain 0, ranks 0 to 3, odd ones on chain 1,
 *     rank 2  .10325476.       ranks 3 to 0
 *     rank 3  13.05274.6
 *
 * Each rank takes its passes in the order in which they reach it if every pass
 * takes one unit and a chain starts one as often as a device gets through its
 * stages of all chains. A pass comes later in this order than the one it waits for,
 * on whatever rank that runs, so the ranks never wait in a circle. Each stage of a
 * rank and chain has two slots: while one is sent the other is computed. An edge over
 * L stages is taken L units after it was made, where others of its chain have passed:
 * then there are more. On one device there is nothing to overlap: one slot.
 * Micro-batches are dealt to all chains of all groups in turn. */
#include "plan/sched.h"

struct lane {
    uint32_t chain, stage, next;
};

static uint32_t count_slots(const struct sched *s, uint32_t n_chains)
{
    uint32_t interval = n_chains * (s->plan->n_stages / s->width);
    uint32_t n_slots = s->plan->n_stages > 1 ? 2 : 1;

    for (uint32_t e = 0; e < s->plan->n_edges; e++) {
        uint32_t n = (s->plan->edges[e].to_stage - s->plan->edges[e].from_stage) / interval + 1;

        n_slots = n > n_slots ? n : n_slots;
    }
    return n_slots;
}

static int run_next(struct sched *s, struct lane *lane, uint32_t n_chains, uint32_t microbatch)
{
    uint32_t n_slots = count_slots(s, n_chains), turn = lane->stage / s->width;
    uint32_t first = n_slots * (lane->chain * (s->plan->n_stages / s->width) + turn);

    return sched_forward(s, lane->chain, lane->stage, microbatch, first + lane->next++ % n_slots);
}

/* All passes of a rank: always the one that reaches it first, of equal ones that of
 * the lower chain. */
static int run_rank(struct sched *s, uint32_t rank, uint32_t n_chains)
{
    uint32_t stride = n_chains * s->plan->n_groups, n_turns = s->plan->n_stages / s->width;
    struct lane lanes[2 * PLAN_MAX_RESIDENT];
    uint32_t n_lanes = 0;
    int status = 0;

    for (uint32_t chain = 0; chain < n_chains; chain++) {
        for (uint32_t stage = 0; stage < s->plan->n_stages; stage++) {
            if (plan_rank(s->plan, s->group, chain, stage) == rank) {
                lanes[n_lanes++] = (struct lane){ chain, stage, 0 };
            }
        }
    }
    while (status == 0) {
        struct lane *best = NULL;
        uint32_t best_time = 0, microbatch = 0;

        for (uint32_t i = 0; i < n_lanes; i++) {
            uint32_t time = lanes[i].next * n_chains * n_turns + lanes[i].stage;
            uint32_t index = lanes[i].next * stride + s->group * n_chains + lanes[i].chain;

            if (index < s->input->n_microbatches && (!best || time < best_time)) {
                best = &lanes[i];
                best_time = time;
                microbatch = index;
            }
        }
        if (!best) {
            break;
        }
        status = run_next(s, best, n_chains, microbatch);
    }
    return status;
}

int sched_eval(struct sched *s)
{
    uint32_t n_chains = s->plan->n_stages > 1 ? s->plan->n_chains : 1;
    int status = 0;

    for (uint32_t device = 0; device < s->width && status == 0; device++) {
        status = run_rank(s, s->group * s->width + device, n_chains);
    }
    return status;
}
