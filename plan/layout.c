/* Forward half of a layout; the backward half is layout_grad.c.
 *
 * Time runs in operators: 0 is the receive, node i of the stage runs at
 * i - first + 1. A tensor needed by backward or by another stage lives to the
 * end of the slot, any other to its last reader; the slot and TEMP are packed by
 * these lifetimes apart, so an input edge that backward does not read gives its
 * room in the slot to a later tensor. */
#include "plan/layout.h"

#include <stdlib.h>

#include "common/error.h"
#include "model/backward.h"
#include "plan/layout_grad.h"
#include "plan/pack.h"

enum { TIME_END = UINT32_MAX };

/* A block of memory of the forward pass: output or kept block of a node, labels. */
struct block {
    enum space space;
    struct pack_item item;
};

struct build {
    const struct graph *graph;
    const struct plan *plan;
    const struct facts *facts;
    uint32_t stage, first, last; /* nodes [first, last) */
    bool is_eval;
    enum recompute recompute;
    bool *has_gradient;     /* by node */
    bool *is_rebuilt;       /* by node; RECOMPUTE_CHEAP */
    struct block *y, *kept; /* by node */
    struct block labels;
    struct layout *layout;
};

int layout_gradients(const struct graph *graph, bool **ret_has_gradient, struct gems_error *err)
{
    struct backward_step *visits = NULL;
    uint32_t n = 0;
    bool *has = calloc(graph->n_nodes, sizeof *has);
    int status;

    if (!has) {
        return gems_error_set(err, GEMS_E_NOMEM, "gradients of %u nodes: no memory",
                              graph->n_nodes);
    }
    status = backward_derive(graph, 0, graph->n_nodes, &visits, &n, err);
    if (status < 0) {
        free(has);
        return status;
    }
    for (uint32_t i = 0; i < n; i++) {
        has[visits[i].node] = true;
    }
    free(visits);
    *ret_has_gradient = has;
    return GEMS_OK;
}

static uint32_t time_of(const struct build *b, uint32_t node)
{
    return node - b->first + 1;
}

static void keep(struct block *block)
{
    block->space = SPACE_SLOT;
    block->item.last = TIME_END;
}

/* Edges of the stage; their tensors lie in the slot. */
static int make_edges(struct build *b, struct gems_error *err)
{
    const struct plan *plan = b->plan;
    struct layout *layout = b->layout;

    layout->in = calloc(plan->n_edges + 1, sizeof *layout->in);
    layout->out = calloc(plan->n_edges + 1, sizeof *layout->out);
    if (!layout->in || !layout->out) {
        return gems_error_set(err, GEMS_E_NOMEM, "edges of stage %u: no memory", b->stage);
    }
    for (uint32_t e = 0; e < plan->n_edges; e++) {
        uint32_t node = plan->edges[e].node;
        struct layout_edge edge = { .edge = e, .bytes = b->facts->ops[node].out_bytes };

        if (plan->edges[e].to_stage == b->stage) {
            layout->in[layout->n_in++] = edge;
            b->y[node].space = SPACE_SLOT;
        } else if (plan->edges[e].from_stage == b->stage) {
            layout->out[layout->n_out++] = edge;
            keep(&b->y[node]);
        } else if (!b->is_eval && b->has_gradient[node] && plan_grad_stage(plan, e) == b->stage) {
            layout->out[layout->n_out++] = edge;
        }
    }
    return GEMS_OK;
}

/* First and last use of every block by the forward pass. */
static void find_forward_uses(struct build *b)
{
    for (uint32_t i = b->first; i < b->last; i++) {
        const struct node *node = &b->graph->nodes[i];
        const struct op_facts *op = &b->facts->ops[i];
        uint32_t now = node->kind == OP_INPUT ? 0 : time_of(b, i);

        b->y[i] = (struct block){ SPACE_TEMP, { op->out_bytes, now, now, 0 } };
        b->kept[i] = (struct block){ SPACE_TEMP, { b->is_eval ? 0 : op->kept_bytes, now, now, 0 } };
        if (node->kind == OP_INPUT) {
            b->y[i].space = SPACE_SLOT;
        }
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            struct block *x = &b->y[node->inputs[k]];

            x->item.bytes = b->facts->ops[node->inputs[k]].out_bytes;
            x->item.last = now;
        }
    }
}

/* Batch-norms whose output can be made again from an input that is kept anyhow. */
static void find_rebuilt(struct build *b)
{
    for (uint32_t i = b->first; i < b->last; i++) {
        const struct node *node = &b->graph->nodes[i];

        b->is_rebuilt[i] = b->recompute == RECOMPUTE_CHEAP && node->kind == OP_BATCHNORM &&
                           b->has_gradient[i] && b->y[i].space == SPACE_TEMP &&
                           !b->is_rebuilt[node->inputs[0]];
    }
}

