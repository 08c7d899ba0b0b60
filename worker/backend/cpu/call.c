/* Memory descriptors, and calls: primitives with their arguments. */
#include "worker/backend/cpu/cpu.h"

#include <assert.h>
#include <string.h>

#include "common/error.h"

int cpu_plain_md(uint32_t n_dims, const uint32_t *dims, dnnl_memory_desc_t *ret_md,
                 struct gems_error *err)
{
    static const dnnl_format_tag_t tags[] = { dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd };
    dnnl_dims_t d = { 0 };

    for (uint32_t i = 0; i < n_dims; i++) {
        d[i] = dims[i];
    }
    return cpu_check(
        dnnl_memory_desc_init_by_tag(ret_md, (int)n_dims, d, dnnl_f32, tags[n_dims - 1]), "layout",
        "tensor", err);
}

int cpu_tensor_md(const struct be_device *dev, uint32_t batch, const struct shape *shape,
                  bool is_image, dnnl_memory_desc_t *ret_md, struct gems_error *err)
{
    dnnl_dims_t dims = { batch, shape->c, shape->h, shape->w };
    dnnl_format_tag_t tag = is_image ? dnnl_nchw : dev->blocked;

    if (shape->is_flat) {
        tag = dnnl_nc;
    }
    return cpu_check(
        dnnl_memory_desc_init_by_tag(ret_md, shape->is_flat ? 2 : 4, dims, dnnl_f32, tag), "layout",
        "tensor", err);
}

uint64_t cpu_take_temp(struct be_op *op, uint64_t bytes)
{
    uint64_t at = op->temp_bytes;

    op->temp_bytes += cpu_align(bytes);
    return at;
}

uint64_t cpu_take_kept(struct be_op *op, uint64_t bytes)
{
    uint64_t at = op->info.kept_bytes;

    op->info.kept_bytes += cpu_align(bytes);
    return at;
}

void cpu_take_param(struct be_op *op, uint32_t p, const dnnl_memory_desc_t *md)
{
    uint64_t bytes = cpu_align(dnnl_memory_desc_get_size(md));

    op->param_md[p] = *md;
    op->info.params[p] =
        (struct be_param){ .offset = op->info.param_bytes, .elements = bytes / sizeof(float) };
    op->info.param_bytes += bytes;
}

/* Room for the library's own scratch of a new call. */
static void bind_pad(struct be_op *op, enum cpu_call_id id)
{
    const dnnl_memory_desc_t *md = cpu_call_md(op, id, DNNL_ARG_SCRATCHPAD);
    uint64_t bytes = md ? dnnl_memory_desc_get_size(md) : 0;

    if (bytes > 0) {
        cpu_call_bind(op, id, DNNL_ARG_SCRATCHPAD, IN_PAD, 0);
        op->pad_bytes = cpu_align(bytes) > op->pad_bytes ? cpu_align(bytes) : op->pad_bytes;
    }
}

int cpu_call_plan(struct be_op *op, enum cpu_call_id id, const void *op_desc,
                  dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint, struct gems_error *err)
{
    struct cpu_call *call = &op->calls[id];
    int st = cpu_check(dnnl_primitive_desc_create(&call->desc, op_desc, attr ? attr : op->dev->attr,
                                                  op->dev->engine, hint),
                       op_name(op->node.kind), op->node.name, err);

    if (st < 0) {
        call->desc = NULL;
        return st;
    }
    bind_pad(op, id);
    return GEMS_OK;
}

int cpu_call_reorder(struct be_op *op, enum cpu_call_id id, const dnnl_memory_desc_t *from,
                     enum cpu_region from_region, uint64_t from_offset,
                     const dnnl_memory_desc_t *to, enum cpu_region to_region, uint64_t to_offset,
                     struct gems_error *err)
{
    struct cpu_call *call = &op->calls[id];
    int st = cpu_check(dnnl_reorder_primitive_desc_create(&call->desc, from, op->dev->engine, to,
                                                          op->dev->engine, op->dev->attr),
                       "reorder", op->node.name, err);

    if (st < 0) {
        call->desc = NULL;
        return st;
    }
    cpu_call_bind(op, id, DNNL_ARG_FROM, from_region, from_offset);
    cpu_call_bind(op, id, DNNL_ARG_TO, to_region, to_offset);
    bind_pad(op, id);
    return GEMS_OK;
}

const dnnl_memory_desc_t *cpu_call_md(const struct be_op *op, enum cpu_call_id id, int arg)
{
    return dnnl_primitive_desc_query_md(op->calls[id].desc, dnnl_query_exec_arg_md, arg);
}

void cpu_call_bind(struct be_op *op, enum cpu_call_id id, int arg, enum cpu_region region,
                   uint64_t offset)
{
    struct cpu_call *call = &op->calls[id];
    uint32_t i = call->n_args++;

    assert(i < CPU_MAX_ARGS);
    call->args[i].arg = arg;
    call->places[i].region = region;
    call->places[i].offset = offset;
}

