/* Operators of the cpu back end: what all kinds have in common. */
#include "worker/backend/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

/* OP_INPUT has nothing to do; it is made for its size and for import. */
static const struct cpu_kind cpu_input;

static const struct cpu_kind *const kinds[OP_KIND_COUNT] = {
    [OP_INPUT] = &cpu_input,     [OP_CONV] = &cpu_conv,       [OP_BATCHNORM] = &cpu_batchnorm,
    [OP_RELU] = &cpu_relu,       [OP_ADD] = &cpu_add,         [OP_MAXPOOL] = &cpu_maxpool,
    [OP_AVGPOOL] = &cpu_avgpool, [OP_FLATTEN] = &cpu_flatten, [OP_DENSE] = &cpu_dense,
    [OP_LOSS] = &cpu_loss,
    [OP_DROPOUT] = &cpu_dropout,
    [OP_CONCAT] = &cpu_concat,
    [OP_PICK] = &cpu_pick,
};

/* True if a node above `node` has weights: its input has a gradient. */
static int find_dx_wanted(const struct graph *graph, uint32_t node, bool *ret_is_wanted,
                          struct gems_error *err)
{
    bool *has_gradient = calloc(node + 1, sizeof *has_gradient);
    struct param params[MODEL_MAX_PARAMS];
    bool is_wanted = false;

    if (!has_gradient) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory", graph->nodes[node].name);
    }
    for (uint32_t i = 0; i <= node; i++) {
        const struct node *n = &graph->nodes[i];

        is_wanted = false;
        for (uint32_t k = 0; k < n->n_inputs; k++) {
            is_wanted = is_wanted || has_gradient[n->inputs[k]];
        }
        has_gradient[i] = is_wanted || node_params(graph, i, params) > 0;
    }
    free(has_gradient);
    *ret_is_wanted = is_wanted;
    return GEMS_OK;
}

/* The first convolution reads plain images of 1 and 3 channels as they are;
 * flatten wants them plain anyway. */
static bool reads_plain(const struct be_op *op)
{
    return op->node.kind == OP_FLATTEN ||
           (op->node.kind == OP_CONV && (op->in.c == 1 || op->in.c == 3));
}

/* Layout of input i as the primitive sees it; plans the reorder before it. */
static int plan_input(struct be_op *op, const struct graph *graph, uint32_t i,
                      struct gems_error *err)
{
    const struct node *from = &graph->nodes[op->node.inputs[i]];
    bool is_image = from->kind == OP_INPUT;
    bool is_staged = is_image && (i > 0 || !reads_plain(op));
    dnnl_memory_desc_t plain;
    int st =
        cpu_tensor_md(op->dev, op->batch, &from->out, is_image && !is_staged, &op->x_md[i], err);

    if (st < 0 || !is_staged) {
        return st;
    }
    st = cpu_tensor_md(op->dev, op->batch, &from->out, true, &plain, err);
    if (st < 0) {
        return st;
    }
    return cpu_call_reorder(op, CALL_STAGE0 + i, &plain, IN_X0 + i, 0, &op->x_md[i],
                            IN_TEMP, cpu_take_temp(op, dnnl_memory_desc_get_size(&op->x_md[i])),
                            err);
}

static int plan(struct be_device *dev, const struct be_op_desc *desc, struct be_op *op,
                struct gems_error *err)
{
    const struct graph *graph = desc->graph;
    bool is_input;
    int st;

