/* The reference back end: plain C in f32 and f64, one thread, plain layouts.
 *
 * It is the definition that other back ends are compared with: short code
 * first, speed second. A parameter block holds its tensors row-major, each
 * aligned to 64 bytes.
 */
#include "worker/backend/backend.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "worker/backend/backends.h"
#include "worker/backend/host.h"
#include "worker/backend/ref/kernels.h"

struct be_device {
    enum be_type type;
    const struct ref_kernels *kernels;
};

struct be_op {
    struct ref_geometry geometry;
    enum be_mode mode;
    uint32_t element_bytes;
    const struct ref_kernels *kernels;
    struct param params[MODEL_MAX_PARAMS];
};

enum { ALIGN = 64 };

static uint64_t align(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static uint32_t element_bytes(const struct be_device *dev)
{
    return dev->type == BE_F64 ? sizeof(double) : sizeof(float);
}

static const char *ref_kind(void)
{
    return "ref";
}

static int ref_open(uint32_t index, uint32_t threads, enum be_type type,
                    struct be_device **ret_dev, struct gems_error *err)
{
    struct be_device *dev = calloc(1, sizeof *dev);

    (void)index;
    (void)threads; /* one thread, whatever is asked for */
    if (!dev) {
        return gems_error_set(err, GEMS_E_NOMEM, "device ref: no memory");
    }
    dev->type = type;
    dev->kernels = type == BE_F64 ? &ref_kernels_f64 : &ref_kernels_f32;
    *ret_dev = dev;
    return GEMS_OK;
}

static void ref_close(struct be_device *dev)
{
    free(dev);
}

static uint64_t kept_bytes(const struct ref_geometry *g, uint64_t element)
{
    switch (g->node.kind) {
    case OP_BATCHNORM:
        return 3 * sizeof(double) * g->in.c;
    case OP_MAXPOOL:
        return sizeof(uint32_t) * g->batch * shape_count(&g->node.out);
    case OP_LOSS:
        return element * g->batch * shape_count(&g->in);
    default:
        return 0;
    }
}

/* One row of sums. */
static uint64_t scratch_bytes(const struct ref_geometry *g)
{
    uint32_t width = g->node.out.w > g->in.w ? g->node.out.w : g->in.w;

    switch (g->node.kind) {
    case OP_CONV:
        return sizeof(double) * width;
    case OP_DENSE:
        return sizeof(double) * g->in.c;
    default:
        return 0;
    }
}

static int ref_shape_op(struct be_device *dev, const struct be_op_desc *desc, struct be_op *op,
                        struct gems_error *err)
{
    struct ref_geometry *g = &op->geometry;
    struct be_op_info *info = &g->info;
    uint32_t element = element_bytes(dev);

    memset(op, 0, sizeof *op);
    g->node = desc->graph->nodes[desc->node];
    g->batch = desc->batch;
    if (desc->batch == 0) {
        return gems_error_set(err, GEMS_E_UNSUPPORTED, "%s: batch of 0 samples", g->node.name);
    }
    if (g->node.n_inputs > 0) {
        g->in = desc->graph->nodes[g->node.inputs[0]].out;
    }
    for (uint32_t i = 0; i < g->node.n_inputs; i++) {
        g->in_c[i] = desc->graph->nodes[g->node.inputs[i]].out.c;
    }
    op->mode = desc->mode;
    op->element_bytes = element;
    op->kernels = dev->kernels;
    info->n_params = node_params(desc->graph, desc->node, op->params);
    for (uint32_t p = 0; p < info->n_params; p++) {
        uint64_t bytes = align(element * param_count(&op->params[p]));

        info->params[p] =
            (struct be_param){ .offset = info->param_bytes, .elements = bytes / element };
        info->param_bytes += bytes;
    }
    if (g->node.kind != OP_LOSS) {
        info->out_bytes = align(element * g->batch * shape_count(&g->node.out));
    }
    if (op->mode == BE_TRAIN) {
        info->kept_bytes = align(kept_bytes(g, element));
    }
    info->scratch_bytes = align(scratch_bytes(g));
    return GEMS_OK;
}

static int ref_describe(struct be_device *dev, const struct be_op_desc *desc,
                        struct be_op_info *ret_info, struct gems_error *err)
{
    struct be_op op;
    int st = ref_shape_op(dev, desc, &op, err);

    if (st == GEMS_OK) {
        *ret_info = op.geometry.info;
    }
    return st;
}

static int ref_create(struct be_device *dev, const struct be_op_desc *desc, struct be_op **ret_op,
                      struct gems_error *err)
{
    struct be_op *op = malloc(sizeof *op);
    int st;

    if (!op) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory",
                              desc->graph->nodes[desc->node].name);
    }
    st = ref_shape_op(dev, desc, op, err);
    if (st < 0) {
        free(op);
        return st;
    }
    *ret_op = op;
    return GEMS_OK;
}

static void ref_destroy(struct be_op *op)
{
    free(op);
}

static const struct be_op_info *ref_info(const struct be_op *op)
{
    return &op->geometry.info;
}

