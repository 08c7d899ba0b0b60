#include "model/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "model/ops.h"

void graph_init(struct graph *graph, const char *name, uint32_t n_classes)
{
    *graph = (struct graph){ .n_classes = n_classes };
    snprintf(graph->name, sizeof graph->name, "%s", name);
}

void graph_fini(struct graph *graph)
{
    free(graph->nodes);
    *graph = (struct graph){ 0 };
}

/* Room for one more node. */
static int reserve(struct graph *graph, struct gems_error *err)
{
    uint32_t capacity = graph->capacity ? 2 * graph->capacity : 64;
    struct node *nodes;

    if (graph->n_nodes < graph->capacity) {
        return 0;
    }
    if (graph->n_nodes >= MODEL_MAX_NODES) {
        return gems_error_set(err, GEMS_E_INVALID, "model %s: more than %d operators", graph->name,
                              MODEL_MAX_NODES);
    }
    nodes = realloc(graph->nodes, capacity * sizeof *nodes);
    if (!nodes) {
        return gems_error_set(err, GEMS_E_NOMEM, "model %s: no memory for %u operators",
                              graph->name, capacity);
    }
    graph->nodes = nodes;
    graph->capacity = capacity;
    return 0;
}

/* Layers are numbered from 0 without gaps, so that none is empty. */
static int check_layer(const struct graph *graph, const struct node *node, uint32_t index,
                       struct gems_error *err)
{
    uint32_t before = index ? graph->nodes[index - 1].layer : 0;

    if (node->layer < before || node->layer > before + (index ? 1 : 0)) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "node %s (%s): is in layer %u behind a node of layer %u; layers "
                              "count up in steps of 1 from 0",
                              node->name, op_name(node->kind), node->layer, before);
    }
    return 0;
}

int graph_add(struct graph *graph, const struct node *node, struct gems_error *err)
{
    uint32_t index = graph->n_nodes;
    struct shape out;
    int st = op_infer(graph, node, index, &out, err);

    if (st == 0) {
        st = check_layer(graph, node, index, err);
    }
    if (st == 0) {
        st = reserve(graph, err);
    }
    if (st < 0) {
        return st;
    }
    graph->nodes[index] = *node;
    graph->nodes[index].out = out;
    graph->n_nodes++;
    graph->n_layers = node->layer + 1;
    return (int)index;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_unique(const struct graph *graph, struct gems_error *err)
{
    const char **names = malloc(graph->n_nodes * sizeof *names);
    int st = 0;

    if (!names) {
        return gems_error_set(err, GEMS_E_NOMEM, "model %s: no memory for a check of %u names",
                              graph->name, graph->n_nodes);
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        names[i] = graph->nodes[i].name;
    }
    qsort(names, graph->n_nodes, sizeof *names, compare_names);
    for (uint32_t i = 1; i < graph->n_nodes && st == 0; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            st = gems_error_set(err, GEMS_E_INVALID, "model %s: two nodes are called %s",
                                graph->name, names[i]);
        }
    }
    free(names);
    return st;
}

/* Every tensor but the loss has a reader: backward then reaches every node. */
static int check_read(const struct graph *graph, struct gems_error *err)
{
    bool *is_read = calloc(graph->n_nodes, sizeof *is_read);
    int st = 0;

    if (!is_read) {
        return gems_error_set(err, GEMS_E_NOMEM, "model %s: no memory for a check of %u nodes",
                              graph->name, graph->n_nodes);
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        for (uint32_t k = 0; k < graph->nodes[i].n_inputs; k++) {
            is_read[graph->nodes[i].inputs[k]] = true;
        }
    }
    for (uint32_t i = 0; i + 1 < graph->n_nodes && st == 0; i++) {
        if (!is_read[i]) {
            st = gems_error_set(err, GEMS_E_INVALID, "node %s (%s): nothing reads its output",
                                graph->nodes[i].name, op_name(graph->nodes[i].kind));
        }
    }
    free(is_read);
    return st;
}