static void keep_unless_rebuilt(struct build *b, uint32_t node)
{
    if (!b->is_rebuilt[node]) {
        keep(&b->y[node]);
    }
}

/* What backward reads stays in the slot. */
static void find_backward_uses(struct build *b)
{
    for (uint32_t i = b->first; i < b->last; i++) {
        const struct node *node = &b->graph->nodes[i];

        if (!b->has_gradient[i]) {
            continue;
        }
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            if (layout_reads_x(node) & (1u << k) || b->is_rebuilt[i]) {
                keep_unless_rebuilt(b, node->inputs[k]);
            }
        }
        if (node_backward_needs(node) & NEED_Y) {
            keep_unless_rebuilt(b, i);
        }
        if (!b->is_rebuilt[i]) {
            keep(&b->kept[i]);
        }
    }
}

/* What the stage starts from stays in the slot, for the second forward. */
static void keep_entries(struct build *b)
{
    for (uint32_t i = 0; i < b->graph->n_nodes; i++) {
        bool is_entry = i < b->first || b->graph->nodes[i].kind == OP_INPUT;

        if (is_entry && b->y[i].space == SPACE_SLOT) {
            keep(&b->y[i]);
        }
    }
}

/* All blocks of the stage in one order; returns the next, NULL at the end. */
static struct block *block_at(struct build *b, uint32_t i)
{
    uint32_t n = b->graph->n_nodes;

    return i < n ? &b->y[i] : i < 2 * n ? &b->kept[i - n] : i == 2 * n ? &b->labels : NULL;
}

static int pack_space(struct build *b, enum space space, uint64_t *ret_bytes,
                      struct gems_error *err)
{
    struct pack_item *items = malloc((2 * (size_t)b->graph->n_nodes + 1) * sizeof *items);
    struct block *block;
    uint32_t n = 0;
    int status;

    if (!items) {
        return gems_error_set(err, GEMS_E_NOMEM, "places of stage %u: no memory", b->stage);
    }
    for (uint32_t i = 0; (block = block_at(b, i)); i++) {
        if (block->space == space && block->item.bytes) {
            items[n++] = block->item;
        }
    }
    status = pack_intervals(items, n, LAYOUT_ALIGN, ret_bytes, err);
    n = 0;
    for (uint32_t i = 0; status == GEMS_OK && (block = block_at(b, i)); i++) {
        if (block->space == space && block->item.bytes) {
            block->item.offset = items[n++].offset;
        }
    }
    free(items);
    return status;
}

static struct place place_of(const struct block *block)
{
    return block->item.bytes ? (struct place){ block->space, block->item.offset }
                             : (struct place){ SPACE_NONE, 0 };
}

static int emit_forward(struct build *b, struct gems_error *err)
{
    struct layout *layout = b->layout;

    layout->forward = calloc(b->last - b->first + 1, sizeof *layout->forward);
    if (!layout->forward) {
        return gems_error_set(err, GEMS_E_NOMEM, "steps of stage %u: no memory", b->stage);
    }
    for (uint32_t i = b->first; i < b->last; i++) {
        const struct node *node = &b->graph->nodes[i];
        struct layout_step *step = &layout->forward[layout->n_forward];
        uint64_t scratch = b->facts->ops[i].scratch_bytes;

        layout->scratch_bytes = scratch > layout->scratch_bytes ? scratch : layout->scratch_bytes;
        if (node->kind == OP_INPUT) {
            layout->images = place_of(&b->y[i]);
            continue;
        }
        step->kind = STEP_FORWARD;
        step->node = i;
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            step->x[k] = place_of(&b->y[node->inputs[k]]);
        }
        step->y = place_of(&b->y[i]);
        step->kept = place_of(&b->kept[i]);
        layout->n_forward++;
    }
    layout->labels = place_of(&b->labels);
    for (uint32_t i = 0; i < layout->n_in; i++) {
        layout->in[i].act = place_of(&b->y[b->plan->edges[layout->in[i].edge].node]);
    }
    for (uint32_t i = 0; i < layout->n_out; i++) {
        const struct plan_edge *edge = &b->plan->edges[layout->out[i].edge];

        if (edge->from_stage == b->stage) {
            layout->out[i].act = place_of(&b->y[edge->node]);
        }
    }
    return GEMS_OK;
}