int cpu_call_build(struct be_op *op, enum cpu_call_id id, struct gems_error *err)
{
    struct cpu_call *call = &op->calls[id];
    int st;

    if (!call->desc) {
        return GEMS_OK;
    }
    st = cpu_check(dnnl_primitive_create(&call->primitive, call->desc), "primitive", op->node.name,
                   err);
    for (uint32_t i = 0; st == GEMS_OK && i < call->n_args; i++) {
        const dnnl_memory_desc_t *md = cpu_call_md(op, id, call->args[i].arg);
        uint32_t nth = 0;

        for (uint32_t j = 0; j < i; j++) {
            nth += dnnl_memory_desc_equal(md, cpu_call_md(op, id, call->args[j].arg)) ? 1 : 0;
        }
        st = cpu_memory_get(op->dev, md, nth, &call->args[i].memory, err);
    }
    /* The primitive has what it needs of it; thousands of them add up. */
    dnnl_primitive_desc_destroy(call->desc);
    call->desc = NULL;
    return st;
}

void cpu_call_fini(struct cpu_call *call)
{
    if (call->primitive) {
        dnnl_primitive_destroy(call->primitive);
    }
    if (call->desc) {
        dnnl_primitive_desc_destroy(call->desc);
    }
    memset(call, 0, sizeof *call);
}

int cpu_call_run(struct be_op *op, enum cpu_call_id id, const struct cpu_bases *bases,
                 struct gems_error *err)
{
    struct cpu_call *call = &op->calls[id];
    dnnl_status_t status = dnnl_success;

    for (uint32_t i = 0; status == dnnl_success && i < call->n_args; i++) {
        char *base = bases->at[call->places[i].region];

        status = dnnl_memory_set_data_handle(call->args[i].memory, base + call->places[i].offset);
    }
    if (status == dnnl_success) {
        cpu_pool_enter(call->has_run);
        status =
            dnnl_primitive_execute(call->primitive, op->dev->stream, (int)call->n_args, call->args);
        cpu_pool_leave(call->has_run);
        call->has_run = true;
    }
    return cpu_check(status, "execution", op->node.name, err);
}

int cpu_bases(struct be_op *op, const struct be_args *args, bool needs_x,
              struct cpu_bases *ret_bases, struct gems_error *err)
{
    int st = GEMS_OK;

    cpu_enter(op->dev);
    /* Inputs are never written: the regions are of one type for brevity. */
    *ret_bases = (struct cpu_bases){ .at = { [IN_X0] = (char *)(uintptr_t)args->x[0],
                                             [IN_X1] = (char *)(uintptr_t)args->x[1],
                                             [IN_X2] = (char *)(uintptr_t)args->x[2],
                                             [IN_X3] = (char *)(uintptr_t)args->x[3],
                                             [IN_Y] = args->y,
                                             [IN_KEPT] = args->kept,
                                             [IN_DY] = (char *)(uintptr_t)args->dy,
                                             [IN_DX] = args->dx[0],
                                             [IN_PARAMS] = (char *)(uintptr_t)args->params,
                                             [IN_PARAMS2] = (char *)(uintptr_t)args->params2,
                                             [IN_GRADS] = args->grads,
                                             [IN_TEMP] = args->scratch,
                                             [IN_PAD] = (char *)args->scratch + op->temp_bytes } };
    for (uint32_t i = 0; st == GEMS_OK && needs_x && i < op->node.n_inputs; i++) {
        struct cpu_call *stage = &op->calls[CALL_STAGE0 + i];

        if (stage->primitive) {
            st = cpu_call_run(op, CALL_STAGE0 + i, ret_bases, err);
            ret_bases->at[IN_X0 + i] = (char *)args->scratch + stage->places[1].offset;
        }
    }
    return st;
}

void cpu_clear_tails(const struct be_op *op, void *grads)
{
    for (uint32_t p = 0; p < op->info.n_params; p++) {
        uint64_t used = dnnl_memory_desc_get_size(&op->param_md[p]);
        char *tensor = (char *)grads + op->info.params[p].offset;

        memset(tensor + used, 0, op->info.params[p].elements * sizeof(float) - used);
    }
}

void cpu_add_gradient(const struct be_op *op, const struct be_args *args, const void *block)
{
    for (uint32_t p = 0; p < op->info.n_params; p++) {
        uint64_t offset = op->info.params[p].offset;
        float *sum = (float *)((char *)args->grads + offset);

        cpu_loop_add(op->dev, sum, (const float *)((const char *)block + offset), sum,
                     dnnl_memory_desc_get_size(&op->param_md[p]) / sizeof(float));
    }
}

int cpu_weight_gradient(struct be_op *op, const struct be_args *args, struct cpu_bases *bases,
                        struct gems_error *err)
{
    char *grads = args->grads;
    int st;

    if (args->grads_write) {
        cpu_clear_tails(op, grads);
    } else {
        bases->at[IN_GRADS] = (char *)args->scratch + op->block_temp;
    }
    st = cpu_call_run(op, CALL_WEIGHT, bases, err);
    if (st == GEMS_OK && op->calls[CALL_REORDER].primitive) {
        st = cpu_call_run(op, CALL_REORDER, bases, err);
    }
    if (st == GEMS_OK && !args->grads_write) {
        cpu_add_gradient(op, args, bases->at[IN_GRADS]);
    }
    return st;
}
