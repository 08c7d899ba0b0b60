#include "tests/lib/op_trial.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/rng.h"

static void *zalloc(uint64_t bytes)
{
    uint64_t size = (bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, size);

    ck_assert_ptr_nonnull(memory);
    return memset(memory, 0, size);
}

static uint32_t add_node(struct graph *graph, const struct node *node)
{
    struct gems_error err = { 0 };
    int i = graph_add(graph, node, &err);

    ck_assert_msg(i >= 0, "%s", err.text);
    return (uint32_t)i;
}

/* Gives tensors of c x h x w with a gradient: a 1x1 convolution of the images. */
static uint32_t add_source(struct graph *graph, const char *name, uint32_t k)
{
    struct node node = { .kind = OP_CONV, .n_inputs = 1, .k = k, .r = 1, .s = 1 };

    snprintf(node.name, sizeof node.name, "%s", name);
    node.stride_h = node.stride_w = 1;
    return add_node(graph, &node);
}

/* The same for a flat vector. */
static uint32_t add_flat_source(struct graph *graph, uint32_t x, uint32_t k)
{
    struct node flatten = { .kind = OP_FLATTEN, .name = "flatten", .n_inputs = 1, .inputs = { x } };
    struct node dense = { .kind = OP_DENSE, .name = "source", .n_inputs = 1, .k = k };

    dense.inputs[0] = add_node(graph, &flatten);
    return add_node(graph, &dense);
}

static uint32_t below(uint32_t pad, uint32_t window)
{
    return pad < window ? pad : window ? window - 1 : 0;
}

static void set_pads(struct node *node, uint32_t pad)
{
    node->pad_h = below(pad, node->r);
    node->pad_w = below(pad, node->s);
}

/* The residual of a convolution has the shape of its output: another one of the
 * same geometry gives it. */
static uint32_t add_residual_source(struct graph *graph, const struct trial_case *c, uint32_t x)
{
    struct node node = { .kind = OP_CONV, .name = "residual", .n_inputs = 1, .inputs = { x } };

    node.k = c->k;
    node.r = c->r;
    node.s = c->s;
    node.stride_h = node.stride_w = c->stride;
    set_pads(&node, c->pad);
    return add_node(graph, &node);
}

static struct node node_of(const struct trial_case *c)
{
    struct node node = { .kind = c->kind, .name = "tested", .n_inputs = 1, .k = c->k, .r = c->r,
                         .s = c->s, .has_bias = c->has_bias, .is_relu = c->is_relu,
                         .is_residual = c->is_residual, .eps = 1e-5, .decay = 0.9, .rate = c->rate };

    node.stride_h = node.stride_w = c->stride;
    set_pads(&node, c->pad);
    return node;
}

static void build_graph(struct trial *t, const struct trial_case *c)
{
    bool is_flat = c->kind == OP_DENSE || c->kind == OP_LOSS ||
                   (c->kind == OP_DROPOUT && c->h == 1 && c->w == 1);
    struct node input = { .kind = OP_INPUT, .name = "images" };
    struct node node = node_of(c);
    uint32_t source;

    graph_init(&t->graph, "trial", c->c);
    input.out = (struct shape){ .c = c->is_image ? c->c : 3, .h = c->h, .w = c->w };
    source = add_node(&t->graph, &input);
    if (is_flat) {
        source = add_flat_source(&t->graph, source, c->c);
    } else if (!c->is_image) {
        source = add_source(&t->graph, "source", c->c);
    }
    node.inputs[0] = source;
    if (c->kind == OP_ADD) {
        node.n_inputs = 2;
        node.inputs[1] = add_source(&t->graph, "source1", c->c);
    }
    for (uint32_t i = 0; i < MODEL_MAX_INPUTS - 1 && c->more[i]; i++) {
        char name[16];

        snprintf(name, sizeof name, "source%u", i + 1);
        node.inputs[node.n_inputs++] = add_source(&t->graph, name, c->more[i]);
    }
    if (c->is_residual) {
        node.n_inputs = 2;
        node.inputs[1] = add_residual_source(&t->graph, c, source);
    }
    t->node = add_node(&t->graph, &node);
}

