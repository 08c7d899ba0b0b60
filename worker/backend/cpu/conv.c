/* Convolution. Source of the formulas: docs/MATH.md, "convolution".
 *
 * Windows of 3x3 go by Winograd's F(4x4, 3x3) where that is faster, up to 2.5
 * times: a quarter of the multiplications, and about 5e-7 of the result's length
 * off where direct sums are off by 2e-7.
 *
 * Parameter block: weights in forward's layout, bias. params2: weights in
 * backward_input's layout. The residual is a binary post-op: the same bits as
 * an addition afterwards, which a sum post-op would not give.
 *
 * The library takes an input of fewer channels than a block for an image and
 * has no kernel for it when it is blocked, only code a hundred times slower. So
 * such an input is described with a whole block of channels: its padding is
 * zero, and so are the weights that meet it and their gradients. */
#include "worker/backend/cpu/cpu.h"

#include <string.h>

#include "common/error.h"

/* Descriptors of the three passes differ in little. */
struct conv_dims {
    dnnl_dims_t stride, pad;
};

static struct conv_dims dims_of(const struct node *node)
{
    return (struct conv_dims){ .stride = { node->stride_h, node->stride_w },
                               .pad = { node->pad_h, node->pad_w } };
}

/* x with its padding channels as channels, if it is less than a block. */
static void widen_input(struct be_op *op)
{
    dnnl_memory_desc_t *md = &op->x_md[0];
    bool is_blocked = md->format_desc.blocking.inner_nblks > 0;

    if (is_blocked && md->padded_dims[1] == md->format_desc.blocking.inner_blks[0]) {
        md->dims[1] = md->padded_dims[1];
    }
}

/* Layout of weights as seen from outside: of the channels that there are. */
static dnnl_memory_desc_t narrow_weights(const struct be_op *op, const dnnl_memory_desc_t *md)
{
    dnnl_memory_desc_t narrow = *md;

    narrow.dims[1] = op->in.c;
    return narrow;
}

/* Weights of no particular layout. */
static int any_weights(const struct be_op *op, dnnl_memory_desc_t *ret_md, struct gems_error *err)
{
    dnnl_dims_t dims = { op->node.k, op->x_md[0].dims[1], op->node.r, op->node.s };

    return cpu_check(dnnl_memory_desc_init_by_tag(ret_md, 4, dims, dnnl_f32, dnnl_format_tag_any),
                     "layout", op->node.name, err);
}

/* The bias of dnnl_convolution_*_desc_init: NULL if there is none. */
static const dnnl_memory_desc_t *bias_of(const struct be_op *op)
{
    return op->node.has_bias ? &op->param_md[1] : NULL;
}

static int forward_desc(const struct be_op *op, const dnnl_memory_desc_t *x,
                        const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *y,
                        dnnl_convolution_desc_t *ret_desc, struct gems_error *err)
{
    struct conv_dims d = dims_of(&op->node);
    dnnl_prop_kind_t prop = op->mode == BE_EVAL ? dnnl_forward_inference : dnnl_forward_training;

    return cpu_check(dnnl_convolution_forward_desc_init(ret_desc, prop, dnnl_convolution_direct, x,
                                                        weights, bias_of(op), y, d.stride, d.pad,
                                                        d.pad),
                     "convolution", op->node.name, err);
}

static int input_desc(const struct be_op *op, const dnnl_memory_desc_t *dx,
                      const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *dy,
                      dnnl_convolution_desc_t *ret_desc, struct gems_error *err)
{
    struct conv_dims d = dims_of(&op->node);

    return cpu_check(dnnl_convolution_backward_data_desc_init(ret_desc, dnnl_convolution_direct, dx,
                                                              weights, dy, d.stride, d.pad, d.pad),
                     "convolution", op->node.name, err);
}

/* Tensor layout of x or y with a batch of one. */
static int single_md(const struct be_op *op, const dnnl_memory_desc_t *md, bool is_plain,
                     dnnl_memory_desc_t *ret_md, struct gems_error *err)
{
    struct shape shape = { .c = (uint32_t)md->dims[1],
                           .h = (uint32_t)md->dims[2],
                           .w = (uint32_t)md->dims[3] };

    return cpu_tensor_md(op->dev, 1, &shape, is_plain, ret_md, err);
}

