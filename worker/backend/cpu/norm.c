/* Batch normalisation, optionally with ReLU behind it: one primitive. Source:
 * docs/MATH.md, "batch normalisation".
 *
 * kept: head, mean, variance, gradients of scale and shift, mask of the ReLU.
 * One primitive gives the gradients of input, scale and shift together: so
 * backward_input leaves the latter two in kept, where backward_weight takes
 * them. If the input has no gradient, backward_weight runs it alone. */
#include "worker/backend/cpu/cpu.h"

#include "common/error.h"

/* First bytes of kept. */
struct norm_head {
    uint32_t has_sums; /* gradients of scale and shift are there */
};

static unsigned flags_of(const struct be_op *op)
{
    unsigned flags = dnnl_use_scale | dnnl_use_shift;

    flags |= op->node.is_relu ? dnnl_fuse_norm_relu : 0;
    flags |= op->mode == BE_EVAL ? dnnl_use_global_stats : 0;
    return flags;
}

/* Scale and shift, and the statistics: of the batch, or the running ones. */
static void bind_parameters(struct be_op *op, enum cpu_call_id id)
{
    const struct be_param *p = op->info.params;
    bool is_eval = op->mode == BE_EVAL;

    cpu_call_bind(op, id, DNNL_ARG_SCALE, IN_PARAMS, p[0].offset);
    cpu_call_bind(op, id, DNNL_ARG_SHIFT, IN_PARAMS, p[1].offset);
    cpu_call_bind(op, id, DNNL_ARG_MEAN, is_eval ? IN_PARAMS : IN_KEPT,
                  is_eval ? p[2].offset : op->norm.mean);
    cpu_call_bind(op, id, DNNL_ARG_VARIANCE, is_eval ? IN_PARAMS : IN_KEPT,
                  is_eval ? p[3].offset : op->norm.variance);
    if (op->node.is_relu && !is_eval) {
        cpu_call_bind(op, id, DNNL_ARG_WORKSPACE, IN_KEPT, op->norm.workspace);
    }
}

static int plan_forward(struct be_op *op, struct gems_error *err)
{
    dnnl_prop_kind_t prop = op->mode == BE_EVAL ? dnnl_forward_inference : dnnl_forward_training;
    dnnl_batch_normalization_desc_t desc;
    int st = cpu_check(dnnl_batch_normalization_forward_desc_init(
                           &desc, prop, &op->x_md[0], (float)op->node.eps, flags_of(op)),
                       "batch normalisation", op->node.name, err);

    st = st < 0 ? st : cpu_call_plan(op, CALL_FORWARD, &desc, NULL, NULL, err);
    if (st < 0) {
        return st;
    }
    if (op->mode == BE_TRAIN && op->node.is_relu) {
        op->norm.workspace =
            cpu_take_kept(op, dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(
                                  op->calls[CALL_FORWARD].desc, dnnl_query_workspace_md, 0)));
    }
    cpu_call_bind(op, CALL_FORWARD, DNNL_ARG_SRC, IN_X0, 0);
    cpu_call_bind(op, CALL_FORWARD, DNNL_ARG_DST, IN_Y, 0);
    bind_parameters(op, CALL_FORWARD);
    return GEMS_OK;
}

static int plan_backward(struct be_op *op, struct gems_error *err)
{
    dnnl_batch_normalization_desc_t desc;
    int st = cpu_check(
        dnnl_batch_normalization_backward_desc_init(&desc, dnnl_backward, &op->y_md, &op->x_md[0],
                                                    (float)op->node.eps, flags_of(op)),
        "batch normalisation", op->node.name, err);

    st =
        st < 0 ? st : cpu_call_plan(op, CALL_INPUT, &desc, NULL, op->calls[CALL_FORWARD].desc, err);
    if (st < 0) {
        return st;
    }
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_SRC, IN_X0, 0);
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_DIFF_DST, IN_DY, 0);
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_DIFF_SRC, IN_DX, 0);
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_DIFF_SCALE, IN_KEPT, op->norm.d_scale);
    cpu_call_bind(op, CALL_INPUT, DNNL_ARG_DIFF_SHIFT, IN_KEPT, op->norm.d_shift);
    bind_parameters(op, CALL_INPUT);
    if (!op->is_dx_wanted) {
        op->block_temp = cpu_take_temp(op, dnnl_memory_desc_get_size(&op->x_md[0]));
    }
    return GEMS_OK;
}

