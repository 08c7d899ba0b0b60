#include "model/backward.h"

#include <stdlib.h>

#include "common/error.h"

/* What the whole graph says about the gradient of each tensor. */
struct gradients {
    bool *is_wanted;       /* something above it has weights */
    uint32_t *last_reader; /* visited first */
};

static bool has_weights(const struct graph *graph, uint32_t node)
{
    struct param params[MODEL_MAX_PARAMS];

    return node_params(graph, node, params) > 0;
}

static int gradients_init(struct gradients *g, const struct graph *graph, struct gems_error *err)
{
    g->is_wanted = calloc(graph->n_nodes, sizeof *g->is_wanted);
    g->last_reader = calloc(graph->n_nodes, sizeof *g->last_reader);
    if (!g->is_wanted || !g->last_reader) {
        return gems_error_set(err, GEMS_E_NOMEM, "model %s: no memory for its backward pass",
                              graph->name);
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct node *node = &graph->nodes[i];

        g->is_wanted[i] = has_weights(graph, i);
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            g->is_wanted[i] = g->is_wanted[i] || g->is_wanted[node->inputs[k]];
            g->last_reader[node->inputs[k]] = i;
        }
    }
    return 0;
}

static void gradients_fini(struct gradients *g)
{
    free(g->is_wanted);
    free(g->last_reader);
}

static enum grad_how how_of(const struct node *node, uint32_t input)
{
    bool is_plain_add = node->kind == OP_ADD && !node->is_relu;
    bool is_residual = node->kind == OP_CONV && input == 1;

    return is_plain_add || is_residual ? GRAD_PASS : GRAD_WRITE;
}

/* True if an input before this one reads the same tensor. */
static bool is_repeated(const struct node *node, uint32_t input)
{
    for (uint32_t k = 0; k < input; k++) {
        if (node->inputs[k] == node->inputs[input]) {
            return true;
        }
    }
    return false;
}

static struct backward_step make_step(const struct graph *graph, uint32_t index,
                                      const struct gradients *g)
{
    const struct node *node = &graph->nodes[index];
    struct backward_step step = { .node = index, .has_weights = has_weights(graph, index) };

    for (uint32_t k = 0; k < node->n_inputs; k++) {
        uint32_t tensor = node->inputs[k];

        if (g->is_wanted[tensor]) {
            step.how[k] = how_of(node, k);
            step.is_first[k] = g->last_reader[tensor] == index && !is_repeated(node, k);
        }
    }
    return step;
}

int backward_derive(const struct graph *graph, uint32_t first, uint32_t last,
                    struct backward_step **ret_steps, uint32_t *ret_n, struct gems_error *err)
{
    struct gradients g = { 0 };
    struct backward_step *steps = NULL;
    uint32_t n = 0;
    int st;

    if (first > last || last > graph->n_nodes) {
        return gems_error_set(err, GEMS_E_INTERNAL, "model %s: no nodes %u to %u", graph->name,
                              first, last);
    }
    st = gradients_init(&g, graph, err);
    if (st < 0) {
        goto out;
    }
    steps = calloc(last - first + 1, sizeof *steps);
    if (!steps) {
        st = gems_error_set(err, GEMS_E_NOMEM, "model %s: no memory for its backward pass",
                            graph->name);
        goto out;
    }
    for (uint32_t i = last; i-- > first;) {
        if (g.is_wanted[i]) {
            steps[n++] = make_step(graph, i, &g);
        }
    }
    *ret_steps = steps;
    *ret_n = n;
out:
    gradients_fini(&g);
    return st;
}
