/* Gradients of a stage: where they lie and in which order they are summed.
 *
 * The nodes are visited in reverse (model/backward.h). A gradient is a *value*,
 * memory written by one step; a tensor's current value is the sum of the
 * contributions so far. Several tensors may share one value, since the gradient
 * of a summand is the gradient of the sum (GRAD_PASS). So a value counts its
 * users, and an addition works in place only in a value that nobody else will
 * read:
 *
 *     y = a + b, a read again by node 7:     backward of 7 writes dx
 *        b shares dy with a                  a: dy + dx must not go into dy
 *                                            while b still waits to read it
 *
 * Values live in GRAD_IN (received), GRAD_OUT (the finished gradient of an input
 * edge: its last contribution is written there) or TEMP, packed by lifetime. In halves,
 * the gradient of an output whose node has weights has one user more that never goes
 * away, the weight step, and lies in the slot. Tensors of the forward pass that lie in
 * TEMP for backward (recomputed or rebuilt) are values, too. */
#include "plan/layout_grad.h"

#include <stdlib.h>

#include "common/error.h"
#include "model/backward.h"
#include "plan/pack.h"
#include "plan/sched.h"

enum { NO_VALUE = UINT32_MAX };

struct value {
    struct place place; /* TEMP: offset is the value's index until all are packed */
    uint64_t bytes;
    uint32_t first, last; /* times at which it is written and last read */
    uint32_t users;       /* tensors and contributions that will still read it */
    bool is_kept;         /* in the slot, for a weight step */
    uint32_t copy;        /* of what it holds now, if it cannot lie there, or NO_VALUE */
};

struct build {
    const struct graph *graph;
    const struct facts *facts;
    const struct layout_places *places;
    struct layout *layout;
    bool is_split;
    struct layout_step **list; /* being written: layout's backward or weight */
    uint32_t *n_list, start;   /* start: time of its first step */
    struct value *values;
    uint32_t n_values;
    /* by node */
    uint32_t *current;  /* its gradient so far */
    uint32_t *finished; /* GRAD_OUT value if it is an input edge with a gradient */
    uint32_t *n_left;   /* contributions of this stage still to come */
    uint32_t *dy;       /* of its weight step */
    uint32_t *y, *kept; /* values of the forward pass in TEMP, or NO_VALUE */
};

unsigned layout_reads_x(const struct node *node)
{
    if (!(node_backward_needs(node) & NEED_X)) {
        return 0;
    }
    /* a residual passes through: only its sum was needed */
    return node->is_residual ? 1u : (1u << node->n_inputs) - 1;
}

/* To be written by the next step. */
static uint32_t add_value(struct build *b, enum space space, uint64_t offset, uint64_t bytes)
{
    uint32_t i = b->n_values++;

    b->values[i] = (struct value){ .place = { space, space == SPACE_TEMP ? i : offset },
                                   .bytes = bytes,
                                   .first = b->start + *b->n_list,
                                   .last = b->start + *b->n_list,
                                   .copy = NO_VALUE };
    return i;
}

static struct layout_step *add_step(struct build *b, enum step_kind kind, uint32_t node)
{
    struct layout_step *step = &(*b->list)[(*b->n_list)++];

    *step = (struct layout_step){ .kind = kind, .node = node };
    return step;
}

/* Place of a value that the newest step uses. */
static struct place use_value(struct build *b, uint32_t value)
{
    b->values[value].last = b->start + *b->n_list - 1;
    return b->values[value].place;
}

static struct place use_y(struct build *b, uint32_t node)
{
    return b->y[node] == NO_VALUE ? b->places->y[node] : use_value(b, b->y[node]);
}

static struct place use_kept(struct build *b, uint32_t node)
{
    return b->kept[node] == NO_VALUE ? b->places->kept[node] : use_value(b, b->kept[node]);
}