static int norm_plan(struct be_op *op, struct gems_error *err)
{
    uint64_t row = sizeof(float) * op->in.c;

    for (uint32_t p = 0; p < op->info.n_params; p++) {
        dnnl_memory_desc_t md;
        int st = cpu_plain_md(1, op->params[p].dims, &md, err);

        if (st < 0) {
            return st;
        }
        cpu_take_param(op, p, &md);
    }
    if (op->mode == BE_EVAL) {
        return plan_forward(op, err);
    }
    cpu_take_kept(op, sizeof(struct norm_head));
    op->norm.mean = cpu_take_kept(op, row);
    op->norm.variance = cpu_take_kept(op, row);
    op->norm.d_scale = cpu_take_kept(op, row);
    op->norm.d_shift = cpu_take_kept(op, row);
    int st = plan_forward(op, err);

    return st < 0 ? st : plan_backward(op, err);
}

static int norm_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);

    if (op->mode == BE_TRAIN) {
        ((struct norm_head *)args->kept)->has_sums = 0;
    }
    return st < 0 ? st : cpu_call_run(op, CALL_FORWARD, &bases, err);
}

static int norm_backward_input(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);

    st = st < 0 ? st : cpu_call_run(op, CALL_INPUT, &bases, err);
    if (st == GEMS_OK) {
        ((struct norm_head *)args->kept)->has_sums = 1;
    }
    return st;
}

static void put_row(const struct be_op *op, const struct be_args *args, uint32_t p,
                    const float *values, double factor)
{
    float *grads = (float *)((char *)args->grads + op->info.params[p].offset);

    for (uint32_t c = 0; c < op->in.c; c++) {
        float value = (float)(factor * (double)values[c]);

        grads[c] = args->grads_write ? value : grads[c] + value;
    }
}

static int norm_backward_weight(struct be_op *op, const struct be_args *args,
                                struct gems_error *err)
{
    double count = (double)op->batch * op->in.h * op->in.w;
    double unbiased = count > 1.0 ? count / (count - 1.0) : 1.0;
    char *kept = args->kept;
    struct cpu_bases bases;

    if (!((struct norm_head *)kept)->has_sums) {
        int st = cpu_bases(op, args, true, &bases, err);

        if (op->is_dx_wanted) {
            return gems_error_set(err, GEMS_E_INTERNAL,
                                  "%s: backward_weight without backward_input before it",
                                  op->node.name);
        }
        bases.at[IN_DX] = (char *)args->scratch + op->block_temp;
        st = st < 0 ? st : cpu_call_run(op, CALL_INPUT, &bases, err);
        if (st < 0) {
            return st;
        }
    }
    put_row(op, args, 0, (const float *)(kept + op->norm.d_scale), 1.0);
    put_row(op, args, 1, (const float *)(kept + op->norm.d_shift), 1.0);
    put_row(op, args, 2, (const float *)(kept + op->norm.mean), args->stat_weight);
    put_row(op, args, 3, (const float *)(kept + op->norm.variance), args->stat_weight * unbiased);
    if (args->grads_write) {
        cpu_clear_tails(op, args->grads);
    }
    return GEMS_OK;
}

const struct cpu_kind cpu_batchnorm = {
    .plan = norm_plan,
    .forward = norm_forward,
    .backward_input = norm_backward_input,
    .backward_weight = norm_backward_weight,
};