/* Items of the blocks that stay in TEMP from a second forward to backward. */
static void list_items(const struct build *b, const struct block *blocks, struct pack_item *items)
{
    for (uint32_t i = b->first; i < b->last; i++) {
        if (b->recompute == RECOMPUTE_ALL && blocks[i].space == SPACE_TEMP) {
            items[i] = blocks[i].item;
        }
    }
}

static void take_offsets(struct build *b, struct block *blocks, const struct pack_item *items)
{
    for (uint32_t i = b->first; i < b->last; i++) {
        if (items[i].bytes) {
            blocks[i].item.offset = items[i].offset;
        }
    }
}

static int emit_backward(struct build *b, struct gems_error *err)
{
    uint32_t n = b->graph->n_nodes;
    struct place *places = calloc(2 * (size_t)n, sizeof *places);
    struct pack_item *items = calloc(2 * (size_t)n, sizeof *items);
    struct layout_places forward = { places,    places + n,    items,
                                     items + n, b->is_rebuilt, b->last - b->first + 1 };
    uint64_t temp_bytes = 0;
    int status;

    if (!places || !items) {
        free(places);
        free(items);
        return gems_error_set(err, GEMS_E_NOMEM, "places of stage %u: no memory", b->stage);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (b->y[i].space == SPACE_SLOT) {
            places[i] = place_of(&b->y[i]);
        }
        if (b->kept[i].space == SPACE_SLOT) {
            places[n + i] = place_of(&b->kept[i]);
        }
    }
    list_items(b, b->y, items);
    list_items(b, b->kept, items + n);
    status = layout_backward(b->graph, b->plan, b->stage, b->facts, &forward, b->has_gradient,
                             b->layout, &temp_bytes, err);
    if (temp_bytes > b->layout->temp_bytes) {
        b->layout->temp_bytes = temp_bytes;
    }
    take_offsets(b, b->y, items);
    take_offsets(b, b->kept, items + n);
    free(places);
    free(items);
    return status;
}

static int build_layout(struct build *b, struct gems_error *err)
{
    struct layout *layout = b->layout;
    bool has_loss = b->last == b->graph->n_nodes;
    int status;

    find_forward_uses(b);
    status = make_edges(b, err);
    if (status < 0) {
        return status;
    }
    if (!b->is_eval && b->recompute == RECOMPUTE_ALL) {
        keep_entries(b);
    } else if (!b->is_eval) {
        find_rebuilt(b);
        find_backward_uses(b);
    }
    b->labels =
        (struct block){ SPACE_SLOT,
                        { has_loss ? b->facts->batch * sizeof(uint32_t) : 0, 0, TIME_END, 0 } };
    if ((status = pack_space(b, SPACE_SLOT, &layout->slot_bytes, err)) < 0 ||
        (status = pack_space(b, SPACE_TEMP, &layout->temp_bytes, err)) < 0 ||
        (!b->is_eval && (status = emit_backward(b, err)) < 0)) {
        return status;
    }
    return emit_forward(b, err);
}

int layout_make(const struct graph *graph, const struct plan *plan, uint32_t stage,
                const struct facts *facts, bool is_eval, struct layout *ret_layout,
                struct gems_error *err)
{
    struct layout layout = { 0 };
    struct build b = {
        .graph = graph,
        .plan = plan,
        .facts = facts,
        .stage = stage,
        .first = plan->stage_node[stage],
        .last = plan->stage_node[stage + 1],
        .is_eval = is_eval,
        .recompute = is_eval ? RECOMPUTE_NONE : plan->stage_recompute[stage],
        .layout = &layout,
    };
    int status = layout_gradients(graph, &b.has_gradient, err);

    if (status == GEMS_OK) {
        b.y = calloc(graph->n_nodes, sizeof *b.y);
        b.kept = calloc(graph->n_nodes, sizeof *b.kept);
        b.is_rebuilt = calloc(graph->n_nodes, sizeof *b.is_rebuilt);
        status = b.y && b.kept && b.is_rebuilt
                     ? build_layout(&b, err)
                     : gems_error_set(err, GEMS_E_NOMEM, "layout of stage %u: no memory", stage);
    }
    if (status == GEMS_OK) {
        *ret_layout = layout;
    } else {
        layout_fini(&layout);
    }
    free(b.has_gradient);
    free(b.y);
    free(b.kept);
    free(b.is_rebuilt);
    return status;
}

void layout_fini(struct layout *layout)
{
    free(layout->forward);
    free(layout->backward);
    free(layout->weight);
    free(layout->in);
    free(layout->out);
    *layout = (struct layout){ 0 };
}