/* Makes a batch-norm's output and kept block again, unless that was done before. */
static void rebuild(struct build *b, uint32_t node)
{
    const struct op_facts *op = &b->facts->ops[node];
    struct layout_step *step;

    if (!b->places->is_rebuilt[node] || b->y[node] != NO_VALUE) {
        return;
    }
    b->y[node] = add_value(b, SPACE_TEMP, 0, op->out_bytes);
    b->kept[node] = op->kept_bytes ? add_value(b, SPACE_TEMP, 0, op->kept_bytes) : NO_VALUE;
    step = add_step(b, STEP_REBUILD, node);
    step->x[0] = use_y(b, b->graph->nodes[node].inputs[0]);
    step->y = use_y(b, node);
    step->kept = use_kept(b, node);
}

/* All that the backward of a node reads of the forward pass. */
static void rebuild_needs(struct build *b, uint32_t index)
{
    const struct node *node = &b->graph->nodes[index];

    for (uint32_t k = 0; k < node->n_inputs; k++) {
        if (layout_reads_x(node) & (1u << k)) {
            rebuild(b, node->inputs[k]);
        }
    }
    rebuild(b, index);
}

static void read_needs(struct build *b, struct layout_step *step)
{
    const struct node *node = &b->graph->nodes[step->node];

    for (uint32_t k = 0; k < node->n_inputs; k++) {
        if (layout_reads_x(node) & (1u << k)) {
            step->x[k] = use_y(b, node->inputs[k]);
        }
    }
    if (node_backward_needs(node) & NEED_Y) {
        step->y = use_y(b, step->node);
    }
    step->kept = use_kept(b, step->node);
}

/* Is the next contribution to this tensor the last one, and the tensor an input edge? */
static bool is_finishing(const struct build *b, uint32_t tensor)
{
    return b->finished[tensor] != NO_VALUE && b->n_left[tensor] == 1;
}

/* Value that the operator writes as the gradient of a tensor it reads. */
static uint32_t value_to_write(struct build *b, const struct node *node, uint32_t tensor,
                               uint32_t dy)
{
    if (b->current[tensor] == NO_VALUE && is_finishing(b, tensor)) {
        return b->finished[tensor];
    }
    /* element by element, so over dy if nobody else waits for it */
    if ((node->kind == OP_RELU || node->kind == OP_ADD) && dy != NO_VALUE &&
        b->values[dy].users == 1) {
        b->values[dy].copy = NO_VALUE;
        return dy;
    }
    return add_value(b, SPACE_TEMP, 0, b->facts->ops[tensor].out_bytes);
}

/* Runs the operator if it has to; ret_values[k] is the contribution to input k. */
static void visit_operator(struct build *b, const struct backward_step *visit, uint32_t dy,
                           uint32_t ret_values[MODEL_MAX_INPUTS])
{
    const struct node *node = &b->graph->nodes[visit->node];
    uint32_t written[MODEL_MAX_INPUTS];
    bool is_run = visit->has_weights && !b->is_split;
    struct layout_step *step;

    for (uint32_t k = 0; k < node->n_inputs; k++) {
        is_run = is_run || visit->how[k] == GRAD_WRITE;
    }
    if (is_run) {
        rebuild_needs(b, visit->node);
    }
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        bool is_shared = node->kind == OP_ADD && k > 0 && visit->how[0] == GRAD_WRITE;

        written[k] = NO_VALUE;
        ret_values[k] = dy;
        if (visit->how[k] == GRAD_WRITE && is_shared) {
            ret_values[k] = ret_values[0];
        } else if (visit->how[k] == GRAD_WRITE) {
            ret_values[k] = written[k] = value_to_write(b, node, node->inputs[k], dy);
        }
    }
    if (!is_run) {
        return;
    }
    step = add_step(b, b->is_split ? STEP_BACKWARD_INPUT : STEP_BACKWARD, visit->node);
    read_needs(b, step);
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        if (written[k] != NO_VALUE) {
            step->dx[k] = use_value(b, written[k]);
        }
    }
    step->dy = dy == NO_VALUE ? (struct place){ 0 } : use_value(b, dy);
}

