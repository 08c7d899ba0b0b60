#include "plan/choose.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "plan/cut.h"
#include "plan/sched.h"

uint64_t choose_peak(const struct plan *plan)
{
    uint64_t most = 0;

    for (uint32_t r = 0; r < plan->n_ranks; r++) {
        most = plan->memory[r].total_bytes > most ? plan->memory[r].total_bytes : most;
    }
    return most;
}

uint64_t choose_excess(const struct plan *plan)
{
    uint64_t most = 0;

    for (uint32_t r = 0; r < plan->n_ranks; r++) {
        const struct rank_memory *memory = &plan->memory[r];

        if (memory->limit_bytes && memory->total_bytes > memory->limit_bytes + most) {
            most = memory->total_bytes - memory->limit_bytes;
        }
    }
    return most;
}

bool choose_is_better(const struct plan *a, const struct plan *b)
{
    static const double SAME_TIME = 1.02;

    if (a->fits != b->fits) {
        return a->fits;
    }
    if (!a->fits) {
        return choose_excess(a) < choose_excess(b);
    }
    if (a->step_seconds * SAME_TIME < b->step_seconds) {
        return true;
    }
    return a->step_seconds < b->step_seconds * SAME_TIME && choose_peak(a) < choose_peak(b);
}

/* Parameter-sized buffers of a stage beside the parameters: gradients and state. */
static double state_buffers(const struct job_spec *spec, const struct schedule *schedule)
{
    double states = spec->train.optimizer == OPTIMIZER_SGD ? 1 : 2;
    uint32_t n_groups = spec->parallel.groups ? spec->parallel.groups : 1;
    uint32_t n_copies = schedule->n_chains * n_groups;
    double gradients = spec->parallel.gradient_blocks > n_copies ? 2 : 1;

    return gradients + states / n_copies;
}

static uint32_t count_held(const struct make_input *input)
{
    const struct parallel_spec *parallel = &input->spec->parallel;
    uint32_t n_groups = parallel->groups ? parallel->groups : 1, width = input->n_stages, passes;
    uint32_t n = (input->spec->train.batch + parallel->microbatch - 1) / parallel->microbatch;

    n = (n + n_groups - 1) / n_groups;
    switch (input->schedule) {
    case SCHEDULE_SINGLE:
    case SCHEDULE_LAYER:
        return 1;
    case SCHEDULE_GEMS_MAST:
        return (n + 1) / 2;
    case SCHEDULE_GEMS_MASTER:
        passes = parallel->replications ? parallel->replications : 2;
        return (n + passes - 1) / passes;
    case SCHEDULE_GPIPE:
        return n;
    default:
        return n < width ? n : width;
    }
}

static int try_cut(const struct make_input *input, const uint32_t *counts, bool *inout_has,
                   struct plan *inout_best, struct gems_error *err)
{
    struct make_input given = *input;
    struct plan plan;
    int status;

    given.counts = counts;
    status = plan_make(&given, &plan, err);
    if (status < 0) {
        return status;
    }
    if (*inout_has && !choose_is_better(&plan, inout_best)) {
        plan_fini(&plan);
        return GEMS_OK;
    }
    if (*inout_has) {
        plan_fini(inout_best);
    }
    *inout_best = plan;
    *inout_has = true;
    return GEMS_OK;
}

static int try_cuts(const struct make_input *input, struct plan *ret_plan, struct gems_error *err)
{
    const struct schedule *schedule = schedule_find(input->schedule);
    const struct facts *facts = fact_set_find(input->facts, input->spec->parallel.microbatch);
    uint32_t by_time[SPEC_MAX_STAGES], by_memory[SPEC_MAX_STAGES];
    struct cut_input cut = {
        .n_layers = input->graph->n_layers,
        .n_stages = input->n_stages,
        .n_slots = count_held(input),
        .is_mirrored = schedule->n_chains > 1,
    };
    struct cut_layer *layers = calloc(cut.n_layers, sizeof *layers);
    bool has = false;
    int status;

    if (!layers || !facts) {
        free(layers);
        return layers ? gems_error_set(err, GEMS_E_INTERNAL, "plan: no facts for %u samples",
                                       input->spec->parallel.microbatch)
                      : gems_error_set(err, GEMS_E_NOMEM, "plan: no memory");
    }
    cut.layers = layers;
    if ((status = cut_layers(input->graph, facts, state_buffers(input->spec, schedule), layers,
                             err)) == GEMS_OK &&
        (status = cut_by_time(&cut, by_time, err)) == GEMS_OK &&
        (status = cut_by_memory(&cut, by_memory, err)) == GEMS_OK &&
        (status = try_cut(input, by_time, &has, ret_plan, err)) == GEMS_OK &&
        memcmp(by_time, by_memory, cut.n_stages * sizeof *by_time)) {
        status = try_cut(input, by_memory, &has, ret_plan, err);
    }
    free(layers);
    if (status < 0 && has) {
        plan_fini(ret_plan);
    }
    return status;
}

int choose_cut(const struct make_input *input, struct plan *ret_plan, struct gems_error *err)
{
    const struct parallel_spec *parallel = &input->spec->parallel;
    uint32_t n_layers = input->graph->n_layers;
    bool has = false;

    if (input->n_stages > n_layers) {
        gems_error_set(err, GEMS_E_INVALID, "parallel.stages: %u stages for a model of %u layers",
                       input->n_stages, n_layers);
        gems_error_hint(err, "every stage holds at least one layer: at most %u", n_layers);
        return GEMS_E_INVALID;
    }
    if (parallel->n_balance != input->n_stages) {
        return try_cuts(input, ret_plan, err);
    }
    for (uint32_t s = 0; s < parallel->n_balance; s++) {
        n_layers -= parallel->balance[s] <= n_layers ? parallel->balance[s] : n_layers + 1;
        if (n_layers > input->graph->n_layers) {
            break;
        }
    }
    if (n_layers) {
        gems_error_set(err, GEMS_E_INVALID,
                       "parallel.balance: does not add up to the model's %u layers",
                       input->graph->n_layers);
        gems_error_hint(err, "the sum of all entries must be %u", input->graph->n_layers);
        return GEMS_E_INVALID;
    }
    return try_cut(input, parallel->balance, &has, ret_plan, err);
}