static int ref_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    const struct ref_geometry *g = &op->geometry;
    ref_call_fn forward = op->kernels->ops[g->node.kind].forward;
    ref_call_fn evaluate = op->kernels->ops[g->node.kind].forward_eval;

    if (op->mode == BE_EVAL && evaluate) {
        return evaluate(g, args, err);
    }
    return forward ? forward(g, args, err) : GEMS_OK;
}

/* Zeroes what lies behind parameter p of a block. */
static void clear_tail(const struct be_op *op, uint32_t p, void *block)
{
    const struct be_param *place = &op->geometry.info.params[p];
    uint64_t used = op->element_bytes * param_count(&op->params[p]);

    memset((char *)block + place->offset + used, 0, place->elements * op->element_bytes - used);
}

static int ref_backward(struct be_op *op, ref_call_fn call, const struct be_args *args,
                        struct gems_error *err)
{
    if (op->mode == BE_EVAL) {
        return gems_error_set(err, GEMS_E_INTERNAL, "%s: backward of an evaluation operator",
                              op->geometry.node.name);
    }
    return call ? call(&op->geometry, args, err) : GEMS_OK;
}

static int ref_backward_input(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    return ref_backward(op, op->kernels->ops[op->geometry.node.kind].backward_input, args, err);
}

static int ref_backward_weight(struct be_op *op, const struct be_args *args,
                               struct gems_error *err)
{
    for (uint32_t p = 0; args->grads_write && p < op->geometry.info.n_params; p++) {
        clear_tail(op, p, args->grads);
    }
    return ref_backward(op, op->kernels->ops[op->geometry.node.kind].backward_weight, args, err);
}

/* There is no second layout. */
static int ref_derive(struct be_op *op, const void *params, void *ret_params2,
                      struct gems_error *err)
{
    (void)op;
    (void)params;
    (void)ret_params2;
    (void)err;
    return GEMS_OK;
}

static int ref_param_import(struct be_op *op, uint32_t p, const void *plain, void *block,
                            struct gems_error *err)
{
    const struct be_param *place = &op->geometry.info.params[p];
    uint64_t bytes = op->element_bytes * param_count(&op->params[p]);

    (void)err;
    memcpy((char *)block + place->offset, plain, bytes);
    clear_tail(op, p, block);
    return GEMS_OK;
}

static int ref_param_export(struct be_op *op, uint32_t p, const void *block, void *ret_plain,
                            struct gems_error *err)
{
    (void)err;
    memcpy(ret_plain, (const char *)block + op->geometry.info.params[p].offset,
           op->element_bytes * param_count(&op->params[p]));
    return GEMS_OK;
}

static int ref_tensor_copy(struct be_op *op, const void *from, void *ret_to,
                           struct gems_error *err)
{
    const struct ref_geometry *g = &op->geometry;

    (void)err;
    memcpy(ret_to, from, op->element_bytes * g->batch * shape_count(&g->node.out));
    return GEMS_OK;
}

static int ref_add(struct be_device *dev, const void *a, const void *b, void *ret_sum, uint64_t n,
                   struct gems_error *err)
{
    return dev->kernels->vector.add(dev, a, b, ret_sum, n, err);
}

static int ref_sgd(struct be_device *dev, void *w, const void *g, void *momentum, uint64_t n,
                   const struct be_sgd *p, struct gems_error *err)
{
    return dev->kernels->vector.sgd(dev, w, g, momentum, n, p, err);
}

static int ref_adam(struct be_device *dev, void *w, const void *g, void *m, void *v, uint64_t n,
                    const struct be_adam *p, struct gems_error *err)
{
    return dev->kernels->vector.adam(dev, w, g, m, v, n, p, err);
}

static int ref_decay_add(struct be_device *dev, void *s, const void *g, uint64_t n, double keep,
                         struct gems_error *err)
{
    return dev->kernels->vector.decay_add(dev, s, g, n, keep, err);
}

static const struct be_device_ops ref_device = {
    .open = ref_open,
    .close = ref_close,
    .alloc = host_alloc,
    .free = host_free,
    .copy_in = host_copy_in,
    .copy_out = host_copy_out,
    .event_record = host_event_record,
    .event_done = host_event_done,
    .event_wait = host_event_wait,
    .event_release = host_event_release,
};

static const struct be_ops ref_ops = {
    .describe = ref_describe,
    .create = ref_create,
    .destroy = ref_destroy,
    .info = ref_info,
    .forward = ref_forward,
    .backward_input = ref_backward_input,
    .backward_weight = ref_backward_weight,
    .derive = ref_derive,
    .param_import = ref_param_import,
    .param_export = ref_param_export,
    .tensor_import = ref_tensor_copy,
    .tensor_export = ref_tensor_copy,
};

static const struct be_vector ref_vector = {
    .add = ref_add,
    .sgd = ref_sgd,
    .adam = ref_adam,
    .decay_add = ref_decay_add,
};

const struct backend backend_ref = {
    .name = "ref",
    .is_host_memory = true,
    .kind = ref_kind,
    .device = &ref_device,
    .ops = &ref_ops,
    .vector = &ref_vector,
};