/* current[tensor] = current[tensor] + value, in a place that harms nobody. */
static void add_up(struct build *b, uint32_t tensor, uint32_t value)
{
    uint32_t sum = b->current[tensor], to;
    struct layout_step *step;

    b->values[sum].users--;
    if (is_finishing(b, tensor)) {
        to = b->finished[tensor];
    } else if (!b->values[sum].users) {
        to = sum;
    } else if (!b->values[value].users) {
        to = value;
    } else {
        to = add_value(b, SPACE_TEMP, 0, b->facts->ops[tensor].out_bytes);
    }
    b->values[to].copy = NO_VALUE; /* it holds another sum now */
    step = add_step(b, STEP_ADD, tensor);
    step->x[0] = use_value(b, sum);
    step->x[1] = use_value(b, value);
    step->dx[0] = use_value(b, to);
    b->values[to].users++;
    b->current[tensor] = to;
}

/* The first contribution of the stage: the tensor takes the value as its own. */
static void take_value(struct build *b, uint32_t tensor, uint32_t value)
{
    uint32_t to = is_finishing(b, tensor) ? b->finished[tensor] : value;

    if (to != value) {
        struct layout_step *step = add_step(b, STEP_COPY, tensor);

        step->x[0] = use_value(b, value);
        step->dx[0] = use_value(b, to);
    }
    b->values[to].users++;
    b->current[tensor] = to;
}

/* The gradient stays for the weight step: in the slot, where nobody writes over it. */
static void keep_gradient(struct build *b, uint32_t node, uint32_t dy)
{
    struct layout_step *step;

    if (b->values[dy].place.space != SPACE_TEMP && b->values[dy].copy == NO_VALUE) {
        uint32_t copy = add_value(b, SPACE_TEMP, 0, b->values[dy].bytes);

        step = add_step(b, STEP_COPY, node);
        step->x[0] = use_value(b, dy);
        step->dx[0] = use_value(b, copy);
        b->values[dy].copy = copy;
    }
    dy = b->values[dy].copy == NO_VALUE ? dy : b->values[dy].copy;
    b->values[dy].users++;
    b->values[dy].is_kept = true;
    b->dy[node] = dy;
}

static int visit_node(struct build *b, const struct backward_step *visit, struct gems_error *err)
{
    const struct node *node = &b->graph->nodes[visit->node];
    uint32_t dy = b->current[visit->node], values[MODEL_MAX_INPUTS];

    if (dy == NO_VALUE && node->kind != OP_LOSS) {
        return gems_error_set(err, GEMS_E_INTERNAL, "node %s: no gradient reaches it", node->name);
    }
    if (b->is_split && visit->has_weights) {
        keep_gradient(b, visit->node, dy);
    }
    visit_operator(b, visit, dy, values);
    if (dy != NO_VALUE) {
        b->values[dy].users--;
    }
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        if (visit->how[k] != GRAD_NONE) {
            b->values[values[k]].users++; /* pending */
        }
    }
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        uint32_t tensor = node->inputs[k];

        if (visit->how[k] == GRAD_NONE) {
            continue;
        }
        if (visit->is_first[k] != (b->current[tensor] == NO_VALUE)) {
            return gems_error_set(err, GEMS_E_INTERNAL, "node %s: gradient of %s out of order",
                                  node->name, b->graph->nodes[tensor].name);
        }
        b->values[values[k]].users--;
        if (b->current[tensor] == NO_VALUE) {
            take_value(b, tensor, values[k]);
        } else {
            add_up(b, tensor, values[k]);
        }
        b->n_left[tensor]--;
    }
    return GEMS_OK;
}

