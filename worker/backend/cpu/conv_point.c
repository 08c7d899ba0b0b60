/* Convolutions of 1x1 and stride 1 as operators: kernels are in point.c.
 * Parameter block and params2 as in conv.c, in layouts of our choice. */
#include "worker/backend/cpu/cpu.h"

#include <string.h>

#include "common/error.h"

static const struct cpu_point_kernels *kernels_of(const struct be_op *op)
{
    return cpu_point_kernels(op->dev);
}

bool cpu_conv_is_point(const struct be_op *op)
{
    const struct node *v = &op->node;
    bool is_blocked = op->x_md[0].format_desc.blocking.inner_nblks > 0;

    return kernels_of(op) && is_blocked && v->r == 1 && v->s == 1 && v->stride_h == 1 &&
           v->stride_w == 1 && v->pad_h == 0 && v->pad_w == 0;
}

static struct cpu_point point_of(const struct be_op *op)
{
    struct cpu_rows in = cpu_rows_of(op->dev, &op->in);

    return (struct cpu_point){ .batch = op->batch,
                               .in_blocks = in.n_blocks,
                               .out_blocks = cpu_rows_of(op->dev, &op->node.out).n_blocks,
                               .pixels = in.pixels };
}

static int weights_md(const struct be_op *op, dnnl_format_tag_t tag, dnnl_memory_desc_t *ret_md,
                      struct gems_error *err)
{
    dnnl_dims_t dims = { op->node.k, op->in.c, 1, 1 };

    return cpu_check(dnnl_memory_desc_init_by_tag(ret_md, 4, dims, dnnl_f32, tag), "layout",
                     op->node.name, err);
}

static int point_plan(struct be_op *op, struct gems_error *err)
{
    struct cpu_point point = point_of(op);
    dnnl_memory_desc_t weights, turned, bias;
    int st = weights_md(op, dnnl_OIhw16i16o, &weights, err);

    st = st < 0 ? st : weights_md(op, dnnl_IOhw16o16i, &turned, err);
    if (st < 0) {
        return st;
    }
    cpu_take_param(op, 0, &weights);
    if (op->node.has_bias) {
        st = cpu_plain_md(1, op->params[1].dims, &bias, err);
        if (st < 0) {
            return st;
        }
        cpu_take_param(op, 1, &bias);
    }
    if (op->is_dx_wanted) {
        op->info.param2_bytes = cpu_align(dnnl_memory_desc_get_size(&turned));
        st = cpu_call_reorder(op, CALL_DERIVE, &weights, IN_PARAMS, op->info.params[0].offset,
                              &turned, IN_PARAMS2, 0, err);
    }
    if (op->mode == BE_TRAIN) {
        op->block_temp = cpu_take_temp(op, op->info.param_bytes);
        op->conv.parts_temp = cpu_take_temp(op, kernels_of(op)->parts_bytes(op->dev, &point));
    }
    return st;
}

/* The bias in a parameter block or its gradient; NULL if there is none. */
static float *bias_in(const struct be_op *op, const void *block)
{
    return op->node.has_bias ? (float *)((uintptr_t)block + op->info.params[1].offset) : NULL;
}

static int point_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_point point = point_of(op);
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);

    if (st == GEMS_OK) {
        kernels_of(op)->apply(op->dev, &point, (const float *)bases.at[IN_X0], args->params,
                              bias_in(op, args->params),
                              op->node.is_residual ? (const float *)bases.at[IN_X1] : NULL,
                              args->y);
    }
    return st;
}

static int point_backward_input(struct be_op *op, const struct be_args *args,
                                struct gems_error *err)
{
    struct cpu_point point = point_of(op);
    struct cpu_point turned = point;

    (void)err;
    turned.in_blocks = point.out_blocks;
    turned.out_blocks = point.in_blocks;
    if (args->dx[1]) {
        memcpy(args->dx[1], args->dy, dnnl_memory_desc_get_size(&op->y_md));
    }
    if (args->dx[0]) {
        kernels_of(op)->apply(op->dev, &turned, args->dy, args->params2, NULL, NULL, args->dx[0]);
    }
    return GEMS_OK;
}

static int point_backward_weight(struct be_op *op, const struct be_args *args,
                                 struct gems_error *err)
{
    struct cpu_point point = point_of(op);
    char *block = args->grads_write ? args->grads : (char *)args->scratch + op->block_temp;
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);

    if (st < 0) {
        return st;
    }
    kernels_of(op)->weights(op->dev, &point, (const float *)bases.at[IN_X0], args->dy,
                            (float *)((char *)args->scratch + op->conv.parts_temp), (float *)block,
                            bias_in(op, block));
    if (!args->grads_write) {
        cpu_add_gradient(op, args, block);
    }
    return st;
}

const struct cpu_kind cpu_conv_point = {
    .plan = point_plan,
    .forward = point_forward,
    .backward_input = point_backward_input,
    .backward_weight = point_backward_weight,
};
