#include "model/passes.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "model/ops.h"

enum { GONE = UINT32_MAX };

/* Work on a copy; the graph is replaced when nothing can fail any more. */
struct fusion {
    struct node *nodes;
    uint32_t n_nodes;
    uint32_t *n_readers;
    uint32_t *stands_for; /* node whose output a fused-away node's readers read */
    uint32_t *new_index;  /* after removal; GONE */
};

static void fusion_fini(struct fusion *f)
{
    free(f->nodes);
    free(f->n_readers);
    free(f->stands_for);
    free(f->new_index);
}

static int fusion_init(struct fusion *f, const struct graph *graph, struct gems_error *err)
{
    uint32_t n = graph->n_nodes;

    f->n_nodes = n;
    f->nodes = calloc(n + 1, sizeof *f->nodes);
    f->n_readers = calloc(n + 1, sizeof *f->n_readers);
    f->stands_for = calloc(n + 1, sizeof *f->stands_for);
    f->new_index = calloc(n + 1, sizeof *f->new_index);
    if (!f->nodes || !f->n_readers || !f->stands_for || !f->new_index) {
        return gems_error_set(err, GEMS_E_NOMEM, "model %s: no memory for fusion", graph->name);
    }
    for (uint32_t i = 0; i < n; i++) {
        f->nodes[i] = graph->nodes[i];
        f->stands_for[i] = i;
        for (uint32_t k = 0; k < graph->nodes[i].n_inputs; k++) {
            f->n_readers[graph->nodes[i].inputs[k]]++;
        }
    }
    return 0;
}

/* Node `into` takes over what node `gone` did, which was its only reader. */
static void absorb(struct fusion *f, uint32_t into, uint32_t gone)
{
    f->stands_for[gone] = into;
    f->n_readers[into] = f->n_readers[gone];
}

static bool is_gone(const struct fusion *f, uint32_t i)
{
    return f->stands_for[i] != i;
}

static void fuse_relu(struct fusion *f, uint32_t relu)
{
    uint32_t into = f->nodes[relu].inputs[0];
    struct node *node = &f->nodes[into];

    if (op_class_of(node->kind)->may_relu && !node->is_relu && f->n_readers[into] == 1 &&
        node->layer == f->nodes[relu].layer) {
        node->is_relu = true;
        absorb(f, into, relu);
    }
}

/* No node between conv and add reads the residual: contributions to its
 * gradient keep their order when the addition moves up to the convolution. */
static bool is_order_kept(const struct fusion *f, uint32_t conv, uint32_t add, uint32_t residual)
{
    for (uint32_t i = conv; i < add; i++) {
        for (uint32_t k = 0; k < f->nodes[i].n_inputs && !is_gone(f, i); k++) {
            if (f->nodes[i].inputs[k] == residual) {
                return false;
            }
        }
    }
    return true;
}

static void fuse_add(struct fusion *f, uint32_t add)
{
    const struct node *node = &f->nodes[add];
    uint32_t a = node->inputs[0], b = node->inputs[1];
    uint32_t conv = a > b ? a : b, residual = a > b ? b : a;
    struct node *into = &f->nodes[conv];

    /* A ReLU behind the sum is fused with the ADD, which a CONV cannot have. */
    if (into->kind != OP_CONV || into->is_residual || node->is_relu || a == b ||
        f->n_readers[conv] != 1 || into->layer != node->layer ||
        !is_order_kept(f, conv, add, residual)) {
        return;
    }
    into->is_residual = true;
    into->inputs[into->n_inputs++] = residual;
    absorb(f, conv, add);
}

/* Readers of a node that is gone read the one that stands for it. */
static void redirect(struct fusion *f, struct node *node)
{
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        node->inputs[k] = f->stands_for[node->inputs[k]];
    }
}

static void compact(struct fusion *f)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->n_nodes; i++) {
        if (is_gone(f, i)) {
            f->new_index[i] = GONE;
            continue;
        }
        f->new_index[i] = n;
        f->nodes[n] = f->nodes[i];
        for (uint32_t k = 0; k < f->nodes[n].n_inputs; k++) {
            f->nodes[n].inputs[k] = f->new_index[f->nodes[n].inputs[k]];
        }
        n++;
    }
    f->n_nodes = n;
}

int graph_fuse(struct graph *graph, struct gems_error *err)
{
    struct fusion f = { 0 };
    int st = fusion_init(&f, graph, err);

    if (st < 0) {
        goto out;
    }
    /* In list order, ReLUs first: an ADD must know whether it has one. */
    for (uint32_t i = 0; i < f.n_nodes; i++) {
        redirect(&f, &f.nodes[i]);
        if (f.nodes[i].kind == OP_RELU) {
            fuse_relu(&f, i);
        }
    }
    for (uint32_t i = 0; i < f.n_nodes; i++) {
        redirect(&f, &f.nodes[i]);
        if (f.nodes[i].kind == OP_ADD) {
            fuse_add(&f, i);
        }
    }
    compact(&f);
    memcpy(graph->nodes, f.nodes, f.n_nodes * sizeof *graph->nodes);
    graph->n_nodes = f.n_nodes;
out:
    fusion_fini(&f);
    return st;
}