/* Gradients that come in from later stages, and where those of input edges go. */
static void start_edges(struct build *b, const struct plan *plan, uint32_t stage,
                        const bool *has_gradient)
{
    struct layout *layout = b->layout;

    for (uint32_t i = 0; i < layout->n_out; i++) {
        struct layout_edge *out = &layout->out[i];
        uint32_t node = plan->edges[out->edge].node, value;

        if (has_gradient[node] && plan_grad_stage(plan, out->edge) == stage) {
            value = add_value(b, SPACE_GRAD_IN, layout->grad_in_bytes, out->bytes);
            b->values[value].users = 1;
            b->current[node] = value;
            out->grad = b->values[value].place;
            layout->grad_in_bytes += pack_round(out->bytes, LAYOUT_ALIGN);
        }
    }
    for (uint32_t i = 0; i < layout->n_in; i++) {
        struct layout_edge *in = &layout->in[i];
        uint32_t node = plan->edges[in->edge].node;

        if (has_gradient[node]) {
            b->finished[node] = add_value(b, SPACE_GRAD_OUT, layout->grad_out_bytes, in->bytes);
            in->grad = b->values[b->finished[node]].place;
            layout->grad_out_bytes += pack_round(in->bytes, LAYOUT_ALIGN);
        }
    }
}

/* The second half: weight gradients in the order in which the first half met them. */
static void visit_weights(struct build *b, const struct backward_step *visits, uint32_t n)
{
    b->start += b->layout->n_backward;
    b->list = &b->layout->weight;
    b->n_list = &b->layout->n_weight;
    for (uint32_t i = 0; i < b->graph->n_nodes; i++) {
        if (b->places->is_rebuilt[i]) {
            b->y[i] = b->kept[i] = NO_VALUE; /* TEMP is lost between the halves */
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        struct layout_step *step;

        if (visits[i].has_weights) {
            rebuild_needs(b, visits[i].node);
            step = add_step(b, STEP_BACKWARD_WEIGHT, visits[i].node);
            read_needs(b, step);
            step->dy = use_value(b, b->dy[visits[i].node]);
        }
    }
}

static void patch(const struct build *b, const struct pack_item *items, struct place *place)
{
    if (place->space == SPACE_TEMP) {
        const struct value *value = &b->values[place->offset];

        *place =
            (struct place){ value->is_kept ? SPACE_SLOT : SPACE_TEMP, items[place->offset].offset };
    }
}

static void patch_steps(const struct build *b, const struct pack_item *items,
                        struct layout_step *steps, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < MODEL_MAX_INPUTS; k++) {
            patch(b, items, &steps[i].x[k]);
            patch(b, items, &steps[i].dx[k]);
        }
        patch(b, items, &steps[i].dy);
        patch(b, items, &steps[i].y);
        patch(b, items, &steps[i].kept);
    }
}

/* Packs the values in TEMP by lifetime, those for the weight steps behind each other in
 * the slot, and writes their offsets into the steps. */
static int pack_values(struct build *b, uint64_t *ret_temp_bytes, struct gems_error *err)
{
    struct pack_item *items = calloc(b->n_values + 1, sizeof *items);
    int status;

    if (!items) {
        return gems_error_set(err, GEMS_E_NOMEM, "places of gradients: no memory");
    }
    for (uint32_t i = 0; i < b->n_values; i++) {
        const struct value *value = &b->values[i];
        bool is_temp = value->place.space == SPACE_TEMP && !value->is_kept;

        items[i] = (struct pack_item){ is_temp ? value->bytes : 0, value->first, value->last, 0 };
    }
    status = pack_intervals(items, b->n_values, LAYOUT_ALIGN, ret_temp_bytes, err);
    for (uint32_t i = 0; status == GEMS_OK && i < b->n_values; i++) {
        if (b->values[i].is_kept) {
            items[i].offset = b->layout->slot_bytes;
            b->layout->slot_bytes += pack_round(b->values[i].bytes, LAYOUT_ALIGN);
        }
    }
    if (status == GEMS_OK) {
        patch_steps(b, items, b->layout->backward, b->layout->n_backward);
        patch_steps(b, items, b->layout->weight, b->layout->n_weight);
    }
    for (uint32_t i = 0; status == GEMS_OK && i < b->graph->n_nodes; i++) {
        if (b->places->y_item[i].bytes) {
            b->places->y_item[i].offset = items[b->y[i]].offset;
        }
        if (b->places->kept_item[i].bytes) {
            b->places->kept_item[i].offset = items[b->kept[i]].offset;
        }
    }
    free(items);
    return status;
}