static int check_node(const struct graph *graph, uint32_t index, struct gems_error *err)
{
    const struct node *node = &graph->nodes[index];
    struct shape out;
    char said[OP_SHAPE_BYTES], real[OP_SHAPE_BYTES];
    int st = op_infer(graph, node, index, &out, err);

    if (st < 0) {
        return st;
    }
    if (node->out.c != out.c || node->out.h != out.h || node->out.w != out.w ||
        node->out.is_flat != out.is_flat) {
        return gems_error_set(
            err, GEMS_E_INVALID, "node %s (%s): says its output is %s, but it is %s", node->name,
            op_name(node->kind), op_shape_text(&node->out, said), op_shape_text(&out, real));
    }
    if ((node->kind == OP_LOSS) != (index + 1 == graph->n_nodes)) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "node %s (%s): the last node, and no other, must be the loss",
                              node->name, op_name(node->kind));
    }
    return check_layer(graph, node, index, err);
}

int graph_check(const struct graph *graph, struct gems_error *err)
{
    int st = 0;

    if (strnlen(graph->name, sizeof graph->name) == sizeof graph->name) {
        return gems_error_set(err, GEMS_E_INVALID, "model: its name has more than %d characters",
                              MODEL_NAME_BYTES - 1);
    }
    if (graph->n_nodes < 2 || graph->n_nodes > MODEL_MAX_NODES || !graph->nodes) {
        return gems_error_set(err, GEMS_E_INVALID, "model %s: has %u operators instead of 2 to %d",
                              graph->name, graph->n_nodes, MODEL_MAX_NODES);
    }
    if (graph->n_classes < 2) {
        return gems_error_set(err, GEMS_E_INVALID, "model %s: needs at least 2 classes, has %u",
                              graph->name, graph->n_classes);
    }
    for (uint32_t i = 0; i < graph->n_nodes && st == 0; i++) {
        st = check_node(graph, i, err);
    }
    if (st == 0 && graph->n_layers != graph->nodes[graph->n_nodes - 1].layer + 1) {
        st = gems_error_set(err, GEMS_E_INVALID, "model %s: says it has %u layers, but has %u",
                            graph->name, graph->n_layers,
                            graph->nodes[graph->n_nodes - 1].layer + 1);
    }
    if (st == 0) {
        st = check_unique(graph, err);
    }
    return st == 0 ? check_read(graph, err) : st;
}

int graph_copy(const struct graph *graph, struct graph *ret_copy, struct gems_error *err)
{
    struct node *nodes = NULL;

    if (graph->n_nodes) {
        nodes = malloc(graph->n_nodes * sizeof *nodes);
        if (!nodes) {
            return gems_error_set(err, GEMS_E_NOMEM, "model %s: no memory for a copy", graph->name);
        }
        memcpy(nodes, graph->nodes, graph->n_nodes * sizeof *nodes);
    }
    *ret_copy = *graph;
    ret_copy->nodes = nodes;
    ret_copy->capacity = graph->n_nodes;
    return 0;
}

uint64_t shape_count(const struct shape *shape)
{
    return (uint64_t)shape->c * shape->h * shape->w;
}

uint64_t param_count(const struct param *param)
{
    uint64_t count = 1;

    for (uint32_t i = 0; i < param->n_dims; i++) {
        count *= param->dims[i];
    }
    return count;
}

static uint64_t count_params(const struct graph *graph, bool is_statistics)
{
    struct param params[MODEL_MAX_PARAMS];
    uint64_t total = 0;

    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        uint32_t n = node_params(graph, i, params);

        for (uint32_t p = 0; p < n; p++) {
            if (is_statistics == (params[p].role >= PARAM_MEAN)) {
                total += param_count(&params[p]);
            }
        }
    }
    return total;
}

uint64_t graph_trainable(const struct graph *graph)
{
    return count_params(graph, false);
}

uint64_t graph_statistics(const struct graph *graph)
{
    return count_params(graph, true);
}
