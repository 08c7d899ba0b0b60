/* Max and average pooling, padding not counted. Source: docs/MATH.md,
 * "pooling". kept: indexes of the maxima, in the library's form. */
#include "worker/backend/cpu/cpu.h"

#include "common/error.h"

struct pool_dims {
    dnnl_dims_t stride, kernel, pad;
};

static struct pool_dims dims_of(const struct node *node)
{
    return (struct pool_dims){ .stride = { node->stride_h, node->stride_w },
                               .kernel = { node->r, node->s },
                               .pad = { node->pad_h, node->pad_w } };
}

static dnnl_alg_kind_t algorithm(const struct be_op *op)
{
    return op->node.kind == OP_MAXPOOL ? dnnl_pooling_max : dnnl_pooling_avg_exclude_padding;
}

static int plan_forward(struct be_op *op, struct gems_error *err)
{
    dnnl_prop_kind_t prop = op->mode == BE_EVAL ? dnnl_forward_inference : dnnl_forward_training;
    struct pool_dims d = dims_of(&op->node);
    dnnl_pooling_desc_t desc;
    int st = cpu_check(dnnl_pooling_forward_desc_init(&desc, prop, algorithm(op), &op->x_md[0],
                                                      &op->y_md, d.stride, d.kernel, d.pad, d.pad),
                       "pooling", op->node.name, err);

    st = st < 0 ? st : cpu_call_plan(op, CALL_FORWARD, &desc, NULL, NULL, err);
    if (st < 0) {
        return st;
    }
    cpu_call_bind(op, CALL_FORWARD, DNNL_ARG_SRC, IN_X0, 0);
    cpu_call_bind(op, CALL_FORWARD, DNNL_ARG_DST, IN_Y, 0);
    return GEMS_OK;
}

static int pool_plan(struct be_op *op, struct gems_error *err)
{
    struct pool_dims d = dims_of(&op->node);
    dnnl_pooling_desc_t desc;
    int st = plan_forward(op, err);

    if (st < 0 || op->mode == BE_EVAL) {
        return st;
    }
    st = cpu_check(dnnl_pooling_backward_desc_init(&desc, algorithm(op), &op->x_md[0], &op->y_md,
                                                   d.stride, d.kernel, d.pad, d.pad),
                   "pooling", op->node.name, err);
    st =
        st < 0 ? st : cpu_call_plan(op, CALL_INPUT, &desc, NULL, op->calls[CALL_FORWARD].desc, err);
    if (st < 0) {
        return st;
    }
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_DIFF_DST, IN_DY, 0);
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_DIFF_SRC, IN_DX, 0);
    if (op->node.kind == OP_MAXPOOL) {
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(op->calls[CALL_FORWARD].desc, dnnl_query_workspace_md, 0);
        uint64_t kept = cpu_take_kept(op, dnnl_memory_desc_get_size(md));

        cpu_call_bind(op, CALL_FORWARD, DNNL_ARG_WORKSPACE, IN_KEPT, kept);
        cpu_call_bind(op, CALL_INPUT, DNNL_ARG_WORKSPACE, IN_KEPT, kept);
    }
    return GEMS_OK;
}

static int pool_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);

    return st < 0 ? st : cpu_call_run(op, CALL_FORWARD, &bases, err);
}

static int pool_backward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, false, &bases, err);

    return st < 0 ? st : cpu_call_run(op, CALL_INPUT, &bases, err);
}

const struct cpu_kind cpu_maxpool = {
    .plan = pool_plan,
    .forward = pool_forward,
    .backward_input = pool_backward,
};

const struct cpu_kind cpu_avgpool = {
    .plan = pool_plan,
    .forward = pool_forward,
    .backward_input = pool_backward,
};
