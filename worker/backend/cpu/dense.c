/* Flatten and dense. Source: docs/MATH.md, "dense".
 *
 * Flatten leaves the blocked layout for a plain vector in [c][h][w] order. All
 * passes of dense share one layout of the weights, the one that forward likes
 * for a batch of one: it must not depend on the batch. */
#include "worker/backend/cpu/cpu.h"

#include "common/error.h"

static int flatten_plan(struct be_op *op, struct gems_error *err)
{
    dnnl_memory_desc_t plain;
    int st = cpu_tensor_md(op->dev, op->batch, &op->in, true, &plain, err);

    st = st < 0 ? st
                : cpu_call_reorder(op, CALL_FORWARD, &op->x_md[0], IN_X0, 0, &plain, IN_Y, 0, err);
    if (st < 0 || op->mode == BE_EVAL) {
        return st;
    }
    return cpu_call_reorder(op, CALL_INPUT, &plain, IN_DY, 0, &op->x_md[0], IN_DX, 0, err);
}

static int run_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);

    return st < 0 ? st : cpu_call_run(op, CALL_FORWARD, &bases, err);
}

static int flatten_backward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, false, &bases, err);

    return st < 0 ? st : cpu_call_run(op, CALL_INPUT, &bases, err);
}

/* The library's attributes of forward: ReLU behind it. */
static int relu_attr(const struct be_op *op, dnnl_primitive_attr_t *ret_attr,
                     struct gems_error *err)
{
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status = dnnl_primitive_attr_clone(&attr, op->dev->attr);

    if (status == dnnl_success) {
        status = dnnl_post_ops_create(&post);
    }
    if (status == dnnl_success && op->node.is_relu) {
        status = dnnl_post_ops_append_eltwise(post, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
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

static const dnnl_memory_desc_t *bias_of(const struct be_op *op)
{
    return op->node.has_bias ? &op->param_md[1] : NULL;
}

static int plan_forward(struct be_op *op, struct gems_error *err)
{
    dnnl_prop_kind_t prop = op->mode == BE_EVAL ? dnnl_forward_inference : dnnl_forward_training;
    dnnl_inner_product_desc_t desc;
    dnnl_primitive_attr_t attr = NULL;
    int st = cpu_check(dnnl_inner_product_forward_desc_init(
                           &desc, prop, &op->x_md[0], &op->param_md[0], bias_of(op), &op->y_md),
                       "dense", op->node.name, err);

    st = st < 0 ? st : relu_attr(op, &attr, err);
    if (st < 0) {
        return st;
    }
    st = cpu_call_plan(op, CALL_FORWARD, &desc, attr, NULL, err);
    dnnl_primitive_attr_destroy(attr);
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

static int plan_input(struct be_op *op, struct gems_error *err)
{
    dnnl_inner_product_desc_t desc;
    int st = cpu_check(dnnl_inner_product_backward_data_desc_init(&desc, &op->x_md[0],
                                                                  &op->param_md[0], &op->y_md),
                       "dense", op->node.name, err);

    st =
        st < 0 ? st : cpu_call_plan(op, CALL_INPUT, &desc, NULL, op->calls[CALL_FORWARD].desc, err);
    if (st < 0) {
        return st;
    }
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_DIFF_DST, IN_DY, 0);
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_WEIGHTS, IN_PARAMS, op->info.params[0].offset);
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_DIFF_SRC, IN_DX, 0);
    return GEMS_OK;
}

static int plan_weight(struct be_op *op, struct gems_error *err)
{
    dnnl_inner_product_desc_t desc;
    int st = cpu_check(dnnl_inner_product_backward_weights_desc_init(
                           &desc, &op->x_md[0], &op->param_md[0], bias_of(op), &op->y_md),
                       "dense", op->node.name, err);

    st = st < 0 ? st
                : cpu_call_plan(op, CALL_WEIGHT, &desc, NULL, op->calls[CALL_FORWARD].desc, err);
    if (st < 0) {
        return st;
    }
    cpu_call_bind(op, CALL_WEIGHT, DNNL_ARG_SRC, IN_X0, 0);
    cpu_call_bind(op, CALL_WEIGHT, DNNL_ARG_DIFF_DST, IN_DY, 0);
    cpu_call_bind(op, CALL_WEIGHT, DNNL_ARG_DIFF_WEIGHTS, IN_GRADS, op->info.params[0].offset);
    if (op->node.has_bias) {
        cpu_call_bind(op, CALL_WEIGHT, DNNL_ARG_DIFF_BIAS, IN_GRADS, op->info.params[1].offset);
    }
    op->block_temp = cpu_take_temp(op, op->info.param_bytes);
    return GEMS_OK;
}

static int ask_layout(const struct be_op *op, dnnl_memory_desc_t *ret_weights,
                      struct gems_error *err)
{
    dnnl_dims_t dims = { op->node.k, op->in.c };
    dnnl_primitive_desc_t forward = NULL;
    dnnl_inner_product_desc_t desc;
    dnnl_memory_desc_t x, y, any;
    int st = cpu_tensor_md(op->dev, 1, &op->in, false, &x, err);