static uint64_t input_count(const struct trial *t, uint32_t i)
{
    uint32_t input = t->graph.nodes[t->node].inputs[i];

    return t->batch * shape_count(&t->graph.nodes[input].out);
}

void trial_init(struct trial *t, const struct trial_case *c)
{
    const struct node *node;

    memset(t, 0, sizeof *t);
    t->mode = BE_TRAIN;
    t->batch = c->batch;
    t->stat_weight = 0.1;
    t->grad_scale = 1.0 / c->batch;
    t->n_weight_runs = 1;
    t->draw = (struct be_draw){ 11, 3, 40 };
    build_graph(t, c);
    node = &t->graph.nodes[t->node];
    t->n_inputs = node->n_inputs;
    t->n_params = node_params(&t->graph, t->node, t->params);
    t->n_y = t->batch * shape_count(&node->out);
    t->n_x = t->batch * shape_count(&t->graph.nodes[node->inputs[0]].out);
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        uint64_t n = input_count(t, i);

        t->x[i] = zalloc(n * sizeof(double));
        t->dx[i] = zalloc(n * sizeof(double));
    }
    t->dy = zalloc(t->n_y * sizeof(double));
    t->y = zalloc(t->n_y * sizeof(double));
    t->labels = zalloc(t->batch * sizeof(uint32_t));
    for (uint32_t p = 0; p < t->n_params; p++) {
        t->values[p] = zalloc(param_count(&t->params[p]) * sizeof(double));
        t->grads[p] = zalloc(param_count(&t->params[p]) * sizeof(double));
    }
    trial_fill(t, 1);
}

void trial_fini(struct trial *t)
{
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        free(t->x[i]);
        free(t->dx[i]);
    }
    for (uint32_t p = 0; p < t->n_params; p++) {
        free(t->values[p]);
        free(t->grads[p]);
    }
    free(t->dy);
    free(t->y);
    free(t->labels);
    graph_fini(&t->graph);
}

/* Values that float holds exactly, so that every back end gets the same. */
static void fill(double *values, uint64_t n, uint64_t seed, uint64_t stream)
{
    for (uint64_t i = 0; i < n; i++) {
        values[i] = (double)(float)rng_normal(seed, stream, i);
    }
}

void trial_fill(struct trial *t, uint64_t seed)
{
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        fill(t->x[i], input_count(t, i), seed, i);
    }
    fill(t->dy, t->n_y, seed, 9);
    for (uint32_t p = 0; p < t->n_params; p++) {
        fill(t->values[p], param_count(&t->params[p]), seed, 10 + p);
        for (uint64_t i = 0; t->params[p].role == PARAM_VARIANCE && i < param_count(&t->params[p]);
             i++) {
            t->values[p][i] = 0.5 + t->values[p][i] * t->values[p][i];
        }
    }
    for (uint32_t n = 0; n < t->batch; n++) {
        t->labels[n] = (uint32_t)rng_below(seed, 3, n, t->graph.n_classes);
    }
}

/* ---- one run on a device ---- */

struct run {
    struct trial *t;
    const struct backend *backend;
    enum be_type type;
    struct be_device *dev;
    struct be_op *op, *sources[MODEL_MAX_INPUTS]; /* sources: for the layout of the inputs */
    struct be_args args;
    void *x[MODEL_MAX_INPUTS], *y, *dy, *dx[MODEL_MAX_INPUTS], *kept, *scratch, *params, *params2, *grads, *plain;
    uint64_t x_bytes[MODEL_MAX_INPUTS];
};

static void *to_type(struct run *r, const double *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (r->type == BE_F64) {
            ((double *)r->plain)[i] = values[i];
        } else {
            ((float *)r->plain)[i] = (float)values[i];
        }
    }
    return r->plain;
}

static void from_type(const struct run *r, double *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        values[i] = r->type == BE_F64 ? ((double *)r->plain)[i] : (double)((float *)r->plain)[i];
    }
}

static void must(int st, const struct gems_error *err)
{
    ck_assert_msg(st == GEMS_OK, "%s", err->text);
}

