#include "worker/rank/facts.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

static void size_add(uint32_t size, uint32_t *sizes, uint32_t *n)
{
    for (uint32_t i = 0; i < *n; i++) {
        if (sizes[i] == size) {
            return;
        }
    }
    if (size != 0 && *n < FACTS_MAX_SIZES) {
        sizes[(*n)++] = size;
    }
}

uint32_t facts_batch_sizes(const struct plan *plan, uint32_t ret_sizes[FACTS_MAX_SIZES])
{
    const struct program *programs[] = { &plan->train, &plan->train_last, &plan->eval,
                                         &plan->eval_last };
    uint32_t n = 0;

    size_add(plan->microbatch, ret_sizes, &n); /* memory_map_make takes parameters from it */
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        if (programs[i]->n_ranks == 0) {
            continue;
        }
        if (programs[i]->n_microbatches > 1) {
            size_add(programs[i]->microbatch, ret_sizes, &n);
        }
        size_add(programs[i]->last_microbatch, ret_sizes, &n);
    }
    return n;
}

static void keep_larger(uint64_t *value, uint64_t other)
{
    if (other > *value) {
        *value = other;
    }
}

static int describe_node(const struct graph *graph, uint32_t node, uint32_t batch,
                         const struct backend *backend, struct be_device *device,
                         struct op_facts *facts, struct gems_error *err)
{
    for (int mode = BE_TRAIN; mode <= BE_EVAL; mode++) {
        struct be_op_desc desc = { graph, node, batch, (enum be_mode)mode };
        struct be_op_info info;
        int status = backend->ops->describe(device, &desc, &info, err);

        if (status < 0) {
            return status;
        }
        keep_larger(&facts->out_bytes, info.out_bytes);
        keep_larger(&facts->kept_bytes, info.kept_bytes);
        keep_larger(&facts->scratch_bytes, info.scratch_bytes);
        keep_larger(&facts->param_bytes, info.param_bytes);
        keep_larger(&facts->param2_bytes, info.param2_bytes);
    }
    return GEMS_OK;
}

static void mark_nodes(const struct plan *plan, uint32_t rank, bool *is_wanted)
{
    uint32_t stages[PLAN_MAX_RESIDENT];
    uint32_t n = plan_resident(plan, rank, stages);

    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t node = plan->stage_node[stages[i]]; node < plan->stage_node[stages[i] + 1];
             node++) {
            is_wanted[node] = true;
        }
        for (uint32_t e = 0; e < plan->n_edges; e++) {
            if (plan->edges[e].to_stage == stages[i]) {
                is_wanted[plan->edges[e].node] = true;
            }
        }
    }
}

int facts_describe(const struct graph *graph, const struct plan *plan, uint32_t rank,
                   const struct backend *backend, struct be_device *device,
                   struct fact_set *ret_facts, struct gems_error *err)
{
    uint32_t sizes[FACTS_MAX_SIZES];
    uint32_t n_sizes = facts_batch_sizes(plan, sizes);
    bool *is_wanted = calloc(graph->n_nodes, sizeof *is_wanted);
    int status = GEMS_OK;

    memset(ret_facts, 0, sizeof *ret_facts);
    if (!is_wanted) {
        return gems_error_set(err, GEMS_E_NOMEM, "facts: no host memory");
    }
    mark_nodes(plan, rank, is_wanted);
    ret_facts->n_train = plan->n_train;
    ret_facts->n_eval = plan->n_eval;
    for (uint32_t i = 0; i < n_sizes; i++) {
        struct facts *facts = &ret_facts->sizes[i];

        ret_facts->n_sizes = i + 1;
        *facts = (struct facts){ .batch = sizes[i], .n_nodes = graph->n_nodes, .is_exact = true };
        facts->ops = calloc(graph->n_nodes, sizeof *facts->ops);
        if (!facts->ops) {
            status = gems_error_set(err, GEMS_E_NOMEM, "facts: no host memory");
            goto out;
        }
        for (uint32_t node = 0; node < graph->n_nodes; node++) {
            if (!is_wanted[node]) {
                continue;
            }
            status = describe_node(graph, node, sizes[i], backend, device, &facts->ops[node], err);
            if (status < 0) {
                goto out;
            }
        }
    }
out:
    free(is_wanted);
    return status;
}