    st = st < 0 ? st : cpu_tensor_md(op->dev, 1, &op->node.out, false, &y, err);
    st = st < 0
             ? st
             : cpu_check(dnnl_memory_desc_init_by_tag(&any, 2, dims, dnnl_f32, dnnl_format_tag_any),
                         "layout", op->node.name, err);
    st = st < 0 ? st
                : cpu_check(dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, &x,
                                                                 &any, NULL, &y),
                            "dense", op->node.name, err);
    st = st < 0 ? st
                : cpu_check(dnnl_primitive_desc_create(&forward, &desc, op->dev->attr,
                                                       op->dev->engine, NULL),
                            "dense", op->node.name, err);
    if (st == GEMS_OK) {
        *ret_weights = *dnnl_primitive_desc_query_md(forward, dnnl_query_weights_md, 0);
        dnnl_primitive_desc_destroy(forward);
    }
    return st;
}

static int plan_params(struct be_op *op, struct gems_error *err)
{
    dnnl_memory_desc_t weights, bias;
    int st = ask_layout(op, &weights, err);

    if (st == GEMS_OK && op->node.has_bias) {
        st = cpu_plain_md(1, op->params[1].dims, &bias, err);
    }
    if (st < 0) {
        return st;
    }
    cpu_take_param(op, 0, &weights);
    if (op->node.has_bias) {
        cpu_take_param(op, 1, &bias);
    }
    return GEMS_OK;
}

static int dense_plan(struct be_op *op, struct gems_error *err)
{
    int st = plan_params(op, err);

    st = st < 0 ? st : plan_forward(op, err);
    if (st < 0 || op->mode == BE_EVAL) {
        return st;
    }
    if (op->node.is_relu) {
        op->dense.delta_temp = cpu_take_temp(op, dnnl_memory_desc_get_size(&op->y_md));
    }
    if (op->is_dx_wanted) {
        st = plan_input(op, err);
    }
    return st < 0 ? st : plan_weight(op, err);
}

/* Regions of a backward call, with the gradient behind the ReLU as dy. */
static int backward_bases(struct be_op *op, const struct be_args *args, struct cpu_bases *ret_bases,
                          struct gems_error *err)
{
    int st = cpu_bases(op, args, false, ret_bases, err);

    if (st == GEMS_OK && op->node.is_relu) {
        char *delta = (char *)args->scratch + op->dense.delta_temp;

        cpu_loop_mask(op->dev, args->y, args->dy, (float *)delta,
                      dnnl_memory_desc_get_size(&op->y_md) / sizeof(float));
        ret_bases->at[IN_DY] = delta;
    }
    return st;
}

static int dense_backward_input(struct be_op *op, const struct be_args *args,
                                struct gems_error *err)
{
    struct cpu_bases bases;
    int st = backward_bases(op, args, &bases, err);

    return st < 0 ? st : cpu_call_run(op, CALL_INPUT, &bases, err);
}

static int dense_backward_weight(struct be_op *op, const struct be_args *args,
                                 struct gems_error *err)
{
    struct cpu_bases bases;
    int st = backward_bases(op, args, &bases, err);

    return st < 0 ? st : cpu_weight_gradient(op, args, &bases, err);
}

const struct cpu_kind cpu_flatten = {
    .plan = flatten_plan,
    .forward = run_forward,
    .backward_input = flatten_backward,
};

const struct cpu_kind cpu_dense = {
    .plan = dense_plan,
    .forward = run_forward,
    .backward_input = dense_backward_input,
    .backward_weight = dense_backward_weight,
};
