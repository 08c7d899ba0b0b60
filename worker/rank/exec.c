#include "worker/rank/exec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "worker/rank/messages.h"

int exec_init(struct exec *exec, const struct plan *plan, uint32_t rank,
              const struct backend *backend, struct be_device *device, struct link *link,
              uint32_t element_bytes, struct resident *residents, uint32_t n_residents,
              const struct exec_memory *memory, struct gems_error *err)
{
    const struct stage *stages[PLAN_MAX_RESIDENT];
    int status;

    exec->plan = plan;
    exec->backend = backend;
    exec->device = device;
    exec->link = link;
    exec->element_bytes = element_bytes;
    exec->residents = residents;
    exec->n_residents = n_residents;
    exec->memory = *memory;
    for (uint32_t i = 0; i < n_residents; i++) {
        stages[i] = &residents[i].stage;
    }
    status = messages_init(exec, err);
    return status < 0
               ? status
               : prepare_programs(plan, rank, memory, stages, n_residents, exec->programs, err);
}

void exec_fini(struct exec *exec)
{
    prepare_fini(exec->programs);
    messages_fini(exec);
}

/* ---- passes through a stage ---- */

/* After an update: the others' weights, then the second layouts. */
static int freshen(struct resident *resident, struct gems_error *err)
{
    int status;

    if (!resident->is_stale) {
        return GEMS_OK;
    }
    status = reduce_gather_wait(&resident->reduce, err);
    if (status < 0) {
        return status;
    }
    resident->is_stale = false;
    return stage_derive(&resident->stage, err);
}

static void *at(const struct exec *exec, const struct exec_item *item, struct place place)
{
    switch (place.space) {
    case SPACE_SLOT:
        return item->slot + place.offset;
    case SPACE_TEMP:
        return (uint8_t *)exec->memory.temp + place.offset;
    case SPACE_GRAD_IN:
        return item->grad_in + place.offset;
    case SPACE_GRAD_OUT:
        return item->grad_out + place.offset;
    default:
        return NULL;
    }
}

static void fill_args(struct exec *exec, struct exec_item *item, const struct layout_step *step,
                      struct be_args *ret_args)
{
    const struct stage *stage = &exec->residents[item->resident].stage;
    const struct node *node = &stage->graph->nodes[step->node];
    uint32_t i = step->node - stage->first;
    uint32_t microbatch = item->instr.microbatch;
    struct be_args args = { .y = at(exec, item, step->y),
                            .kept = at(exec, item, step->kept),
                            .dy = at(exec, item, step->dy),
                            .scratch = exec->memory.scratch,
                            .grads_write = item->instr.is_first,
                            .draw = exec->run->draw,
                            .grad_scale = exec->run->grad_scale };

    args.draw.first_sample += (uint64_t)microbatch * exec->program->program->microbatch;
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        args.x[k] = at(exec, item, step->x[k]);
        args.dx[k] = at(exec, item, step->dx[k]);
    }
    if (stage->block_offset[i + 1] > stage->block_offset[i]) {
        args.params = (uint8_t *)stage->params + stage->block_offset[i];
        if (item->instr.op == INSTR_BACKWARD || item->instr.op == INSTR_BACKWARD_WEIGHT) {
            args.grads = (uint8_t *)stage->grads[item->instr.block] + stage->block_offset[i];
        }
    }
    if (stage->block2_offset[i + 1] > stage->block2_offset[i]) {
        args.params2 = (uint8_t *)stage->params2 + stage->block2_offset[i];
    }
    if (node->kind == OP_BATCHNORM) {
        args.stat_weight =
            (1 - node->decay) *
            pow(node->decay, exec->program->program->n_microbatches - 1 - microbatch);
    }
    if (node->kind == OP_LOSS) {
        args.labels = at(exec, item, item->variant->layout.labels);
        args.loss_sum = &exec->program->loss_sum[microbatch];
        args.n_correct = &exec->program->n_correct[microbatch];
    }
    *ret_args = args;
}

static int run_backward_step(struct exec *exec, struct be_op *op, const struct be_args *args,
                             struct gems_error *err)
{
    const struct be_ops *ops = exec->backend->ops;
    bool has_dx = false;
    int status = GEMS_OK;

    for (int i = 0; i < MODEL_MAX_INPUTS; i++) {
        has_dx = has_dx || args->dx[i];
    }
    if (has_dx) {
        status = ops->backward_input(op, args, err);
    }
    if (status == GEMS_OK && args->grads) {
        status = ops->backward_weight(op, args, err);
    }
    return status;
}

static int run_step(struct exec *exec, struct exec_item *item, const struct layout_step *step,
                    struct gems_error *err)
{
    const struct stage *stage = &exec->residents[item->resident].stage;
    uint64_t bytes = item->variant->facts->ops[step->node].out_bytes;
    struct be_args args;

