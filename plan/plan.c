#include "plan/plan.h"

#include <stdlib.h>

#include "plan/sched.h"

void facts_fini(struct facts *facts)
{
    free(facts->ops);
    *facts = (struct facts){ 0 };
}

void fact_set_fini(struct fact_set *set)
{
    for (uint32_t i = 0; i < set->n_sizes; i++) {
        facts_fini(&set->sizes[i]);
    }
    *set = (struct fact_set){ 0 };
}

const struct facts *fact_set_find(const struct fact_set *set, uint32_t batch)
{
    for (uint32_t i = 0; i < set->n_sizes; i++) {
        if (set->sizes[i].batch == batch) {
            return &set->sizes[i];
        }
    }
    return NULL;
}

void plan_fini(struct plan *plan)
{
    program_fini(&plan->train);
    program_fini(&plan->train_last);
    program_fini(&plan->eval);
    program_fini(&plan->eval_last);
    free(plan->edges);
    free(plan->memory);
    *plan = (struct plan){ 0 };
}

uint32_t plan_grad_stage(const struct plan *plan, uint32_t edge)
{
    const struct plan_edge *edges = plan->edges;

    /* edges are sorted by (node, to_stage) */
    return edge && edges[edge - 1].node == edges[edge].node ? edges[edge - 1].to_stage
                                                            : edges[edge].from_stage;
}

uint32_t plan_width(const struct plan *plan)
{
    return plan->n_groups ? plan->n_ranks / plan->n_groups : 0;
}

uint32_t plan_rank(const struct plan *plan, uint32_t group, uint32_t chain, uint32_t stage)
{
    const struct schedule *schedule = schedule_find(plan->schedule);
    uint32_t width = plan_width(plan), turn = stage / width, device = stage % width;
    bool is_back = schedule && schedule->is_v && turn % 2;

    return group * width + (is_back != (chain % 2 != 0) ? width - 1 - device : device);
}

uint32_t plan_resident(const struct plan *plan, uint32_t rank,
                       uint32_t ret_stages[PLAN_MAX_RESIDENT])
{
    uint32_t n = 0;

    for (uint32_t s = 0; s < plan->n_stages && n < PLAN_MAX_RESIDENT; s++) {
        for (uint32_t chain = 0; chain < plan->n_chains; chain++) {
            if (plan_rank(plan, rank / plan_width(plan), chain, s) == rank) {
                ret_stages[n++] = s;
                break;
            }
        }
    }
    return n;
}

/* Part of the tree over the blocks [*inout_first, *inout_last) that taker i of n owns. */
static bool deal_blocks(uint32_t i, uint32_t n, uint32_t *inout_first, uint32_t *inout_last)
{
    while (n > 1) {
        uint32_t n_left = gradient_split(n), n_blocks = *inout_last - *inout_first;
        uint32_t middle = *inout_first + gradient_split(n_blocks);

        if (n_blocks < 2) {
            return false;
        }
        if (i < n_left) {
            *inout_last = middle;
            n = n_left;
        } else {
            *inout_first = middle;
            i -= n_left;
            n -= n_left;
        }
    }
    return true;
}

bool plan_blocks(const struct plan *plan, uint32_t group, uint32_t chain, uint32_t *ret_first,
                 uint32_t *ret_last)
{
    *ret_first = 0;
    *ret_last = plan->n_blocks;
    return deal_blocks(group, plan->n_groups, ret_first, ret_last) &&
           deal_blocks(chain, plan->n_chains, ret_first, ret_last);
}

bool plan_keeps_sums(const struct plan *plan)
{
    for (uint32_t group = 0; group < plan->n_groups; group++) {
        uint32_t first, last;

        if (!plan_blocks(plan, group, 0, &first, &last)) {
            return false;
        }
    }
    return true;
}

void plan_share(const struct plan *plan, uint32_t group, uint32_t n, uint32_t *ret_first,
                uint32_t *ret_middle, uint32_t *ret_last)
{
    uint32_t first, middle, last;

    plan_blocks(plan, group, 0, &first, &middle);
    last = middle;
    if (plan->n_chains > 1) {
        plan_blocks(plan, group, 1, &middle, &last);
    }
    *ret_first = gradient_block_first(first, n, plan->n_blocks);
    *ret_middle = gradient_block_first(middle, n, plan->n_blocks);
    *ret_last = gradient_block_first(last, n, plan->n_blocks);
}

uint32_t plan_copies(const struct plan *plan, uint32_t stage, uint32_t *ret_ranks,
                     uint32_t max_ranks)
{
    uint32_t n = 0;

    for (uint32_t group = 0; group < plan->n_groups; group++) {
        uint32_t first = n;

        for (uint32_t chain = 0; chain < plan->n_chains; chain++) {
            uint32_t rank = plan_rank(plan, group, chain, stage);
            uint32_t i = first;

            while (i < n && ret_ranks[i] != rank) {
                i++;
            }
            if (i == n && n < max_ranks) {
                ret_ranks[n++] = rank;
            }
        }
    }
    return n;
}

void plan_shards(const uint64_t *block_bytes, uint32_t n, uint32_t k, uint32_t *ret_first)
{
    uint64_t total = 0, before = 0;
    uint32_t owner = 0;

    for (uint32_t t = 0; t < n; t++) {
        total += block_bytes[t];
    }
    ret_first[0] = 0;
    /* a block belongs to the owner in whose equal share its middle lies */
    for (uint32_t t = 0; t < n; t++) {
        while (owner + 1 < k &&
               (2 * before + block_bytes[t]) * k >= 2 * total * (uint64_t)(owner + 1)) {
            ret_first[++owner] = t;
        }
        before += block_bytes[t];
    }
    while (owner < k) {
        ret_first[++owner] = n;
    }
}
