/* Evaluation: forward passes only, for every schedule.
 *
 *     rank 0  02.14365.7       P = 4, N = 8, two chains: even micro-batches run
 *     rank 1  .01234567.       on chain 0, ranks 0 to 3, odd ones on chain 1,
 *     rank 2  .10325476.       ranks 3 to 0
 *     rank 3  13.05274.6
 *
 * Each rank takes its passes in the order in which they reach it if every pass
 * takes one unit and a chain starts one every n_chains units. A pass comes later
 * in this order than the one it waits for, on whatever rank that runs, so the
 * ranks never wait in a circle. Each (rank, chain) has two slots: while one is
 * sent the other is computed. An edge over L stages is taken L units after it was
 * made, where others of its chain have passed: then there are L / n_chains + 1. On
 * one device there is nothing to overlap: one slot. */
#include "plan/sched.h"

static uint32_t slots_of(const struct plan *plan, uint32_t n_chains)
{
    uint32_t n_slots = plan->n_stages > 1 ? 2 : 1;

    for (uint32_t e = 0; e < plan->n_edges; e++) {
        uint32_t n = (plan->edges[e].to_stage - plan->edges[e].from_stage) / n_chains + 1;

        n_slots = n > n_slots ? n : n_slots;
    }
    return n_slots;
}

static int run_pass(struct sched *s, uint32_t chain, uint32_t stage, uint32_t n_chains, uint32_t j)
{
    uint32_t n_slots = slots_of(s->plan, n_chains);

    return sched_forward(s, chain, stage, j * n_chains + chain, n_slots * chain + j % n_slots);
}

/* All passes of a rank: of those that both chains still have the one that
 * reaches it first, of equal ones chain 0's. */
static int run_device(struct sched *s, uint32_t device, uint32_t n_chains)
{
    uint32_t n = s->input->n_microbatches, last = s->plan->n_stages - 1;
    uint32_t next[2] = { 0, 0 };
    int status = 0;

    while (status == 0) {
        bool has_0 = next[0] * n_chains<n, has_1 = n_chains> 1 && next[1] * n_chains + 1 < n;
        uint32_t time_0 = next[0] * n_chains + device, time_1 = next[1] * n_chains + last - device;

        if (has_0 && (!has_1 || time_0 <= time_1)) {
            status = run_pass(s, 0, device, n_chains, next[0]++);
        } else if (has_1) {
            status = run_pass(s, 1, last - device, n_chains, next[1]++);
        } else {
            break;
        }
    }
    return status;
}

int sched_eval(struct sched *s)
{
    uint32_t n_chains = s->plan->n_stages > 1 ? s->plan->n_chains : 1;
    int status = 0;

    for (uint32_t device = 0; device < s->plan->n_stages && status == 0; device++) {
        status = run_device(s, device, n_chains);
    }
    return status;
}