    switch (step->kind) {
    case STEP_FORWARD:
    case STEP_REBUILD:
        fill_args(exec, item, step, &args);
        return exec->backend->ops->forward(item->variant->ops[step->node - stage->first], &args,
                                           err);
    case STEP_BACKWARD:
    case STEP_BACKWARD_INPUT:
    case STEP_BACKWARD_WEIGHT:
        fill_args(exec, item, step, &args);
        return run_backward_step(exec, item->variant->ops[step->node - stage->first], &args, err);
    case STEP_ADD:
        return exec->backend->vector->add(exec->device, at(exec, item, step->x[0]),
                                          at(exec, item, step->x[1]), at(exec, item, step->dx[0]),
                                          bytes / exec->element_bytes, err);
    case STEP_COPY:
        return exec->backend->device->copy_in(exec->device, at(exec, item, step->dx[0]),
                                              at(exec, item, step->x[0]), bytes, err);
    }
    return GEMS_OK;
}

static int run_steps(struct exec *exec, struct exec_item *item, const struct layout_step *steps,
                     uint32_t n, struct gems_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        int status = run_step(exec, item, &steps[i], err);

        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

/* ---- one function an instruction ---- */

static int run_load(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    const struct layout *layout = &item->variant->layout;
    const struct be_device_ops *ops = exec->backend->device;
    uint32_t batch = item->variant->batch;
    const void *images;
    const uint32_t *labels;
    enum timeline_kind before;
    int status = messages_drain(exec, item->slot_area, err);

    if (status < 0) {
        return status;
    }
    before = ledger_turn(&exec->ledger, TIMELINE_WAIT);
    status = loader_next(exec->loader, exec->load_i, &images, &labels, err);
    ledger_turn(&exec->ledger, before);
    if (status < 0) {
        return status;
    }
    if (layout->images.space != SPACE_NONE) {
        const struct graph *graph = exec->residents[item->resident].stage.graph;

        status = ops->copy_in(exec->device, at(exec, item, layout->images), images,
                              shape_count(&graph->nodes[0].out) * batch * exec->element_bytes, err);
    }
    if (status == GEMS_OK && layout->labels.space != SPACE_NONE) {
        status = ops->copy_in(exec->device, at(exec, item, layout->labels), labels,
                              batch * sizeof *labels, err);
    }
    loader_release(exec->loader, exec->load_i++);
    return status;
}

static int run_forward(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    const struct layout *layout = &item->variant->layout;
    uint32_t microbatch = item->instr.microbatch;
    int status = freshen(&exec->residents[item->resident], err);

    if (status == GEMS_OK) {
        status = messages_drain(exec, item->slot_area, err);
    }
    if (status == GEMS_OK) {
        status = messages_wait_inputs(exec, item, err);
    }
    if (status == GEMS_OK) {
        status = run_steps(exec, item, layout->forward, layout->n_forward, err);
    }
    if (status == GEMS_OK && item->instr.op == INSTR_FORWARD &&
        exec->program->has_loss[microbatch] && item->instr.stage + 1u == exec->plan->n_stages &&
        !isfinite(exec->program->loss_sum[microbatch])) {
        return gems_error_set(err, GEMS_E_NAN, "step %llu, micro-batch %u: the loss is %g",
                              (unsigned long long)exec->run->step.step, microbatch,
                              exec->program->loss_sum[microbatch]);
    }
    return status;
}

static int run_backward(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    const struct layout *layout = &item->variant->layout;
    int status = messages_drain(exec, item->slot_area, err);

    if (status == GEMS_OK) {
        status = messages_drain(exec, item->grad_out_area, err);
    }
    if (status == GEMS_OK && item->instr.is_first) {
        status = reduce_sent_wait(&exec->residents[item->resident].reduce, err);
    }
    if (status == GEMS_OK) {
        status = messages_wait_inputs(exec, item, err);
    }
    return status < 0 ? status : run_steps(exec, item, layout->backward, layout->n_backward, err);
}

static int run_combine(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    const struct stage *stage = &exec->residents[item->resident].stage;

    return exec->backend->vector->add(
        exec->device, stage->grads[item->instr.block], stage->grads[item->instr.slot],
        stage->grads[item->instr.block], stage->block_offset[stage->n_nodes] / exec->element_bytes,
        err);
}

static uint32_t copies_of(const struct exec *exec, const struct exec_item *item)
{
    return exec->residents[item->resident].reduce.n_copies == 1
               ? 1
               : exec->program->reduce_copies[item->resident];
}

/* The rank's own sum; NULL for a copy without micro-batches. */
static void *sum_of(const struct resident *resident)
{
    return resident->stage.n_blocks ? resident->stage.grads[0] : NULL;
}

/* A copy without micro-batches in this step has not met the weights of the
 * last one yet. */
static int run_reduce(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    struct resident *resident = &exec->residents[item->resident];
    int status = freshen(resident, err);

    if (status == GEMS_OK) {
        reduce_send(&resident->reduce, copies_of(exec, item), sum_of(resident));
    }
    return status;
}

static int run_update(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    struct resident *resident = &exec->residents[item->resident];
    const void *sum;
    int status;

    ledger_turn(&exec->ledger, TIMELINE_REDUCE);
    status = reduce_sum(&resident->reduce, copies_of(exec, item), sum_of(resident), &sum, err);
    ledger_turn(&exec->ledger, TIMELINE_COMPUTE);
    if (status < 0) {
        return status;
    }
    resident->is_stale = true;
    return optim_update(&resident->optim, sum, &exec->run->step, err);
}

static int run_gather(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    (void)err;
    reduce_gather_send(&exec->residents[item->resident].reduce);
    return GEMS_OK;
}

typedef int (*run_fn)(struct exec *exec, struct exec_item *item, struct gems_error *err);

/* prepare_programs lets nothing pass that has no entry. */
static const run_fn run_table[INSTR_OP_COUNT] = {
    [INSTR_LOAD] = run_load,
    [INSTR_FORWARD] = run_forward,
    [INSTR_BACKWARD] = run_backward,
    [INSTR_SEND_ACT] = messages_send,
    [INSTR_RECV_ACT] = messages_receive,
    [INSTR_SEND_GRAD] = messages_send,
    [INSTR_RECV_GRAD] = messages_receive,
    [INSTR_COMBINE] = run_combine,
    [INSTR_REDUCE] = run_reduce,
    [INSTR_UPDATE] = run_update,
    [INSTR_GATHER] = run_gather,
    [INSTR_EVALUATE] = run_forward,
};

static void begin(struct exec *exec, enum program_kind kind, const struct exec_run *run)
{
    exec->run_i++;
    exec->run = run;
    exec->kind = kind;
    exec->program = &exec->programs[kind];
    exec->own_i = exec->early_i = 0;
    for (uint32_t i = 0; i < exec->n_residents; i++) {
        reduce_post(&exec->residents[i].reduce, exec->program->reduce_copies[i]);
    }
}

static void note(struct exec *exec, const struct exec_item *item)
{
    atomic_store_explicit(&exec->watch.microbatch, item->instr.microbatch, memory_order_relaxed);
    atomic_store_explicit(&exec->watch.phase, item->instr.op, memory_order_relaxed);
    atomic_fetch_add_explicit(&exec->watch.watermark, 1, memory_order_relaxed);
}

/* For heartbeats: where the time has gone up to now. */
static void show_times(struct exec *exec)
{
    const struct ledger *ledger = &exec->ledger;
    uint64_t busy = 0, wait = ledger->total_ns[TIMELINE_WAIT];

    for (int kind = 0; kind < TIMELINE_SPENT; kind++) {
        busy += ledger->total_ns[kind];
    }
    atomic_store_explicit(&exec->watch.busy_ns, busy - wait, memory_order_relaxed);
    atomic_store_explicit(&exec->watch.wait_ns, wait, memory_order_relaxed);
}

static void show_step(struct exec *exec)
{
    for (int kind = 0; kind < TIMELINE_SPENT; kind++) {
        atomic_store_explicit(&exec->watch.step_ns[kind],
                              ledger_step_ns(&exec->ledger, (enum timeline_kind)kind),
                              memory_order_relaxed);
    }
}

static int run_items(struct exec *exec, struct gems_error *err)
{
    for (uint32_t i = 0; i < exec->program->n_items; i++) {
        struct exec_item *item = &exec->program->items[i];
        int status;

        ledger_next(&exec->ledger, item->instr.op);
        show_times(exec);
        status = messages_post(exec, i, err);
        if (status < 0) {
            return status;
        }
        note(exec, item);
        status = run_table[item->instr.op](exec, item, err);
        if (status < 0) {
            return status;
        }
    }
    return messages_post(exec, exec->program->n_items, err);
}

int exec_program_run(struct exec *exec, enum program_kind kind, const struct exec_run *run,
                     struct gems_error *err)
{
    int status;

    ledger_begin(&exec->ledger);
    begin(exec, kind, run);
    status = run_items(exec, err);
    ledger_end(&exec->ledger, kind == PROGRAM_TRAIN || kind == PROGRAM_TRAIN_LAST);
    show_times(exec);
    show_step(exec);
    return status;
}

int exec_finish(struct exec *exec, struct gems_error *err)
{
    int status = GEMS_OK;

    for (uint32_t i = 0; i < exec->n_residents && status == GEMS_OK; i++) {
        status = freshen(&exec->residents[i], err);
        if (status == GEMS_OK) {
            status = reduce_finish(&exec->residents[i].reduce, err);
        }
    }
    for (uint32_t i = 0; i < exec->n_areas && status == GEMS_OK; i++) {
        status = messages_drain(exec, (int32_t)i, err);
    }
    return status;
}
