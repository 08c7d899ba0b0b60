#include "plan/planner.h"

#include "common/error.h"
#include "plan/advice.h"
#include "plan/choose.h"
#include "plan/sched.h"

/* A batch is split into so many micro-batches unless the job says otherwise: as
 * many as two chains of two need, fewer than would make batch-norm coarse. The
 * rule looks at the job alone, since the split decides the numbers. */
enum { AUTO_MICROBATCHES = 4 };

static uint32_t auto_microbatch(uint32_t batch)
{
    uint32_t n = AUTO_MICROBATCHES;

    while (n > batch) {
        n /= 2; /* two chains share them evenly */
    }
    return (batch + n - 1) / n;
}

static int check_counts(const struct graph *graph, const struct job_spec *spec,
                        struct gems_error *err)
{
    const struct parallel_spec *parallel = &spec->parallel;
    uint32_t stages = parallel->stages ? parallel->stages : parallel->n_balance;
    uint32_t n = (spec->train.batch + parallel->microbatch - 1) / parallel->microbatch;
    uint64_t sum = 0;

    if (n > MAKE_MAX_MICROBATCHES) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "parallel.microbatch: %u makes %u micro-batches a step, at most %d",
                              parallel->microbatch, n, MAKE_MAX_MICROBATCHES);
    }
    if (stages > graph->n_layers) {
        gems_error_set(err, GEMS_E_INVALID, "parallel.stages: %u stages for a model of %u layers",
                       stages, graph->n_layers);
        gems_error_hint(err, "every stage holds at least one layer: at most %u", graph->n_layers);
        return GEMS_E_INVALID;
    }
    for (uint32_t i = 0; i < parallel->n_balance; i++) {
        sum += parallel->balance[i];
    }
    if (parallel->n_balance && sum != graph->n_layers) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "parallel.balance: adds up to %llu layers, the model has %u",
                              (unsigned long long)sum, graph->n_layers);
    }
    if (parallel->schedule == SCHEDULE_GEMS_MAST && parallel->gradient_blocks < 2) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "parallel.gradient_blocks: gems-mast sums in at least 2");
    }
    return GEMS_OK;
}

int planner_settle(const struct graph *graph, struct job_spec *spec, struct gems_error *err)
{
    struct parallel_spec *parallel = &spec->parallel;
    uint32_t groups = parallel->groups ? parallel->groups : 1;

    if (spec->train.lr <= 0) {
        spec->train.lr = spec->train.optimizer == OPTIMIZER_SGD ? 0.1 : 0.001;
    }
    if (!parallel->microbatch) {
        parallel->microbatch = auto_microbatch(spec->train.batch);
    }
    if (!parallel->gradient_blocks) {
        parallel->gradient_blocks = 2 * groups;
    }
    return check_counts(graph, spec, err);
}

static uint32_t add_size(uint32_t *sizes, uint32_t n, uint64_t size)
{
    for (uint32_t i = 0; i < n; i++) {
        if (sizes[i] == size) {
            return n;
        }
    }
    if (size) {
        sizes[n++] = (uint32_t)size;
    }
    return n;
}

uint32_t planner_batch_sizes(const struct job_spec *spec, uint64_t n_train, uint64_t n_eval,
                             uint32_t ret_sizes[FACTS_MAX_SIZES])
{
    uint32_t batch = spec->train.batch, size = spec->parallel.microbatch;
    uint64_t steps[] = { batch, n_train % batch, n_eval % batch };
    uint32_t n = add_size(ret_sizes, 0, size);

    /* the last micro-batch of each kind of step; a step shorter than one has only it */
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        n = add_size(ret_sizes, n, steps[i] % size);
    }
    return n;
}

/* Schedules to try, the first of equal ones wins. */
static uint32_t list_schedules(const struct job_spec *spec, uint32_t n_stages,
                               enum schedule_kind ret_kinds[SCHEDULE_COUNT])
{
    uint32_t n = 0;

    if (spec->parallel.schedule != SCHEDULE_AUTO) {
        ret_kinds[n++] = spec->parallel.schedule;
        return n;
    }
    if (n_stages == 1) {
        ret_kinds[n++] = SCHEDULE_SINGLE;
        return n;
    }
    ret_kinds[n++] = SCHEDULE_GPIPE;
    if (spec->parallel.gradient_blocks > 1) {
        ret_kinds[n++] = SCHEDULE_GEMS_MAST;
    }
    ret_kinds[n++] = SCHEDULE_LAYER;
    return n;
}

static uint32_t count_stages(const struct graph *graph, const struct job_spec *spec,
                             uint32_t n_devices)
{
    const struct parallel_spec *parallel = &spec->parallel;
    uint32_t n = n_devices;

    if (parallel->stages || parallel->n_balance) {
        return parallel->stages ? parallel->stages : parallel->n_balance;
    }
    if (parallel->schedule == SCHEDULE_SINGLE) {
        return 1;
    }
    if (spec->resources.devices_max && n > spec->resources.devices_max) {
        n = spec->resources.devices_max;
    }
    n = n < graph->n_layers ? n : graph->n_layers;
    return n < SPEC_MAX_STAGES ? n : SPEC_MAX_STAGES;
}

static int plan_best(struct make_input *input, struct plan *ret_plan, struct gems_error *err)
{
    enum schedule_kind kinds[SCHEDULE_COUNT];
    uint32_t n = list_schedules(input->spec, input->n_stages, kinds);
    bool has = false;

    for (uint32_t i = 0; i < n; i++) {
        struct plan plan;
        int status;

        input->schedule = kinds[i];
        status = choose_cut(input, &plan, err);
        if (status < 0) {
            if (has) {
                plan_fini(ret_plan);
            }
            return status;
        }
        if (has && !choose_is_better(&plan, ret_plan)) {
            plan_fini(&plan);
            continue;
        }
        if (has) {
            plan_fini(ret_plan);
        }
        *ret_plan = plan;
        has = true;
    }
    input->schedule = ret_plan->schedule;
    return GEMS_OK;
}

int planner_plan(const struct graph *graph, const struct job_spec *spec,
                 const struct fact_set *facts, const struct plan_device *devices,
                 uint32_t n_devices, struct plan *ret_plan, struct gems_error *err)
{
    struct make_input input = {
        .graph = graph,
        .spec = spec,
        .facts = facts,
        .devices = devices,
    };
    int status;

    if (!spec->parallel.microbatch || !spec->parallel.gradient_blocks) {
        return gems_error_set(err, GEMS_E_INTERNAL, "plan: the job is not settled");
    }
    status = check_counts(graph, spec, err);
    if (status < 0) {
        return status;
    }
    input.n_stages = count_stages(graph, spec, n_devices);
    if (!n_devices || input.n_stages > n_devices) {
        return gems_error_set(err, GEMS_E_NOFIT,
                              "parallel.stages: %u stages need as many devices, "
                              "there are %u",
                              input.n_stages, n_devices);
    }
    status = plan_best(&input, ret_plan, err);
    if (status == GEMS_OK) {
        advice_write(&input, n_devices, ret_plan);
    }
    return status;
}