/* Tensors of the forward pass in TEMP, with their times in it. */
static void start_items(struct build *b, const struct pack_item *items, uint32_t *ret_values)
{
    for (uint32_t i = 0; i < b->graph->n_nodes; i++) {
        ret_values[i] = NO_VALUE;
        if (items[i].bytes) {
            ret_values[i] = add_value(b, SPACE_TEMP, 0, items[i].bytes);
            b->values[ret_values[i]].first = items[i].first;
            b->values[ret_values[i]].last = items[i].last;
        }
    }
}

static int build_init(struct build *b, uint32_t n_visits, struct gems_error *err)
{
    uint32_t n = b->graph->n_nodes;
    size_t n_values = (size_t)n_visits * (4 + 2 * MODEL_MAX_INPUTS) + 6 * (size_t)n;

    /* a visit rebuilds up to all it reads, copies its gradient, runs, and adds */
    b->layout->backward =
        calloc((size_t)n_visits * (2 + MODEL_MAX_INPUTS) + n + 1, sizeof *b->layout->backward);
    b->layout->weight = calloc((size_t)n_visits + n + 1, sizeof *b->layout->weight);
    b->values = calloc(n_values + b->layout->n_in + b->layout->n_out + 1, sizeof *b->values);
    b->current = malloc(5 * (size_t)n * sizeof *b->current);
    b->n_left = calloc(n, sizeof *b->n_left);
    if (!b->layout->backward || !b->layout->weight || !b->values || !b->current || !b->n_left) {
        return gems_error_set(err, GEMS_E_NOMEM, "places of gradients: no memory");
    }
    b->finished = b->current + n;
    b->dy = b->finished + n;
    b->y = b->dy + n;
    b->kept = b->y + n;
    for (uint32_t i = 0; i < n; i++) {
        b->current[i] = b->finished[i] = b->dy[i] = NO_VALUE;
    }
    b->list = &b->layout->backward;
    b->n_list = &b->layout->n_backward;
    b->start = b->places->start;
    start_items(b, b->places->y_item, b->y);
    start_items(b, b->places->kept_item, b->kept);
    return GEMS_OK;
}

int layout_backward(const struct graph *graph, const struct plan *plan, uint32_t stage,
                    const struct facts *facts, const struct layout_places *places,
                    const bool *has_gradient, struct layout *layout, uint64_t *ret_temp_bytes,
                    struct gems_error *err)
{
    const struct schedule *schedule = schedule_find(plan->schedule);
    struct build b = {
        .graph = graph,
        .facts = facts,
        .places = places,
        .layout = layout,
        .is_split = schedule && schedule->is_split,
    };
    struct backward_step *visits = NULL;
    uint32_t n_visits = 0;
    int status = backward_derive(graph, plan->stage_node[stage], plan->stage_node[stage + 1],
                                 &visits, &n_visits, err);

    if (status < 0) {
        return status;
    }
    status = build_init(&b, n_visits, err);
    if (status < 0) {
        goto out;
    }
    for (uint32_t i = 0; i < n_visits; i++) {
        const struct node *node = &graph->nodes[visits[i].node];

        for (uint32_t k = 0; k < node->n_inputs; k++) {
            b.n_left[node->inputs[k]] += visits[i].how[k] != GRAD_NONE;
        }
    }
    start_edges(&b, plan, stage, has_gradient);
    for (uint32_t i = 0; i < n_visits && status == GEMS_OK; i++) {
        status = visit_node(&b, &visits[i], err);
    }
    if (status == GEMS_OK && b.is_split) {
        visit_weights(&b, visits, n_visits);
    }
    if (status == GEMS_OK) {
        status = pack_values(&b, ret_temp_bytes, err);
    }
out:
    free(visits);
    free(b.values);
    free(b.current);
    free(b.n_left);
    return status;
}