    op->dev = dev;
    op->node = graph->nodes[desc->node];
    op->kind = kinds[op->node.kind];
    op->batch = desc->batch;
    op->mode = desc->mode;
    is_input = op->node.kind == OP_INPUT;
    if (desc->batch == 0 || desc->batch > INT32_MAX) {
        return gems_error_set(err, GEMS_E_UNSUPPORTED, "%s: batch of %u samples", op->node.name,
                              desc->batch);
    }
    cpu_enter(dev);
    op->in = is_input ? op->node.out : graph->nodes[op->node.inputs[0]].out;
    op->info.n_params = node_params(graph, desc->node, op->params);
    st = find_dx_wanted(graph, desc->node, &op->is_dx_wanted, err);
    for (uint32_t i = 0; st == GEMS_OK && i < op->node.n_inputs; i++) {
        op->in_c[i] = graph->nodes[op->node.inputs[i]].out.c;
        st = plan_input(op, graph, i, err);
    }
    if (st == GEMS_OK) {
        st = cpu_tensor_md(dev, op->batch, &op->node.out, is_input, &op->y_md, err);
    }
    if (st == GEMS_OK && op->node.kind == OP_CONV && cpu_conv_is_point(op)) {
        op->kind = &cpu_conv_point;
    }
    if (st == GEMS_OK && op->kind->plan) {
        st = op->kind->plan(op, err);
    }
    if (op->node.kind != OP_LOSS) {
        op->info.out_bytes = cpu_align(dnnl_memory_desc_get_size(&op->y_md));
    }
    op->info.scratch_bytes = op->temp_bytes + op->pad_bytes;
    return st;
}

static void cpu_destroy(struct be_op *op)
{
    if (op) {
        for (uint32_t id = 0; id < CALL_COUNT; id++) {
            cpu_call_fini(&op->calls[id]);
        }
        free(op);
    }
}

static int make(struct be_device *dev, const struct be_op_desc *desc, struct be_op **ret_op,
                struct gems_error *err)
{
    struct be_op *op = calloc(1, sizeof *op);
    int st;

    if (!op) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory",
                              desc->graph->nodes[desc->node].name);
    }
    st = plan(dev, desc, op, err);
    if (st < 0) {
        cpu_destroy(op);
        return st;
    }
    *ret_op = op;
    return GEMS_OK;
}

static int cpu_describe(struct be_device *dev, const struct be_op_desc *desc,
                        struct be_op_info *ret_info, struct gems_error *err)
{
    struct be_op *op;
    int st = make(dev, desc, &op, err);

    if (st == GEMS_OK) {
        *ret_info = op->info;
        cpu_destroy(op);
    }
    return st;
}

static int cpu_create(struct be_device *dev, const struct be_op_desc *desc, struct be_op **ret_op,
                      struct gems_error *err)
{
    struct be_op *op;
    int st = make(dev, desc, &op, err);

    if (st < 0) {
        return st;
    }
    for (uint32_t id = 0; st == GEMS_OK && id < CALL_COUNT; id++) {
        st = cpu_call_build(op, id, err);
    }
    if (st < 0) {
        cpu_destroy(op);
        return st;
    }
    *ret_op = op;
    return GEMS_OK;
}

static const struct be_op_info *cpu_info(const struct be_op *op)
{
    return &op->info;
}

static int cpu_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    return op->kind->forward ? op->kind->forward(op, args, err) : GEMS_OK;
}

static int refuse(const struct be_op *op, const char *why, struct gems_error *err)
{
    return gems_error_set(err, GEMS_E_INTERNAL, "%s: %s", op->node.name, why);
}

static int cpu_backward_input(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    bool is_any = false;

    for (uint32_t i = 0; i < MODEL_MAX_INPUTS; i++) {
        is_any = is_any || args->dx[i];
    }
    if (op->mode == BE_EVAL) {
        return refuse(op, "backward of an evaluation operator", err);
    }
    if (!is_any || !op->kind->backward_input) {
        return GEMS_OK;
    }
    if (!op->is_dx_wanted && op->node.kind != OP_LOSS) {
        return refuse(op, "no weights above it: its input has no gradient", err);
    }
    return op->kind->backward_input(op, args, err);
}

static int cpu_backward_weight(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    if (op->mode == BE_EVAL) {
        return refuse(op, "backward of an evaluation operator", err);
    }
    return op->kind->backward_weight ? op->kind->backward_weight(op, args, err) : GEMS_OK;
}

