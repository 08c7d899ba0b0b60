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

static uint32_t count_groups(const struct job_spec *spec)
{
    return spec->parallel.groups ? spec->parallel.groups : 1;
}

/* Can the sums of the job be kept by this schedule in the groups of the job? */
static bool keeps_sums(const struct job_spec *spec, const struct schedule *schedule)
{
    struct plan plan = {
        .n_groups = count_groups(spec),
        .n_chains = schedule->n_chains,
        .n_blocks = spec->parallel.gradient_blocks,
    };

    return plan_keeps_sums(&plan);
}

static int check_copies(const struct job_spec *spec, const struct schedule *schedule,
                        struct gems_error *err)
{
    uint32_t n_groups = count_groups(spec), n = n_groups * schedule->n_chains;

    if (n > PLAN_MAX_COPIES) {
        gems_error_set(err, GEMS_E_INVALID,
                       "parallel.groups: %u groups of %s are %u copies of a stage, at most %d",
                       n_groups, schedule->name, n, PLAN_MAX_COPIES);
        gems_error_hint(err, "at most %u groups", PLAN_MAX_COPIES / schedule->n_chains);
        return GEMS_E_INVALID;
    }
    if (!keeps_sums(spec, schedule)) {
        gems_error_set(err, GEMS_E_INVALID,
                       "parallel.gradient_blocks: %u blocks cannot be dealt to the %u copies of a "
                       "stage (%u groups of %s) without changing the order of the sums",
                       spec->parallel.gradient_blocks, n, n_groups, schedule->name);
        gems_error_hint(err, "a new job with parallel.gradient_blocks: %u, or fewer groups", n);
        return GEMS_E_INVALID;
    }
    return GEMS_OK;
}

/* Devices of a pipeline and the stages they make, against the model. */
static int check_stages(const struct graph *graph, const struct job_spec *spec,
                        const struct schedule *schedule, uint32_t width, struct gems_error *err)
{
    uint32_t chunks = schedule_chunks(schedule, &spec->parallel), n = width * chunks;

    if (n > SPEC_MAX_STAGES) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "parallel.stages: %u devices with %u chunks each make %u stages, "
                              "at most %d",
                              width, chunks, n, SPEC_MAX_STAGES);
    }
    if (n > graph->n_layers && chunks > 1) {
        gems_error_set(err, GEMS_E_INVALID,
                       "parallel.stages: %u devices with %u chunks each make %u stages, the model "
                       "has %u layers",
                       width, chunks, n, graph->n_layers);
        gems_error_hint(err, "every stage holds at least one layer: at most %u devices",
                        graph->n_layers / chunks);
        return GEMS_E_INVALID;
    }
    if (n > graph->n_layers) {
        gems_error_set(err, GEMS_E_INVALID, "parallel.stages: %u stages for a model of %u layers",
                       n, graph->n_layers);
        gems_error_hint(err, "every stage holds at least one layer: at most %u", graph->n_layers);
        return GEMS_E_INVALID;
    }
    return GEMS_OK;
}

static int check_counts(const struct graph *graph, const struct job_spec *spec,
                        struct gems_error *err)
{
    const struct parallel_spec *parallel = &spec->parallel;
    const struct schedule *schedule =
        schedule_find(parallel->schedule == SCHEDULE_AUTO ? SCHEDULE_LAYER : parallel->schedule);
    uint32_t n = (spec->train.batch + parallel->microbatch - 1) / parallel->microbatch;
    uint32_t chunks = schedule_chunks(schedule, parallel);
    uint64_t sum = 0;
    int status;

    if (n > MAKE_MAX_MICROBATCHES) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "parallel.microbatch: %u makes %u micro-batches a step, at most %d",
                              parallel->microbatch, n, MAKE_MAX_MICROBATCHES);
    }
    if ((parallel->stages &&
         (status = check_stages(graph, spec, schedule, parallel->stages, err)) < 0) ||
        (status = check_copies(spec, schedule, err)) < 0) {
        return status;
    }
    if (parallel->n_balance % chunks || (parallel->stages && parallel->n_balance &&
                                         parallel->n_balance != parallel->stages * chunks)) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "parallel.balance: %u entries, %s has %u stages a device",
                              parallel->n_balance, schedule->name, chunks);
    }
    for (uint32_t i = 0; i < parallel->n_balance; i++) {
        sum += parallel->balance[i];
    }
    if (parallel->n_balance && sum != graph->n_layers) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "parallel.balance: adds up to %llu layers, the model has %u",
                              (unsigned long long)sum, graph->n_layers);
    }
    return GEMS_OK;
}

