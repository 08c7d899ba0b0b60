#include "tests/sim/random_graph.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/rng.h"

enum { MAX_UNREAD = 64, STREAM = 1 };

struct growth {
    struct draw *draw;
    struct graph *graph;
    uint32_t unread[MAX_UNREAD], n_unread; /* tensors of the current shape nobody reads */
    uint32_t old[MAX_UNREAD], n_old;       /* others of the current shape */
    uint32_t layer;
};

uint32_t draw_between(struct draw *draw, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(draw->seed, STREAM, draw->n++, (uint64_t)high - low + 1);
}

bool draw_chance(struct draw *draw, uint32_t percent)
{
    return draw_between(draw, 1, 100) <= percent;
}

static uint32_t add(struct growth *g, struct node node)
{
    struct gems_error err = { 0 };
    int index;

    snprintf(node.name, sizeof node.name, "n%u", g->graph->n_nodes);
    if (g->graph->n_nodes > 0 && draw_chance(g->draw, 40)) {
        g->layer++;
    }
    node.layer = g->layer;
    index = graph_add(g->graph, &node, &err);
    if (index < 0) {
        fprintf(stderr, "random graph: %s\n", err.text);
        abort();
    }
    g->graph->n_layers = g->layer + 1;
    return (uint32_t)index;
}

/* Takes a tensor to read: mostly one that nobody reads yet. */
static uint32_t take(struct growth *g)
{
    if (g->n_unread && (!g->n_old || draw_chance(g->draw, 75))) {
        uint32_t at = draw_between(g->draw, 0, g->n_unread - 1), node = g->unread[at];

        g->unread[at] = g->unread[--g->n_unread];
        if (g->n_old < MAX_UNREAD) {
            g->old[g->n_old++] = node;
        }
        return node;
    }
    return g->old[draw_between(g->draw, 0, g->n_old - 1)];
}

static void put(struct growth *g, uint32_t node)
{
    g->unread[g->n_unread++] = node;
}

static struct node one_input(enum op_kind kind, uint32_t input)
{
    return (struct node){
        .kind = kind, .n_inputs = 1, .inputs = { input }, .eps = 1e-5, .decay = 0.9, .rate = 0.5
    };
}

static struct node window(enum op_kind kind, uint32_t input, uint32_t k, uint32_t stride)
{
    struct node node = one_input(kind, input);

    node.k = k;
    node.r = node.s = 3;
    node.stride_h = node.stride_w = stride;
    node.pad_h = node.pad_w = 1;
    return node;
}

static void add_sum(struct growth *g, uint32_t a, uint32_t b)
{
    struct node node = one_input(OP_ADD, a);

    node.n_inputs = 2;
    node.inputs[1] = b;
    node.is_relu = draw_chance(g->draw, 50);
    put(g, add(g, node));
}

/* Joins two to four tensors and convolves them back to the common shape. */
static void add_concat(struct growth *g, uint32_t x, uint32_t channels)
{
    struct node node = one_input(OP_CONCAT, x);
    uint32_t n = draw_between(g->draw, 1, MODEL_MAX_INPUTS - 1);

    while (n-- > 0) {
        node.inputs[node.n_inputs++] = take(g);
    }
    put(g, add(g, window(OP_CONV, add(g, node), channels, 1)));
}

static void grow(struct growth *g, uint32_t channels)
{
    uint32_t x = take(g), kind = draw_between(g->draw, 0, 7);
    struct node node;

    switch (kind) {
    case 0:
    case 1:
        node = window(OP_CONV, x, channels, 1);
        node.has_bias = draw_chance(g->draw, 50);
        if (draw_chance(g->draw, 40)) {
            node.is_residual = true;
            node.n_inputs = 2;
            node.inputs[1] = take(g);
        }
        break;
    case 2:
        node = one_input(OP_BATCHNORM, x);
        node.is_relu = draw_chance(g->draw, 60);
        break;
    case 3:
        node = one_input(OP_RELU, x);
        break;
    case 4:
        add_sum(g, x, take(g));
        return;
    case 5:
        add_concat(g, x, channels);
        return;
    case 6:
        node = one_input(OP_DROPOUT, x);
        break;
    default:
        node = window(draw_chance(g->draw, 50) ? OP_MAXPOOL : OP_AVGPOOL, x, 0, 1);
        break;
    }
    put(g, add(g, node));
}

/* Sums all tensors nobody reads into one. */
static uint32_t gather(struct growth *g)
{
    while (g->n_unread > 1) {
        uint32_t a = g->unread[--g->n_unread], b = g->unread[--g->n_unread];

        add_sum(g, a, b);
    }
    g->n_old = 0;
    return g->unread[--g->n_unread];
}

void random_graph(struct draw *draw, struct graph *ret_graph)
{
    struct growth g = { .draw = draw, .graph = ret_graph };
    uint32_t channels = draw_between(draw, 1, 6), side = draw_between(draw, 4, 9), x;
    uint32_t n_blocks = draw_between(draw, 0, 3);
    struct node node = { .kind = OP_INPUT, .out = { draw_between(draw, 1, 3), side, side, false } };

    graph_init(ret_graph, "random", 3);
    x = add(&g, node);
    for (uint32_t block = 0; block < n_blocks; block++) {
        uint32_t n = draw_between(draw, 1, 9);

        put(&g, add(&g, window(OP_CONV, x, channels, block ? 2 : 1)));
        while (n-- > 0) {
            grow(&g, channels);
        }
        x = gather(&g);
        channels += draw_between(draw, 0, 2);
    }
    x = add(&g, one_input(OP_FLATTEN, x));
    for (uint32_t n = draw_between(draw, 0, 2); n > 0; n--) {
        node = one_input(OP_DENSE, x);
        node.k = draw_between(draw, 2, 9);
        node.has_bias = node.is_relu = draw_chance(draw, 50);
        x = add(&g, node);
    }
    node = one_input(OP_DENSE, x);
    node.k = 3;
    node.has_bias = true;
    x = add(&g, node);
    add(&g, one_input(OP_LOSS, x));
}

static uint64_t pad(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

void random_facts(const struct graph *graph, uint32_t batch, struct facts *ret_facts)
{
    struct op_facts *ops = calloc(graph->n_nodes, sizeof *ops);

    if (!ops) {
        abort();
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct node *node = &graph->nodes[i];
        uint64_t count = shape_count(&node->out) * batch;
        struct param params[MODEL_MAX_PARAMS];
        uint32_t n_params = node_params(graph, i, params);

        ops[i].out_bytes = node->kind == OP_LOSS ? 0 : pad(count * 4);
        if (node_backward_needs(node) & NEED_KEPT) {
            ops[i].kept_bytes = pad(count + 8);
        }
        ops[i].scratch_bytes = rng_below(i, STREAM, batch, 5) * 64;
        for (uint32_t p = 0; p < n_params; p++) {
            ops[i].param_bytes += pad(param_count(&params[p]) * 4);
        }
        if (node->kind == OP_CONV && i % 2) {
            ops[i].param2_bytes = ops[i].param_bytes;
        }
    }
    *ret_facts =
        (struct facts){ .batch = batch, .n_nodes = graph->n_nodes, .ops = ops, .is_exact = true };
}
