#include "plan/order.h"

#include <stdlib.h>

#include "common/error.h"

/* One micro-batch on one stage of one chain. */
struct cell {
    bool is_forward_done, is_backward_done;
    uint32_t slot, n_slot_users; /* sends of its tensors, and its last pass */
    uint32_t buffer, n_unsent;   /* gradients in its buffer */
};

/* Slots of one stage of one chain. */
struct pool {
    bool *is_taken;
    uint32_t n;     /* most held at once */
    uint32_t first; /* number of its first slot on the rank */
};

struct device {
    uint32_t next, last; /* passes still to run: [next, last) of the order */
    bool *is_taken;      /* gradient buffers */
    uint32_t n_buffers, newest, n_backward;
};

struct writer {
    struct sched *s;
    struct order *order;
    uint32_t n_microbatches;
    struct cell *cells; /* by (chain * n_stages + stage) * N + micro-batch */
    struct pool *pools; /* by chain * n_stages + stage */
    struct device *devices;
    bool *taken; /* storage of both */
};

int order_add(struct order *order, const struct order_pass *pass, struct gems_error *err)
{
    if (order->n == order->capacity) {
        uint32_t capacity = order->capacity ? 2 * order->capacity : 64;
        struct order_pass *passes = realloc(order->passes, capacity * sizeof *passes);

        if (!passes) {
            return gems_error_set(err, GEMS_E_NOMEM, "order of %u passes: no memory", order->n);
        }
        order->passes = passes;
        order->capacity = capacity;
    }
    order->passes[order->n++] = *pass;
    return GEMS_OK;
}

void order_fini(struct order *order)
{
    free(order->passes);
    *order = (struct order){ 0 };
}

static uint32_t device_of(const struct sched *s, uint32_t chain, uint32_t stage)
{
    return plan_rank(s->plan, 0, chain, stage);
}

static int compare_passes(const void *a, const void *b, void *arg)
{
    const struct order_pass *x = a, *y = b;
    uint32_t x_device = device_of(arg, x->chain, x->stage);
    uint32_t y_device = device_of(arg, y->chain, y->stage);

    if (x_device != y_device) {
        return x_device < y_device ? -1 : 1;
    }
    return x->time < y->time ? -1 : x->time > y->time;
}

static int compare_turns(const void *a, const void *b)
{
    const struct order_pass *x = a, *y = b;

    return x->turn < y->turn ? -1 : x->turn > y->turn;
}

static struct cell *cell_of(const struct writer *w, const struct order_pass *pass, uint32_t stage)
{
    uint32_t pool = pass->chain * w->s->plan->n_stages + stage;

    return &w->cells[(size_t)pool * w->n_microbatches + pass->microbatch];
}

static bool has_gradient(const struct writer *w, uint32_t edge)
{
    return w->s->input->has_gradient[w->s->plan->edges[edge].node];
}

/* Are the passes done that this one reads from? */
static bool is_ready(const struct writer *w, const struct order_pass *pass)
{
    const struct plan *plan = w->s->plan;
    const struct cell *own = cell_of(w, pass, pass->stage);

    if (pass->kind == ORDER_WEIGHT) {
        return own->is_backward_done;
    }
    for (uint32_t e = 0; e < plan->n_edges; e++) {
        const struct plan_edge *edge = &plan->edges[e];

        if (pass->kind == ORDER_FORWARD && edge->to_stage == pass->stage &&
            !cell_of(w, pass, edge->from_stage)->is_forward_done) {
            return false;
        }
        if (pass->kind != ORDER_FORWARD && has_gradient(w, e) &&
            plan_grad_stage(plan, e) == pass->stage &&
            !cell_of(w, pass, edge->to_stage)->is_backward_done) {
            return false;
        }
    }
    return pass->kind == ORDER_FORWARD || own->is_forward_done;
}

static void leave_slot(struct writer *w, uint32_t chain, uint32_t stage, struct cell *cell)
{
    if (--cell->n_slot_users == 0) {
        w->pools[chain * w->s->plan->n_stages + stage].is_taken[cell->slot] = false;
    }
}

static void run_forward(struct writer *w, const struct order_pass *pass)
{
    const struct plan *plan = w->s->plan;
    struct pool *pool = &w->pools[pass->chain * plan->n_stages + pass->stage];
    struct cell *own = cell_of(w, pass, pass->stage);

    own->is_forward_done = true;
    while (pool->is_taken[own->slot]) {
        own->slot++;
    }
    pool->is_taken[own->slot] = true;
    pool->n = own->slot >= pool->n ? own->slot + 1 : pool->n;
    own->n_slot_users = 1;
    for (uint32_t e = 0; e < plan->n_edges; e++) {
        const struct plan_edge *edge = &plan->edges[e];

        own->n_slot_users += edge->from_stage == pass->stage;
        if (edge->to_stage == pass->stage) {
            leave_slot(w, pass->chain, edge->from_stage, cell_of(w, pass, edge->from_stage));
        }
    }
}

/* The next buffer that is free, of at least two, so that one may be sent while the
 * other is written. */
static uint32_t take_buffer(struct device *device)
{
    device->n_buffers = device->n_buffers < 2 ? 2 : device->n_buffers;
    for (uint32_t k = 1; k <= device->n_buffers; k++) {
        uint32_t buffer = (device->newest + k) % device->n_buffers;

        if (!device->is_taken[buffer]) {
            device->newest = buffer;
            return buffer;
        }
    }
    device->newest = device->n_buffers++;
    return device->newest;
}

