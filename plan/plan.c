#include "plan/plan.h"

#include <stdlib.h>

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

uint32_t plan_rank(const struct plan *plan, uint32_t group, uint32_t chain, uint32_t stage)
{
    return group * plan->n_stages + (chain % 2 ? plan->n_stages - 1 - stage : stage);
}

uint32_t plan_resident(const struct plan *plan, uint32_t rank,
                       uint32_t ret_stages[PLAN_MAX_RESIDENT])
{
    uint32_t n = 0;

    for (uint32_t s = 0; s < plan->n_stages && n < PLAN_MAX_RESIDENT; s++) {
        for (uint32_t chain = 0; chain < plan->n_chains; chain++) {
            if (plan_rank(plan, rank / plan->n_stages, chain, s) == rank) {
                ret_stages[n++] = s;
                break;
            }
        }
    }
    return n;
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