/* Asks which layouts of weights forward and backward_input like. They are a
 * part of the job's numbers and of every rank's memory: the batch and the mode
 * of this operator must not matter, so a batch of one in training is asked. */
static int ask_layouts(struct be_op *op, dnnl_memory_desc_t *ret_forward,
                       dnnl_memory_desc_t *ret_input, struct gems_error *err)
{
    bool is_plain = op->x_md[0].format_desc.blocking.inner_nblks == 0;
    dnnl_engine_t engine = op->dev->engine;
    dnnl_memory_desc_t x, y, any;
    dnnl_primitive_desc_t forward = NULL, input = NULL;
    dnnl_convolution_desc_t desc;
    struct be_op single = *op;
    int st;

    single.mode = BE_TRAIN;
    st = single_md(op, &op->x_md[0], is_plain, &x, err);
    st = st < 0 ? st : single_md(op, &op->y_md, false, &y, err);
    st = st < 0 ? st : any_weights(op, &any, err);
    st = st < 0 ? st : forward_desc(&single, &x, &any, &y, &desc, err);
    st = st < 0
             ? st
             : cpu_check(dnnl_primitive_desc_create(&forward, &desc, op->dev->attr, engine, NULL),
                         "convolution", op->node.name, err);
    if (st < 0) {
        return st;
    }
    *ret_forward = *dnnl_primitive_desc_query_md(forward, dnnl_query_weights_md, 0);
    *ret_input = *ret_forward;
    if (op->is_dx_wanted) {
        st = input_desc(&single, &x, &any, &y, &desc, err);
        st = st < 0 ? st
                    : cpu_check(
                          dnnl_primitive_desc_create(&input, &desc, op->dev->attr, engine, forward),
                          "convolution", op->node.name, err);
        if (st == GEMS_OK) {
            *ret_input = *dnnl_primitive_desc_query_md(input, dnnl_query_weights_md, 0);
            dnnl_primitive_desc_destroy(input);
        }
    }
    dnnl_primitive_desc_destroy(forward);
    return st;
}

/* Winograd pays from some tiles of 4x4 and some channels on; with few channels
 * it waits for memory where rows of a power of two meet in the caches. */
static bool suits_winograd(const struct be_op *op)
{
    enum { TILES_MIN = 64, CHANNELS_MIN = 32, SIDE = 4 };
    const struct node *v = &op->node;
    uint32_t c = (uint32_t)op->x_md[0].dims[1], h = op->in.h, w = op->in.w;
    uint64_t tiles = (uint64_t)op->batch * ((h + SIDE - 1) / SIDE) * ((w + SIDE - 1) / SIDE);
    bool is_wide = c >= CHANNELS_MIN && v->k >= CHANNELS_MIN;

    return v->r == 3 && v->s == 3 && v->stride_h == 1 && v->stride_w == 1 && v->pad_h == 1 &&
           v->pad_w == 1 && op->x_md[0].format_desc.blocking.inner_nblks > 0 &&
           c % CPU_LANES == 0 && v->k % CPU_LANES == 0 && tiles >= TILES_MIN &&
           (is_wide || (w & (w - 1)) != 0);
}

/* Plans a call by Winograd if that suits and the library offers it here. */
static bool plan_winograd(struct be_op *op, enum cpu_call_id id,
                          const dnnl_convolution_desc_t *direct)
{
    dnnl_convolution_desc_t desc = *direct;
    struct gems_error ignored;

    desc.alg_kind = dnnl_convolution_winograd;
    /* Evaluation in the way of training: the other wants weights turned before. */
    if (desc.prop_kind == dnnl_forward_inference) {
        desc.prop_kind = dnnl_forward_training;
    }
    return suits_winograd(op) &&
           cpu_call_plan(op, id, &desc, NULL, op->calls[CALL_FORWARD].desc, &ignored) == GEMS_OK;
}

/* Plans a call of backward by the fastest algorithm. */
static int plan_call(struct be_op *op, enum cpu_call_id id, const dnnl_convolution_desc_t *desc,
                     struct gems_error *err)
{
    return plan_winograd(op, id, desc)
               ? GEMS_OK
               : cpu_call_plan(op, id, desc, NULL, op->calls[CALL_FORWARD].desc, err);
}

static int residual_attr(const struct be_op *op, dnnl_primitive_attr_t *ret_attr,
                         struct gems_error *err)
{
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status = dnnl_primitive_attr_clone(&attr, op->dev->attr);

