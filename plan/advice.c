/* What would make a plan fit is found by trying, nearest change first: another
 * schedule on the same devices (the numbers stay), more devices (the numbers
 * stay), smaller micro-batches (batch-norm then sees fewer samples). */
#include "plan/advice.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/choose.h"
#include "plan/planner.h"
#include "plan/sched.h"

static void append(struct plan *plan, size_t *inout_used, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(struct plan *plan, size_t *inout_used, const char *format, ...)
{
    va_list args;
    int n;

    if (*inout_used >= sizeof plan->advice) {
        return;
    }
    va_start(args, format);
    n = vsnprintf(plan->advice + *inout_used, sizeof plan->advice - *inout_used, format, args);
    va_end(args);
    *inout_used += n > 0 ? (size_t)n : 0;
}

void advice_bytes(uint64_t bytes, char *ret_text, size_t size)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double value = (double)bytes;
    int unit = 0;

    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(ret_text, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

/* Bytes of the fullest device, if the trial fits; 0 if it does not. */
static uint64_t try_plan(const struct make_input *input)
{
    struct plan plan;
    uint64_t peak;

    if (choose_cut(input, &plan, NULL) < 0) {
        return 0;
    }
    peak = plan.fits ? choose_peak(&plan) : 0;
    plan_fini(&plan);
    return peak;
}

static uint32_t count_groups(const struct make_input *input)
{
    return input->spec->parallel.groups ? input->spec->parallel.groups : 1;
}

/* Devices of a pipeline. */
static uint32_t width_of(const struct make_input *input)
{
    return input->n_stages /
           schedule_chunks(schedule_find(input->schedule), &input->spec->parallel);
}

static bool keeps_sums(const struct make_input *input, enum schedule_kind kind)
{
    struct plan plan = {
        .n_groups = count_groups(input),
        .n_chains = schedule_find(kind)->n_chains,
        .n_blocks = input->spec->parallel.gradient_blocks,
    };

    return plan_keeps_sums(&plan);
}

static bool try_schedules(const struct make_input *input, struct plan *plan, size_t *inout_used)
{
    static const enum schedule_kind kinds[] = { SCHEDULE_GEMS_MAST, SCHEDULE_LAYER };
    uint32_t width = width_of(input);
    struct make_input trial = *input;
    char text[32];

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        uint64_t peak;

        trial.schedule = kinds[i];
        if (kinds[i] == input->schedule || width < 2 || !keeps_sums(input, kinds[i])) {
            continue;
        }
        trial.n_stages = width;
        peak = try_plan(&trial);
        if (peak) {
            advice_bytes(peak, text, sizeof text);
            append(plan, inout_used, "; parallel.schedule: %s would fit with %s",
                   schedule_name(kinds[i]), text);
            return true;
        }
    }
    return false;
}

/* More devices, each like the one that has least. */
static struct plan_device *many_devices(const struct make_input *input, uint32_t n_devices,
                                        uint32_t n_wanted)
{
    struct plan_device *devices = calloc(n_wanted, sizeof *devices);

    for (uint32_t i = 0; devices && i < n_wanted; i++) {
        devices[i] = input->devices[0];
        for (uint32_t k = 1; k < n_devices; k++) {
            if (input->devices[k].memory_bytes < devices[i].memory_bytes) {
                devices[i] = input->devices[k];
            }
        }
    }
    return devices;
}

static bool try_stages(const struct make_input *input, uint32_t n_devices, struct plan *plan,
                       size_t *inout_used)
{
    uint32_t chunks = input->n_stages / width_of(input), n_groups = count_groups(input);
    uint32_t layers =
        input->graph->n_layers < SPEC_MAX_STAGES ? input->graph->n_layers : SPEC_MAX_STAGES;
    uint32_t most = layers / chunks, width = width_of(input);
    struct plan_device *devices = many_devices(input, n_devices, SPEC_MAX_STAGES * n_groups);
    struct make_input trial = *input;
    bool has = false;
    char text[32];

    if (!devices) {
        return false;
    }
    trial.devices = devices;
    if (input->schedule == SCHEDULE_SINGLE) {
        trial.schedule = SCHEDULE_LAYER;
    }
    for (uint32_t p = width + 1; p <= most && !has; p += 1 + (p - width) / 4) {
        uint64_t peak;

        trial.n_stages = p * chunks;
        peak = try_plan(&trial);
        if (peak) {
            advice_bytes(peak, text, sizeof text);
            append(plan, inout_used,
                   "; parallel.stages: %u%s%s would fit with %s on each of %u devices", p,
                   trial.schedule != input->schedule ? " and schedule: " : "",
                   trial.schedule != input->schedule ? schedule_name(trial.schedule) : "", text,
                   p * n_groups);
            has = true;
        }
    }
    free(devices);
    return has;
}

static uint64_t scale(uint64_t bytes, uint32_t to, uint32_t from)
{
    return (bytes * to + from - 1) / from;
}

/* What the facts would be at another batch size: tensors shrink with it. */
static int scale_facts(const struct facts *from, uint32_t n_nodes, uint32_t batch,
                       struct facts *ret_facts)
{
    struct op_facts *ops = malloc(n_nodes * sizeof *ops);
    double share = (double)batch / from->batch;

    if (!ops) {
        return -1;
    }
    for (uint32_t i = 0; i < n_nodes; i++) {
        ops[i] = from->ops[i];
        ops[i].out_bytes = scale(ops[i].out_bytes, batch, from->batch);
        ops[i].kept_bytes = scale(ops[i].kept_bytes, batch, from->batch);
        ops[i].scratch_bytes = scale(ops[i].scratch_bytes, batch, from->batch);
        ops[i].forward_seconds *= share;
        ops[i].backward_input_seconds *= share;
        ops[i].backward_weight_seconds *= share;
    }
    *ret_facts = (struct facts){ .batch = batch, .n_nodes = n_nodes, .ops = ops };
    return 0;
}

static uint64_t try_microbatch(const struct make_input *input, uint32_t microbatch)
{
    const struct facts *from = fact_set_find(input->facts, input->spec->parallel.microbatch);
    struct job_spec spec = *input->spec;
    struct fact_set facts = { .n_train = input->facts->n_train, .n_eval = input->facts->n_eval };
    struct make_input trial = *input;
    uint32_t sizes[FACTS_MAX_SIZES], n;
    uint64_t peak;

    spec.parallel.microbatch = microbatch;
    n = planner_batch_sizes(&spec, facts.n_train, facts.n_eval, sizes);
    while (facts.n_sizes < n && scale_facts(from, input->graph->n_nodes, sizes[facts.n_sizes],
                                            &facts.sizes[facts.n_sizes]) == 0) {
        facts.n_sizes++;
    }
    trial.spec = &spec;
    trial.facts = &facts;
    peak = facts.n_sizes == n ? try_plan(&trial) : 0;
    fact_set_fini(&facts);
    return peak;
}

static bool try_microbatches(const struct make_input *input, struct plan *plan, size_t *inout_used)
{
    char text[32];

    for (uint32_t size = input->spec->parallel.microbatch / 2; size > 0; size /= 2) {
        uint64_t peak = (input->spec->train.batch + size - 1) / size <= MAKE_MAX_MICROBATCHES
                            ? try_microbatch(input, size)
                            : 0;

        if (peak) {
            advice_bytes(peak, text, sizeof text);
            append(plan, inout_used, "; parallel.microbatch: %u would fit with about %s", size,
                   text);
            return true;
        }
    }
    return false;
}

/* The rank that lacks most. */
static uint32_t worst_rank(const struct plan *plan)
{
    uint32_t worst = 0;
    uint64_t most = 0;

    for (uint32_t r = 0; r < plan->n_ranks; r++) {
        const struct rank_memory *memory = &plan->memory[r];

        if (memory->limit_bytes && memory->total_bytes > memory->limit_bytes + most) {
            most = memory->total_bytes - memory->limit_bytes;
            worst = r;
        }
    }
    return worst;
}

void advice_write(const struct make_input *input, uint32_t n_devices, struct plan *plan)
{
    const struct facts *facts = fact_set_find(input->facts, plan->microbatch);
    const struct rank_memory *memory = &plan->memory[worst_rank(plan)];
    struct make_input trial = *input;
    char needs[32], has[32];
    size_t used = 0;
    bool has_way;

    plan->advice[0] = '\0';
    if (plan->fits) {
        if (!facts->is_exact) {
            append(plan, &used, "memory is a bound, not exact");
        } else if (!facts->is_measured) {
            append(plan, &used, "times are estimated, not measured");
        }
        return;
    }
    advice_bytes(memory->total_bytes, needs, sizeof needs);
    advice_bytes(memory->limit_bytes, has, sizeof has);
    append(plan, &used, "rank %u needs %s and has %s", worst_rank(plan), needs, has);
    trial.is_trial = true;
    has_way = try_schedules(&trial, plan, &used);
    has_way = try_stages(&trial, n_devices, plan, &used) || has_way;
    has_way = try_microbatches(&trial, plan, &used) || has_way;
    if (!has_way) {
        append(plan, &used, "; no number of stages, schedule or micro-batch makes it fit");
    }
}
