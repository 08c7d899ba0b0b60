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
 * edge: its last contribution is written there) or TEMP, packed by lifetime. */
#include "plan/layout_grad.h"

#include <stdlib.h>

#include "common/error.h"
#include "model/backward.h"
#include "plan/pack.h"

enum { NO_VALUE = UINT32_MAX };

struct value {
    struct place place; /* TEMP: offset is the value's index until all are packed */
    uint64_t bytes;
    uint32_t first, last; /* steps that write and read it */
    uint32_t users;       /* tensors and contributions that will still read it */
};

struct build {
    const struct graph *graph;
    const struct facts *facts;
    const struct layout_places *places;
    struct layout *layout;
    struct value *values;
    uint32_t n_values;
    /* by node */
    uint32_t *current;  /* its gradient so far */
    uint32_t *finished; /* GRAD_OUT value if it is an input edge with a gradient */
    uint32_t *n_left;   /* contributions of this stage still to come */
};

unsigned layout_reads_x(const struct node *node)
{
    if (!(node_backward_needs(node) & NEED_X)) {
        return 0;
    }
    /* a residual passes through: only its sum was needed */
    return node->is_residual ? 1u : (1u << node->n_inputs) - 1;
}

static uint32_t add_value(struct build *b, enum space space, uint64_t offset, uint64_t bytes)
{
    uint32_t i = b->n_values++;

    b->values[i] = (struct value){ .place = { space, space == SPACE_TEMP ? i : offset },
                                   .bytes = bytes,
                                   .first = b->layout->n_backward };
    return i;
}

static struct layout_step *add_step(struct build *b, enum step_kind kind, uint32_t node)
{
    struct layout_step *step = &b->layout->backward[b->layout->n_backward++];

    *step = (struct layout_step){ .kind = kind, .node = node };
    return step;
}

/* Place of a value that the newest step uses. */
static struct place use_value(struct build *b, uint32_t value)
{
    b->values[value].last = b->layout->n_backward - 1;
    return b->values[value].place;
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
    bool is_run = visit->has_weights;
    struct layout_step *step;

    for (uint32_t k = 0; k < node->n_inputs; k++) {
        bool is_shared = node->kind == OP_ADD && k > 0 && visit->how[0] == GRAD_WRITE;

        written[k] = NO_VALUE;
        ret_values[k] = dy;
        if (visit->how[k] == GRAD_WRITE && is_shared) {
            ret_values[k] = ret_values[0];
        } else if (visit->how[k] == GRAD_WRITE) {
            ret_values[k] = written[k] = value_to_write(b, node, node->inputs[k], dy);
            is_run = true;
        }
    }
    if (!is_run) {
        return;
    }
    step = add_step(b, STEP_BACKWARD, visit->node);
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        if (layout_reads_x(node) & (1u << k)) {
            step->x[k] = b->places->y[node->inputs[k]];
        }
        if (written[k] != NO_VALUE) {
            step->dx[k] = use_value(b, written[k]);
        }
    }
    if (node_backward_needs(node) & NEED_Y) {
        step->y = b->places->y[visit->node];
    }
    step->kept = b->places->kept[visit->node];
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

static int visit_node(struct build *b, const struct backward_step *visit, struct gems_error *err)
{
    const struct node *node = &b->graph->nodes[visit->node];
    uint32_t dy = b->current[visit->node], values[MODEL_MAX_INPUTS];

    if (dy == NO_VALUE && node->kind != OP_LOSS) {
        return gems_error_set(err, GEMS_E_INTERNAL, "node %s: no gradient reaches it", node->name);
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

static void patch(const struct pack_item *items, struct place *place)
{
    if (place->space == SPACE_TEMP) {
        place->offset = items[place->offset].offset;
    }
}

/* Packs the values in TEMP by lifetime and writes their offsets into the steps. */
static int pack_values(struct build *b, uint64_t *ret_temp_bytes, struct gems_error *err)
{
    struct pack_item *items = calloc(b->n_values + 1, sizeof *items);
    int status;

    if (!items) {
        return gems_error_set(err, GEMS_E_NOMEM, "places of gradients: no memory");
    }
    for (uint32_t i = 0; i < b->n_values; i++) {
        const struct value *value = &b->values[i];
        bool is_temp = value->place.space == SPACE_TEMP;

        items[i] = (struct pack_item){ is_temp ? value->bytes : 0, value->first, value->last, 0 };
    }
    status = pack_intervals(items, b->n_values, LAYOUT_ALIGN, ret_temp_bytes, err);
    for (uint32_t i = 0; status == GEMS_OK && i < b->layout->n_backward; i++) {
        struct layout_step *step = &b->layout->backward[i];

        for (uint32_t k = 0; k < MODEL_MAX_INPUTS; k++) {
            patch(items, &step->x[k]);
            patch(items, &step->dx[k]);
        }
        patch(items, &step->dy);
    }
    free(items);
    return status;
}

static int build_init(struct build *b, uint32_t n_visits, struct gems_error *err)
{
    uint32_t n = b->graph->n_nodes;

    b->layout->backward =
        calloc((size_t)n_visits * (1 + MODEL_MAX_INPUTS) + 1, sizeof *b->layout->backward);
    b->values =
        calloc((size_t)n_visits * 2 * MODEL_MAX_INPUTS + b->layout->n_in + b->layout->n_out + 1,
               sizeof *b->values);
    b->current = malloc(n * sizeof *b->current);
    b->finished = malloc(n * sizeof *b->finished);
    b->n_left = calloc(n, sizeof *b->n_left);
    if (!b->layout->backward || !b->values || !b->current || !b->finished || !b->n_left) {
        return gems_error_set(err, GEMS_E_NOMEM, "places of gradients: no memory");
    }
    for (uint32_t i = 0; i < n; i++) {
        b->current[i] = b->finished[i] = NO_VALUE;
    }
    return GEMS_OK;
}

int layout_backward(const struct graph *graph, const struct plan *plan, uint32_t stage,
                    const struct facts *facts, const struct layout_places *places,
                    const bool *has_gradient, struct layout *layout, uint64_t *ret_temp_bytes,
                    struct gems_error *err)
{
    struct build b = { .graph = graph, .facts = facts, .places = places, .layout = layout };
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
    if (status == GEMS_OK) {
        status = pack_values(&b, ret_temp_bytes, err);
    }
out:
    free(visits);
    free(b.values);
    free(b.current);
    free(b.finished);
    free(b.n_left);
    return status;
}