    if (status == dnnl_success) {
        status = dnnl_post_ops_create(&post);
    }
    if (status == dnnl_success) {
        status = dnnl_post_ops_append_binary(post, dnnl_binary_add, &op->x_md[1]);
    }
    if (status == dnnl_success) {
        status = dnnl_primitive_attr_set_post_ops(attr, post);
    }
    dnnl_post_ops_destroy(post);
    if (status != dnnl_success) {
        dnnl_primitive_attr_destroy(attr);
    } else {
        *ret_attr = attr;
    }
    return cpu_check(status, "post-op", op->node.name, err);
}

/* False if only the library's slow reference code would do the call. */
static bool is_fast(const struct be_op *op, enum cpu_call_id id)
{
    const char *name = "ref";

    dnnl_primitive_desc_query(op->calls[id].desc, dnnl_query_impl_info_str, 0, &name);
    return strncmp(name, "ref", 3) != 0;
}

/* Forward with the residual inside if some kernel can, else apart. */
static int plan_residual(struct be_op *op, const dnnl_convolution_desc_t *desc,
                         struct gems_error *err)
{
    dnnl_primitive_attr_t attr = NULL;
    int st = residual_attr(op, &attr, err);

    if (st < 0) {
        return st;
    }
    st = cpu_call_plan(op, CALL_FORWARD, desc, attr, NULL, err);
    dnnl_primitive_attr_destroy(attr);
    if (st == GEMS_OK && is_fast(op, CALL_FORWARD)) {
        cpu_call_bind(op, CALL_FORWARD, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, IN_X1,
                      0);
        return GEMS_OK;
    }
    cpu_call_fini(&op->calls[CALL_FORWARD]);
    op->conv.is_add_apart = true;
    return cpu_call_plan(op, CALL_FORWARD, desc, NULL, NULL, err);
}

static int plan_forward(struct be_op *op, const dnnl_memory_desc_t *weights,
                        struct gems_error *err)
{
    dnnl_convolution_desc_t desc;
    int st = forward_desc(op, &op->x_md[0], weights, &op->y_md, &desc, err);

    if (st < 0) {
        return st;
    }
    if (plan_winograd(op, CALL_FORWARD, &desc)) {
        op->conv.is_add_apart = op->node.is_residual;
    } else {
        st = op->node.is_residual ? plan_residual(op, &desc, err)
                                  : cpu_call_plan(op, CALL_FORWARD, &desc, NULL, NULL, err);
    }
    if (st < 0) {
        return st;
    }
    cpu_call_bind(op, CALL_FORWARD, DNNL_ARG_SRC, IN_X0, 0);
    cpu_call_bind(op, CALL_FORWARD, DNNL_ARG_WEIGHTS, IN_PARAMS, op->info.params[0].offset);
    cpu_call_bind(op, CALL_FORWARD, DNNL_ARG_DST, IN_Y, 0);
    if (op->node.has_bias) {
        cpu_call_bind(op, CALL_FORWARD, DNNL_ARG_BIAS, IN_PARAMS, op->info.params[1].offset);
    }
    return GEMS_OK;
}

static int plan_input(struct be_op *op, const dnnl_memory_desc_t *forward,
                      const dnnl_memory_desc_t *weights, struct gems_error *err)
{
    bool is_shared = dnnl_memory_desc_equal(weights, forward);
    dnnl_convolution_desc_t desc;
    int st = input_desc(op, &op->x_md[0], weights, &op->y_md, &desc, err);

    st = st < 0 ? st : plan_call(op, CALL_INPUT, &desc, err);
    if (st < 0) {
        return st;
    }
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_DIFF_DST, IN_DY, 0);
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_WEIGHTS, is_shared ? IN_PARAMS : IN_PARAMS2,
                  is_shared ? op->info.params[0].offset : 0);
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_DIFF_SRC, IN_DX, 0);
    return GEMS_OK;
}

static int plan_derive(struct be_op *op, const dnnl_memory_desc_t *forward,
                       const dnnl_memory_desc_t *weights, struct gems_error *err)
{
    if (!op->is_dx_wanted || dnnl_memory_desc_equal(weights, forward)) {
        return GEMS_OK;
    }
    op->info.param2_bytes = cpu_align(dnnl_memory_desc_get_size(weights));
    return cpu_call_reorder(op, CALL_DERIVE, forward, IN_PARAMS, op->info.params[0].offset,
                            weights, IN_PARAMS2, 0, err);
}