static struct be_op *make_op(struct run *r, uint32_t node)
{
    struct be_op_desc desc = { &r->t->graph, node, r->t->batch, r->t->mode };
    struct be_op_info info = { 0 };
    struct gems_error err = { 0 };
    struct be_op *op = NULL;

    must(r->backend->ops->describe(r->dev, &desc, &info, &err), &err);
    must(r->backend->ops->create(r->dev, &desc, &op, &err), &err);
    ck_assert_msg(memcmp(&info, r->backend->ops->info(op), sizeof info) == 0,
                  "describe and create say different sizes");
    return op;
}

static uint64_t largest_tensor(const struct trial *t)
{
    uint64_t largest = t->n_y;

    for (uint32_t i = 0; i < t->n_inputs; i++) {
        largest = input_count(t, i) > largest ? input_count(t, i) : largest;
    }
    for (uint32_t p = 0; p < t->n_params; p++) {
        uint64_t n = param_count(&t->params[p]);

        largest = n > largest ? n : largest;
    }
    return largest;
}

static void import_inputs(struct run *r)
{
    const struct be_ops *ops = r->backend->ops;
    const struct node *node = &r->t->graph.nodes[r->t->node];
    struct gems_error err = { 0 };

    for (uint32_t i = 0; i < r->t->n_inputs; i++) {
        r->sources[i] = make_op(r, node->inputs[i]);
        r->x_bytes[i] = ops->info(r->sources[i])->out_bytes;
        r->x[i] = zalloc(r->x_bytes[i]);
        r->dx[i] = zalloc(r->x_bytes[i]);
        must(ops->tensor_import(r->sources[i], to_type(r, r->t->x[i], input_count(r->t, i)),
                                r->x[i], &err),
             &err);
    }
    for (uint32_t p = 0; p < r->t->n_params; p++) {
        must(ops->param_import(r->op, p,
                               to_type(r, r->t->values[p], param_count(&r->t->params[p])),
                               r->params, &err),
             &err);
    }
    must(ops->derive(r->op, r->params, r->params2, &err), &err);
    if (node->kind != OP_LOSS) {
        must(ops->tensor_import(r->op, to_type(r, r->t->dy, r->t->n_y), r->dy, &err), &err);
    }
}

static void run_init(struct run *r, struct trial *t, const struct backend *backend,
                     enum be_type type, uint32_t threads)
{
    const struct be_op_info *info;
    struct gems_error err = { 0 };

    memset(r, 0, sizeof *r);
    r->t = t;
    r->backend = backend;
    r->type = type;
    must(backend->device->open(0, threads, type, &r->dev, &err), &err);
    r->plain = zalloc(largest_tensor(t) * sizeof(double));
    r->op = make_op(r, t->node);
    info = backend->ops->info(r->op);
    r->y = zalloc(info->out_bytes);
    r->dy = zalloc(info->out_bytes);
    r->kept = zalloc(info->kept_bytes);
    r->scratch = memset(zalloc(info->scratch_bytes), 0xff, info->scratch_bytes);
    r->params = zalloc(info->param_bytes);
    r->params2 = zalloc(info->param2_bytes);
    r->grads = memset(zalloc(info->param_bytes), 0xff, info->param_bytes);
    import_inputs(r);
    r->args = (struct be_args){ .y = r->y, .kept = t->mode == BE_TRAIN ? r->kept : NULL,
                                .dy = r->dy, .params = r->params, .params2 = r->params2,
                                .grads = r->grads, .scratch = r->scratch, .draw = t->draw, .labels = t->labels,
                                .grad_scale = t->grad_scale, .stat_weight = t->stat_weight,
                                .loss_sum = &t->loss_sum, .n_correct = &t->n_correct };
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        r->args.x[i] = r->x[i];
    }
}

static void run_fini(struct run *r)
{
    for (uint32_t i = 0; i < r->t->n_inputs; i++) {
        r->backend->ops->destroy(r->sources[i]);
        free(r->x[i]);
        free(r->dx[i]);
    }
    r->backend->ops->destroy(r->op);
    r->backend->device->close(r->dev);
    free(r->y);
    free(r->dy);
    free(r->kept);
    free(r->scratch);
    free(r->params);
    free(r->params2);
    free(r->grads);
    free(r->plain);
}