int planner_settle(const struct graph *graph, struct job_spec *spec, struct gems_error *err)
{
    struct parallel_spec *parallel = &spec->parallel;
    if (spec->train.lr <= 0) {
        spec->train.lr = spec->train.optimizer == OPTIMIZER_SGD ? 0.1 : 0.001;
    }
    if (!parallel->microbatch) {
        parallel->microbatch = auto_microbatch(spec->train.batch);
    }
    if (!parallel->gradient_blocks) {
        parallel->gradient_blocks = 2 * count_groups(spec);
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
    ret_kinds[n++] = SCHEDULE_1F1B;
    ret_kinds[n++] = SCHEDULE_GPIPE;
    if (keeps_sums(spec, schedule_find(SCHEDULE_GEMS_MAST))) {
        ret_kinds[n++] = SCHEDULE_GEMS_MAST;
    }
    ret_kinds[n++] = SCHEDULE_LAYER;
    return n;
}

/* Devices of one pipeline. */
static uint32_t count_width(const struct graph *graph, const struct job_spec *spec,
                            const struct schedule *schedule, uint32_t n_devices)
{
    const struct parallel_spec *parallel = &spec->parallel;
    uint32_t n = n_devices, chunks = schedule_chunks(schedule, parallel);

    if (parallel->stages || parallel->n_balance) {
        return parallel->stages ? parallel->stages : parallel->n_balance / chunks;
    }
    if (parallel->schedule == SCHEDULE_SINGLE) {
        return 1;
    }
    if (spec->resources.devices_max && n > spec->resources.devices_max) {
        n = spec->resources.devices_max;
    }
    n /= count_groups(spec);
    n = n < graph->n_layers / chunks ? n : graph->n_layers / chunks;
    n = n < SPEC_MAX_STAGES / chunks ? n : SPEC_MAX_STAGES / chunks;
    n -= schedule->is_even && n % 2;
    return n ? n : 1;
}

static int plan_best(struct make_input *input, uint32_t width, struct plan *ret_plan,
                     struct gems_error *err)
{
    enum schedule_kind kinds[SCHEDULE_COUNT];
    uint32_t n = list_schedules(input->spec, width, kinds);
    bool has = false;

    for (uint32_t i = 0; i < n; i++) {
        struct plan plan;
        int status;

        input->schedule = kinds[i];
        input->n_stages = width * schedule_chunks(schedule_find(kinds[i]), &input->spec->parallel);
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
    input->n_stages = ret_plan->n_stages;
    return GEMS_OK;
}

static int refuse_devices(const struct job_spec *spec, uint32_t width, uint32_t n_devices,
                          struct gems_error *err)
{
    uint32_t n_groups = count_groups(spec);

    if (n_groups == 1) {
        return gems_error_set(err, GEMS_E_NOFIT,
                              "parallel.stages: %u stages need as many devices, there are %u",
                              width, n_devices);
    }
    return gems_error_set(err, GEMS_E_NOFIT,
                          "parallel.groups: %u groups of %u devices need %u, there are %u",
                          n_groups, width, n_groups * width, n_devices);
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
    const struct schedule *schedule;
    uint32_t width;
    int status;

    if (!spec->parallel.microbatch || !spec->parallel.gradient_blocks) {
        return gems_error_set(err, GEMS_E_INTERNAL, "plan: the job is not settled");
    }
    status = check_counts(graph, spec, err);
    if (status < 0) {
        return status;
    }
    schedule = schedule_find(spec->parallel.schedule == SCHEDULE_AUTO ? SCHEDULE_LAYER
                                                                      : spec->parallel.schedule);
    width = count_width(graph, spec, schedule, n_devices);
    status = check_stages(graph, spec, schedule, width, err);
    if (status < 0) {
        return status;
    }
    if (width * count_groups(spec) > n_devices) {
        return refuse_devices(spec, width, n_devices, err);
    }
    status = plan_best(&input, width, ret_plan, err);
    if (status == GEMS_OK) {
        advice_write(&input, n_devices, ret_plan);
    }
    return status;
}