static void run_backward(struct writer *w, struct order_pass *pass)
{
    const struct plan *plan = w->s->plan;
    struct device *device = &w->devices[device_of(w->s, pass->chain, pass->stage)];
    struct cell *own = cell_of(w, pass, pass->stage);

    own->is_backward_done = true;
    for (uint32_t e = 0; e < plan->n_edges; e++) {
        const struct plan_edge *edge = &plan->edges[e];
        struct cell *sender = cell_of(w, pass, edge->to_stage);

        own->n_unsent += edge->to_stage == pass->stage && has_gradient(w, e);
        if (has_gradient(w, e) && plan_grad_stage(plan, e) == pass->stage &&
            --sender->n_unsent == 0) {
            w->devices[device_of(w->s, pass->chain, edge->to_stage)].is_taken[sender->buffer] =
                false;
        }
    }
    pass->grad_in = device->n_backward++ % 2;
    if (own->n_unsent) {
        own->buffer = take_buffer(device);
        device->is_taken[own->buffer] = true;
    }
    pass->grad_out = own->buffer;
}

static void run_pass(struct writer *w, struct order_pass *pass)
{
    struct cell *own = cell_of(w, pass, pass->stage);

    if (pass->kind == ORDER_FORWARD) {
        run_forward(w, pass);
    } else if (pass->kind != ORDER_WEIGHT) {
        run_backward(w, pass);
    }
    pass->slot = own->slot;
    if (pass->kind == ORDER_BACKWARD || pass->kind == ORDER_WEIGHT) {
        leave_slot(w, pass->chain, pass->stage, own);
    }
}

/* Rounds in which every device runs one pass if it can. */
static int run_all(struct writer *w)
{
    uint32_t turn = 0, n_run;

    do {
        n_run = turn;
        for (uint32_t d = 0; d < w->s->width; d++) {
            struct device *device = &w->devices[d];
            struct order_pass *pass = &w->order->passes[device->next];

            if (device->next < device->last && is_ready(w, pass)) {
                run_pass(w, pass);
                pass->turn = turn++;
                device->next++;
            }
        }
    } while (turn > n_run);
    return turn == w->order->n
               ? GEMS_OK
               : gems_error_set(w->s->err, GEMS_E_INTERNAL, "order of %s: deadlock after %u of %u",
                                schedule_name(w->s->plan->schedule), turn, w->order->n);
}

/* Pools of a rank one behind the other, by chain and stage. */
static void number_pools(struct writer *w)
{
    const struct plan *plan = w->s->plan;

    for (uint32_t i = 0; i < plan->n_chains * plan->n_stages; i++) {
        uint32_t device = device_of(w->s, i / plan->n_stages, i % plan->n_stages);

        for (uint32_t k = 0; k < i; k++) {
            if (device_of(w->s, k / plan->n_stages, k % plan->n_stages) == device) {
                w->pools[i].first += w->pools[k].n;
            }
        }
    }
}

static int write_pass(const struct writer *w, const struct order_pass *pass)
{
    struct sched *s = w->s;
    uint32_t chain = pass->chain, stage = pass->stage, microbatch = s->first + pass->microbatch;
    uint32_t slot = w->pools[chain * s->plan->n_stages + stage].first + pass->slot;

    switch (pass->kind) {
    case ORDER_FORWARD:
        return sched_forward(s, chain, stage, microbatch, slot);
    case ORDER_BACKWARD:
        return sched_backward(s, chain, stage, microbatch, slot, pass->grad_in, pass->grad_out);
    case ORDER_INPUT:
        return sched_backward_input(s, chain, stage, microbatch, slot, pass->grad_in,
                                    pass->grad_out);
    default:
        return sched_backward_weight(s, chain, stage, microbatch, slot);
    }
}

static int start(struct writer *w)
{
    const struct sched *s = w->s;
    size_t n = w->n_microbatches, n_pools = (size_t)s->plan->n_chains * s->plan->n_stages;
    size_t n_buffers = n_pools * n + 2; /* of one device, at most */

    w->cells = calloc(n_pools * n + 1, sizeof *w->cells);
    w->pools = calloc(n_pools, sizeof *w->pools);
    w->devices = calloc(s->width, sizeof *w->devices);
    w->taken = calloc(n_pools * (n + 1) + s->width * n_buffers, sizeof *w->taken);
    if (!w->cells || !w->pools || !w->devices || !w->taken) {
        return gems_error_set(s->err, GEMS_E_NOMEM, "order of %u passes: no memory", w->order->n);
    }
    for (size_t i = 0; i < n_pools; i++) {
        w->pools[i].is_taken = w->taken + i * (n + 1);
    }
    for (uint32_t d = 0; d < s->width; d++) {
        w->devices[d].is_taken = w->taken + n_pools * (n + 1) + d * n_buffers;
    }
    if (w->order->n > 0) { /* an evaluation may leave a chain without passes */
        qsort_r(w->order->passes, w->order->n, sizeof *w->order->passes, compare_passes, w->s);
    }
    for (uint32_t i = 0; i < w->order->n; i++) {
        const struct order_pass *pass = &w->order->passes[i];
        struct device *device = &w->devices[device_of(s, pass->chain, pass->stage)];

        device->next = device->last ? device->next : i;
        device->last = i + 1;
    }
    return GEMS_OK;
}

int order_write(struct order *order, struct sched *s)
{
    struct writer w = { .s = s, .order = order, .n_microbatches = s->last - s->first };
    int status = start(&w);

    if (status == GEMS_OK && order->n) {
        status = run_all(&w);
    }
    if (status == GEMS_OK && order->n) {
        qsort(order->passes, order->n, sizeof *order->passes, compare_turns);
        number_pools(&w);
    }
    for (uint32_t i = 0; i < order->n && status == GEMS_OK; i++) {
        status = write_pass(&w, &order->passes[i]);
    }
    free(w.cells);
    free(w.pools);
    free(w.devices);
    free(w.taken);
    return status;
}