/* Exports a tensor and sees that its import gives the same bytes: so whatever
 * is not in the plain form is zero. */
static void export_tensor(struct run *r, struct be_op *op, const void *tensor, uint64_t bytes,
                          double *ret_values, uint64_t n)
{
    const struct be_ops *ops = r->backend->ops;
    void *again = zalloc(bytes);
    struct gems_error err = { 0 };

    must(ops->tensor_export(op, tensor, r->plain, &err), &err);
    must(ops->tensor_import(op, r->plain, again, &err), &err);
    r->t->has_clean_padding = r->t->has_clean_padding && memcmp(again, tensor, bytes) == 0;
    from_type(r, ret_values, n);
    free(again);
}

static void export_grads(struct run *r)
{
    const struct be_ops *ops = r->backend->ops;
    uint64_t bytes = ops->info(r->op)->param_bytes;
    void *again = zalloc(bytes);
    struct gems_error err = { 0 };

    for (uint32_t p = 0; p < r->t->n_params; p++) {
        must(ops->param_export(r->op, p, r->grads, r->plain, &err), &err);
        must(ops->param_import(r->op, p, r->plain, again, &err), &err);
        from_type(r, r->t->grads[p], param_count(&r->t->params[p]));
    }
    r->t->has_clean_padding = r->t->has_clean_padding && memcmp(again, r->grads, bytes) == 0;
    free(again);
}

static void run_forward(struct run *r)
{
    struct gems_error err = { 0 };

    r->t->has_clean_padding = true;
    must(r->backend->ops->forward(r->op, &r->args, &err), &err);
    if (r->t->graph.nodes[r->t->node].kind != OP_LOSS) {
        export_tensor(r, r->op, r->y, r->backend->ops->info(r->op)->out_bytes, r->t->y, r->t->n_y);
    }
}

/* The images have no gradient. */
static bool has_dx(const struct run *r, uint32_t i)
{
    const struct graph *graph = &r->t->graph;

    return graph->nodes[graph->nodes[r->t->node].inputs[i]].kind != OP_INPUT;
}

static void run_backward(struct run *r)
{
    const struct node *node = &r->t->graph.nodes[r->t->node];
    const struct be_ops *ops = r->backend->ops;
    struct gems_error err = { 0 };

    for (uint32_t i = 0; i < r->t->n_inputs; i++) {
        r->args.dx[i] = has_dx(r, i) ? r->dx[i] : NULL;
    }
    /* What backward does not need is not there in a real stage. */
    if (!(node_backward_needs(node) & NEED_Y)) {
        r->args.y = NULL;
    }
    if (!(node_backward_needs(node) & NEED_X)) {
        memset(r->args.x, 0, sizeof r->args.x);
    }
    must(ops->backward_input(r->op, &r->args, &err), &err);
    for (uint32_t i = 0; r->t->n_params && i < r->t->n_weight_runs; i++) {
        r->args.grads_write = i == 0;
        must(ops->backward_weight(r->op, &r->args, &err), &err);
    }
    for (uint32_t i = 0; i < r->t->n_inputs; i++) {
        if (!has_dx(r, i)) {
            continue;
        }
        export_tensor(r, r->sources[i], r->dx[i], r->x_bytes[i], r->t->dx[i],
                      input_count(r->t, i));
    }
    export_grads(r);
}

void trial_run(struct trial *t, const struct backend *backend, enum be_type type, uint32_t threads)
{
    struct run r;

    run_init(&r, t, backend, type, threads);
    run_forward(&r);
    if (t->mode == BE_TRAIN) {
        run_backward(&r);
    }
    run_fini(&r);
}

void trial_forward(struct trial *t, const struct backend *backend, enum be_type type,
                   uint32_t threads)
{
    struct run r;

    run_init(&r, t, backend, type, threads);
    run_forward(&r);
    run_fini(&r);
}