static int plan_weight(struct be_op *op, const dnnl_memory_desc_t *forward, struct gems_error *err)
{
    struct conv_dims d = dims_of(&op->node);
    dnnl_convolution_desc_t desc;
    dnnl_memory_desc_t any;
    const dnnl_memory_desc_t *dw;
    bool is_direct;
    int st = any_weights(op, &any, err);

    st = st < 0 ? st
                : cpu_check(dnnl_convolution_backward_weights_desc_init(
                                &desc, dnnl_convolution_direct, &op->x_md[0], &any, bias_of(op),
                                &op->y_md, d.stride, d.pad, d.pad),
                            "convolution", op->node.name, err);
    st = st < 0 ? st : plan_call(op, CALL_WEIGHT, &desc, err);
    if (st < 0) {
        return st;
    }
    dw = dnnl_primitive_desc_query_md(op->calls[CALL_WEIGHT].desc, dnnl_query_diff_weights_md, 0);
    is_direct = dnnl_memory_desc_equal(dw, forward);
    if (!is_direct) {
        op->conv.dw_temp = cpu_take_temp(op, dnnl_memory_desc_get_size(dw));
        st = cpu_call_reorder(op, CALL_REORDER, dw, IN_TEMP, op->conv.dw_temp, forward, IN_GRADS,
                              op->info.params[0].offset, err);
    }
    cpu_call_bind(op, CALL_WEIGHT, DNNL_ARG_SRC, IN_X0, 0);
    cpu_call_bind(op, CALL_WEIGHT, DNNL_ARG_DIFF_DST, IN_DY, 0);
    cpu_call_bind(op, CALL_WEIGHT, DNNL_ARG_DIFF_WEIGHTS, is_direct ? IN_GRADS : IN_TEMP,
                  is_direct ? op->info.params[0].offset : op->conv.dw_temp);
    if (op->node.has_bias) {
        cpu_call_bind(op, CALL_WEIGHT, DNNL_ARG_DIFF_BIAS, IN_GRADS, op->info.params[1].offset);
    }
    op->block_temp = cpu_take_temp(op, op->info.param_bytes);
    return st;
}

static int conv_plan(struct be_op *op, struct gems_error *err)
{
    dnnl_memory_desc_t weights, weights2, narrow, bias;
    int st;

    widen_input(op);
    if (op->node.has_bias) {
        st = cpu_plain_md(1, op->params[1].dims, &bias, err);
        if (st < 0) {
            return st;
        }
        op->param_md[1] = bias;
    }
    st = ask_layouts(op, &weights, &weights2, err);
    if (st < 0) {
        return st;
    }
    narrow = narrow_weights(op, &weights);
    cpu_take_param(op, 0, &narrow);
    if (op->node.has_bias) {
        cpu_take_param(op, 1, &bias);
    }
    st = plan_forward(op, &weights, err);
    st = st < 0 ? st : plan_derive(op, &weights, &weights2, err);
    if (st < 0 || op->mode == BE_EVAL) {
        return st;
    }
    if (op->is_dx_wanted) {
        st = plan_input(op, &weights, &weights2, err);
    }
    return st < 0 ? st : plan_weight(op, &weights, err);
}

static int conv_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);

    st = st < 0 ? st : cpu_call_run(op, CALL_FORWARD, &bases, err);
    if (st == GEMS_OK && op->conv.is_add_apart) {
        cpu_loop_add(op->dev, args->y, (const float *)bases.at[IN_X1], args->y,
                     dnnl_memory_desc_get_size(&op->y_md) / sizeof(float));
    }
    return st;
}

static int conv_backward_input(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, false, &bases, err);

    if (st == GEMS_OK && args->dx[1]) {
        memcpy(args->dx[1], args->dy, dnnl_memory_desc_get_size(&op->y_md));
    }
    return st == GEMS_OK && args->dx[0] ? cpu_call_run(op, CALL_INPUT, &bases, err) : st;
}

static int conv_backward_weight(struct be_op *op, const struct be_args *args,
                                struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);

    return st < 0 ? st : cpu_weight_gradient(op, args, &bases, err);
}

const struct cpu_kind cpu_conv = {
    .plan = conv_plan,
    .forward = conv_forward,
    .backward_input = conv_backward_input,
    .backward_weight = conv_backward_weight,
};