static int cpu_derive(struct be_op *op, const void *params, void *ret_params2,
                      struct gems_error *err)
{
    struct cpu_bases bases = {
        .at = { [IN_PARAMS] = (char *)(uintptr_t)params, [IN_PARAMS2] = ret_params2 }
    };

    if (!op->calls[CALL_DERIVE].primitive) {
        return GEMS_OK;
    }
    cpu_enter(op->dev);
    return cpu_call_run(op, CALL_DERIVE, &bases, err);
}

/* One reorder, made and done: for import and export, outside of steps. */
static int convert(struct be_op *op, const dnnl_memory_desc_t *from_md, const void *from,
                   const dnnl_memory_desc_t *to_md, void *to, struct gems_error *err)
{
    dnnl_engine_t engine = op->dev->engine;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_exec_arg_t args[2] = { { .arg = DNNL_ARG_FROM }, { .arg = DNNL_ARG_TO } };
    dnnl_status_t status;

    cpu_enter(op->dev);
    status = dnnl_reorder_primitive_desc_create(&desc, from_md, engine, to_md, engine, NULL);
    if (status == dnnl_success) {
        status = dnnl_primitive_create(&primitive, desc);
    }
    if (status == dnnl_success) {
        status = dnnl_memory_create(&args[0].memory, from_md, engine, (void *)(uintptr_t)from);
    }
    if (status == dnnl_success) {
        status = dnnl_memory_create(&args[1].memory, to_md, engine, to);
    }
    if (status == dnnl_success) {
        status = dnnl_primitive_execute(primitive, op->dev->stream, 2, args);
    }
    dnnl_memory_destroy(args[0].memory);
    dnnl_memory_destroy(args[1].memory);
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(desc);
    return cpu_check(status, "reorder", op->node.name, err);
}

static int cpu_param_import(struct be_op *op, uint32_t p, const void *plain, void *block,
                            struct gems_error *err)
{
    const struct be_param *place = &op->info.params[p];
    uint64_t bytes = dnnl_memory_desc_get_size(&op->param_md[p]);
    char *to = (char *)block + place->offset;
    dnnl_memory_desc_t md;
    int st = cpu_plain_md(op->params[p].n_dims, op->params[p].dims, &md, err);

    memset(to + bytes, 0, place->elements * sizeof(float) - bytes);
    return st < 0 ? st : convert(op, &md, plain, &op->param_md[p], to, err);
}

static int cpu_param_export(struct be_op *op, uint32_t p, const void *block, void *ret_plain,
                            struct gems_error *err)
{
    dnnl_memory_desc_t md;
    int st = cpu_plain_md(op->params[p].n_dims, op->params[p].dims, &md, err);

    if (st < 0) {
        return st;
    }
    return convert(op, &op->param_md[p], (const char *)block + op->info.params[p].offset, &md,
                   ret_plain, err);
}

static int plain_out(struct be_op *op, dnnl_memory_desc_t *ret_md, struct gems_error *err)
{
    return cpu_tensor_md(op->dev, op->batch, &op->node.out, true, ret_md, err);
}

static int cpu_tensor_import(struct be_op *op, const void *plain, void *ret_tensor,
                             struct gems_error *err)
{
    dnnl_memory_desc_t md;
    int st = plain_out(op, &md, err);

    return st < 0 ? st : convert(op, &md, plain, &op->y_md, ret_tensor, err);
}

static int cpu_tensor_export(struct be_op *op, const void *tensor, void *ret_plain,
                             struct gems_error *err)
{
    dnnl_memory_desc_t md;
    int st = plain_out(op, &md, err);

    return st < 0 ? st : convert(op, &op->y_md, tensor, &md, ret_plain, err);
}

const struct be_ops cpu_ops = {
    .describe = cpu_describe,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .info = cpu_info,
    .forward = cpu_forward,
    .backward_input = cpu_backward_input,
    .backward_weight = cpu_backward_weight,
    .derive = cpu_derive,
    .param_import = cpu_param_import,
    .param_export = cpu_param_export,
    .tensor_import = cpu_tensor_import,
    .tensor_export = cpu_tensor_export,
};
