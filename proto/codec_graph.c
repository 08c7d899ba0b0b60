#include "proto/codec.h"

#include <string.h>

#include "common/error.h"
#include "proto/build.h"
#include "proto/field.h"

enum { CODEC_MAX_NODES = 1 << 16, CODEC_MAX_SIDE = 1 << 24 };

static int node_from_proto(const Gems__Node *message, struct node *node, struct gems_error *err)
{
    struct field_check check = { .message = "Node", .err = err };

    memset(node, 0, sizeof *node);
    node->kind = (enum op_kind)field_below(&check, "kind", message->kind, OP_KIND_COUNT);
    field_text(&check, "name", message->name, node->name, sizeof node->name);
    node->layer = message->layer;
    node->n_inputs = (uint32_t)field_at_most(&check, "inputs", message->n_inputs, MODEL_MAX_INPUTS);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        node->inputs[i] = message->inputs[i];
    }
    node->k = (uint32_t)field_at_most(&check, "k", message->k, CODEC_MAX_SIDE);
    node->r = (uint32_t)field_at_most(&check, "r", message->r, CODEC_MAX_SIDE);
    node->s = (uint32_t)field_at_most(&check, "s", message->s, CODEC_MAX_SIDE);
    node->stride_h = (uint32_t)field_at_most(&check, "stride_h", message->stride_h, CODEC_MAX_SIDE);
    node->stride_w = (uint32_t)field_at_most(&check, "stride_w", message->stride_w, CODEC_MAX_SIDE);
    node->pad_h = (uint32_t)field_at_most(&check, "pad_h", message->pad_h, CODEC_MAX_SIDE);
    node->pad_w = (uint32_t)field_at_most(&check, "pad_w", message->pad_w, CODEC_MAX_SIDE);
    node->has_bias = message->bias;
    node->is_relu = message->relu;
    node->is_residual = message->residual;
    node->eps = field_number(&check, "eps", message->eps);
    node->decay = field_number(&check, "decay", message->decay);
    node->rate = field_number(&check, "rate", message->rate);
    node->out.c = (uint32_t)field_at_most(&check, "c", message->c, CODEC_MAX_SIDE);
    node->out.h = (uint32_t)field_at_most(&check, "h", message->h, CODEC_MAX_SIDE);
    node->out.w = (uint32_t)field_at_most(&check, "w", message->w, CODEC_MAX_SIDE);
    node->out.is_flat = message->flat;
    return check.st;
}

static bool is_same_shape(const struct shape *a, const struct shape *b)
{
    return a->c == b->c && a->h == b->h && a->w == b->w && a->is_flat == b->is_flat;
}

/* Adds the node again, so that its shape is ours and not the sender's. */
static int add_node(struct graph *graph, const Gems__Node *message, struct gems_error *err)
{
    struct node node;
    int st = node_from_proto(message, &node, err);
    int index;

    if (st < 0) {
        return st;
    }
    index = graph_add(graph, &node, err);
    if (index < 0) {
        return index;
    }
    if (!is_same_shape(&graph->nodes[index].out, &node.out)) {
        return gems_error_set(err, GEMS_E_INVALID, "message Graph, node %s: its shape does not follow",
                              node.name);
    }
    return GEMS_OK;
}

int graph_from_proto(const Gems__Graph *message, struct graph *ret_graph, struct gems_error *err)
{
    struct field_check check = { .message = "Graph", .err = err };
    char name[MODEL_NAME_BYTES];
    int st;

    memset(ret_graph, 0, sizeof *ret_graph);
    field_text(&check, "name", message->name, name, sizeof name);
    field_at_most(&check, "nodes", message->n_nodes, CODEC_MAX_NODES);
    if (check.st < 0) {
        return check.st;
    }
    graph_init(ret_graph, name, message->classes);
    st = GEMS_OK;
    for (size_t i = 0; i < message->n_nodes && st == GEMS_OK; i++) {
        st = add_node(ret_graph, message->nodes[i], err);
    }
    if (st == GEMS_OK && ret_graph->n_layers != message->layers) {
        field_fail(&check, "layers", "does not follow from the nodes");
        st = check.st;
    }
    if (st == GEMS_OK) {
        st = graph_check(ret_graph, err);
    }
    if (st < 0) {
        graph_fini(ret_graph);
        memset(ret_graph, 0, sizeof *ret_graph);
    }
    return st;
}

static Gems__Node *node_to_proto(struct build *build, const struct node *node)
{
    Gems__Node *message = build_message(build, &gems__node__descriptor);

    if (!message) {
        return NULL;
    }
    message->kind = (uint32_t)node->kind;
    message->name = build_text(build, node->name);
    message->layer = node->layer;
    message->inputs = build_numbers(build, node->inputs, node->n_inputs);
    message->n_inputs = message->inputs ? node->n_inputs : 0;
    message->k = node->k;
    message->r = node->r;
    message->s = node->s;
    message->stride_h = node->stride_h;
    message->stride_w = node->stride_w;
    message->pad_h = node->pad_h;
    message->pad_w = node->pad_w;
    message->bias = node->has_bias;
    message->relu = node->is_relu;
    message->residual = node->is_residual;
    message->eps = node->eps;
    message->decay = node->decay;
    message->rate = node->rate;
    message->c = node->out.c;
    message->h = node->out.h;
    message->w = node->out.w;
    message->flat = node->out.is_flat;
    return message;
}

Gems__Graph *graph_to_proto(const struct graph *graph)
{
    struct build build = { false };
    Gems__Graph *message = build_message(&build, &gems__graph__descriptor);

    if (message) {
        message->name = build_text(&build, graph->name);
        message->layers = graph->n_layers;
        message->classes = graph->n_classes;
        message->nodes = build_array(&build, graph->n_nodes, sizeof *message->nodes);
        message->n_nodes = message->nodes ? graph->n_nodes : 0;
        for (size_t i = 0; i < message->n_nodes; i++) {
            message->nodes[i] = node_to_proto(&build, &graph->nodes[i]);
        }
    }
    return build_end(&build, message);
}
