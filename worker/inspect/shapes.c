#include "worker/inspect/shapes.h"

#include <stdlib.h>

#include "common/error.h"

/* What a back end may look at of an input. */
struct source {
    bool is_image;     /* the loader's */
    bool has_gradient; /* something above has weights */
};

static bool same_shape(const struct shape *a, const struct shape *b)
{
    return a->c == b->c && a->h == b->h && a->w == b->w && a->is_flat == b->is_flat;
}

static bool same_attributes(const struct node *a, const struct node *b)
{
    return a->kind == b->kind && a->n_inputs == b->n_inputs && a->k == b->k && a->r == b->r &&
           a->s == b->s && a->stride_h == b->stride_h && a->stride_w == b->stride_w &&
           a->pad_h == b->pad_h && a->pad_w == b->pad_w && a->has_bias == b->has_bias &&
           a->is_relu == b->is_relu && a->is_residual == b->is_residual && a->eps == b->eps &&
           a->rate == b->rate && same_shape(&a->out, &b->out);
}

static bool same_inputs(const struct graph *graph, const struct source *sources, uint32_t i,
                        uint32_t j)
{
    const struct node *a = &graph->nodes[i], *b = &graph->nodes[j];

    for (uint32_t k = 0; k < a->n_inputs; k++) {
        const struct source *x = &sources[a->inputs[k]], *y = &sources[b->inputs[k]];

        if (!same_shape(&graph->nodes[a->inputs[k]].out, &graph->nodes[b->inputs[k]].out) ||
            x->is_image != y->is_image || x->has_gradient != y->has_gradient) {
            return false;
        }
    }
    return true;
}

static void find_sources(const struct graph *graph, struct source *sources)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct node *node = &graph->nodes[i];
        struct param params[MODEL_MAX_PARAMS];

        sources[i].is_image = node->kind == OP_INPUT;
        sources[i].has_gradient = node_params(graph, i, params) > 0;
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            sources[i].has_gradient =
                sources[i].has_gradient || sources[node->inputs[k]].has_gradient;
        }
    }
}

int shapes_find(const struct graph *graph, uint32_t *ret_first, struct gems_error *err)
{
    struct source *sources = calloc(graph->n_nodes, sizeof *sources);
    uint32_t *distinct = calloc(graph->n_nodes, sizeof *distinct), n = 0;
    int st = GEMS_OK;

    if (!sources || !distinct) {
        st = gems_error_set(err, GEMS_E_NOMEM, "model %s: no memory to inspect it", graph->name);
        goto out;
    }
    find_sources(graph, sources);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        uint32_t d = 0;

        while (d < n && !(same_attributes(&graph->nodes[i], &graph->nodes[distinct[d]]) &&
                          same_inputs(graph, sources, i, distinct[d]))) {
            d++;
        }
        if (d == n) {
            distinct[n++] = i;
        }
        ret_first[i] = distinct[d];
    }
out:
    free(sources);
    free(distinct);
    return st;
}
