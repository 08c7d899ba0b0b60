/* Bytes of operators, from their descriptions alone. */
#include "worker/inspect/inspect.h"

#include <stdlib.h>

#include "common/error.h"
#include "worker/inspect/shapes.h"

static void keep_larger(uint64_t *value, uint64_t other)
{
    *value = other > *value ? other : *value;
}

/* Training and evaluation use the same memory in turn. */
static int describe_node(const struct graph *graph, uint32_t node, uint32_t batch,
                         const struct backend *backend, struct be_device *device,
                         struct op_facts *facts, struct gems_error *err)
{
    static const enum be_mode modes[] = { BE_TRAIN, BE_EVAL };

    for (uint32_t m = 0; m < 2; m++) {
        struct be_op_desc desc = { graph, node, batch, modes[m] };
        struct be_op_info info;
        int st = backend->ops->describe(device, &desc, &info, err);

        if (st < 0) {
            return st;
        }
        keep_larger(&facts->out_bytes, info.out_bytes);
        keep_larger(&facts->kept_bytes, info.kept_bytes);
        keep_larger(&facts->scratch_bytes, info.scratch_bytes);
        keep_larger(&facts->param_bytes, info.param_bytes);
        keep_larger(&facts->param2_bytes, info.param2_bytes);
    }
    return GEMS_OK;
}

int inspect_facts(const struct graph *graph, uint32_t batch, const struct backend *backend,
                  struct be_device *device, struct facts *ret_facts, struct gems_error *err)
{
    struct facts facts = { .batch = batch, .n_nodes = graph->n_nodes, .is_exact = true };
    uint32_t *first = calloc(graph->n_nodes, sizeof *first);
    int st;

    facts.ops = calloc(graph->n_nodes, sizeof *facts.ops);
    if (!first || !facts.ops) {
        st = gems_error_set(err, GEMS_E_NOMEM, "model %s: no memory to inspect it", graph->name);
        goto out;
    }
    st = shapes_find(graph, first, err);
    for (uint32_t i = 0; st == GEMS_OK && i < graph->n_nodes; i++) {
        if (first[i] == i) {
            st = describe_node(graph, i, batch, backend, device, &facts.ops[i], err);
        } else {
            facts.ops[i] = facts.ops[first[i]];
        }
    }
out:
    free(first);
    if (st < 0) {
        facts_fini(&facts);
    } else {
        *ret_facts = facts;
    }
    return st;
}
