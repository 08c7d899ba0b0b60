#include "plan/schedules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "plan/sched.h"

enum { MAX_MICROBATCHES = 4096, MAX_PASSES = 1 << 17 };

static struct plan head_of(const struct schedules_layout *layout)
{
    const struct schedule *schedule = schedule_find(layout->kind);
    const struct parallel_spec parallel = { .chunks = layout->chunks };
    uint32_t n_groups = layout->groups ? layout->groups : 1;
    struct plan plan = {
        .schedule = layout->kind,
        .n_stages = layout->width * (schedule ? schedule_chunks(schedule, &parallel) : 1),
        .n_groups = n_groups,
        .n_chains = schedule ? schedule->n_chains : 1,
        .n_ranks = layout->width * n_groups,
        .microbatch = 1,
        .n_microbatches = layout->microbatches,
        .n_blocks = layout->blocks ? layout->blocks : 2 * n_groups,
    };

    if (layout->kind == SCHEDULE_GEMS_MASTER) {
        plan.pass_microbatches =
            layout->parts ? layout->parts : sched_pass_microbatches(&plan, layout->passes);
    }
    return plan;
}

int schedules_uniform_plan(const struct schedules_layout *layout, struct plan *ret_plan,
                           struct gems_error *err)
{
    struct plan plan = head_of(layout);
    struct sched_input input = {
        .plan = &plan,
        .n_microbatches = layout->microbatches,
        .microbatch = 1,
        .last_microbatch = 1,
    };
    bool has_gradient[SPEC_MAX_STAGES];
    int status;

    if (!plan.n_stages || plan.n_stages > SPEC_MAX_STAGES) {
        return gems_error_set(err, GEMS_E_INVALID, "stages: %u is not in 1..%d", plan.n_stages,
                              SPEC_MAX_STAGES);
    }
    plan.n_edges = plan.n_stages - 1;
    plan.edges = calloc(plan.n_stages, sizeof *plan.edges);
    if (!plan.edges) {
        return gems_error_set(err, GEMS_E_NOMEM, "plan of %u stages: no memory", plan.n_stages);
    }
    for (uint32_t s = 0; s < plan.n_stages; s++) {
        plan.stage_layers[s] = 1;
        plan.stage_recompute[s] = layout->recompute;
        plan.stage_node[s] = s;
        has_gradient[s] = true;
        if (s + 1 < plan.n_stages) {
            plan.edges[s] = (struct plan_edge){ s, (uint16_t)s, (uint16_t)(s + 1) };
        }
    }
    plan.stage_node[plan.n_stages] = plan.n_stages;
    input.has_gradient = has_gradient;
    status = sched_make(&input, &plan.train, err);
    if (status == GEMS_OK) {
        *ret_plan = plan;
    } else {
        plan_fini(&plan);
    }
    return status;
}

/* Does the instruction hold its slot on from here (1), or let it go (-1)? */
static int change_of(const struct instr *instr)
{
    return instr->op == INSTR_FORWARD                                          ? 1
           : instr->op == INSTR_BACKWARD || instr->op == INSTR_BACKWARD_WEIGHT ? -1
                                                                               : 0;
}

static double peak_of(const struct instr_list *list)
{
    int held = 0, peak = 0;

    for (uint32_t i = 0; i < list->n; i++) {
        held += change_of(&list->items[i]);
        peak = held > peak ? held : peak;
    }
    return peak;
}

/* Fills the run of a schedule that is possible. */
static int simulate(const struct schedules_question *question, enum schedule_kind kind,
                    struct schedules_run *run, struct gems_error *err)
{
    double forward[SPEC_MAX_STAGES], backward[SPEC_MAX_STAGES];
    const struct sim_costs costs = { .forward = forward, .backward = backward };
    const struct schedules_layout layout = {
        .kind = kind,
        .width = question->stages,
        .microbatches = question->microbatches,
        .passes = question->replications,
        .parts = question->parts,
    };
    double back = question->backward / (schedule_find(kind)->is_split ? 2 : 1);
    uint32_t chunks;
    int status = schedules_uniform_plan(&layout, &run->plan, err);

    if (status < 0) {
        return status;
    }
    chunks = run->plan.n_stages / run->plan.n_ranks;
    for (uint32_t s = 0; s < run->plan.n_stages; s++) {
        forward[s] = question->forward / chunks;
        backward[s] = question->backward / chunks;
    }
    run->shortest = fmin(question->forward, back) / chunks;
    status = sim_run(&run->plan, &run->plan.train, &costs, &run->result, err);
    if (status < 0) {
        plan_fini(&run->plan);
    }
    return status;
}

static int measure(const struct schedules_question *question, struct schedules_row *row,
                   struct gems_error *err)
{
    struct schedules_run run;
    int status = simulate(question, row->kind, &run, err);

    if (status < 0) {
        return status;
    }
    row->is_possible = true;
    row->time = run.result.step_seconds;
    row->idle_fraction = run.result.idle_fraction;
    row->n_devices = run.plan.n_ranks;
    for (uint32_t r = 0; r < run.plan.n_ranks; r++) {
        row->peak_activations[r] =
            peak_of(&run.plan.train.ranks[r]) / (run.plan.n_stages / run.plan.n_ranks);
    }
    schedules_run_fini(&run);
    return GEMS_OK;
}

static bool is_good_time(double time)
{
    return isfinite(time) && time > 0 && time < 1e9;
}

static int check_question(const struct schedules_question *question, struct gems_error *err)
{
    if (!question->stages || question->stages > SPEC_MAX_STAGES) {
        return gems_error_set(err, GEMS_E_INVALID, "stages: %u is not in 1..%d", question->stages,
                              SPEC_MAX_STAGES);
    }
    if (!question->microbatches || question->microbatches > MAX_MICROBATCHES) {
        return gems_error_set(err, GEMS_E_INVALID, "microbatches: %u is not in 1..%d",
                              question->microbatches, MAX_MICROBATCHES);
    }
    if (question->stages * question->microbatches > MAX_PASSES) {
        return gems_error_set(err, GEMS_E_INVALID, "stages x microbatches: %u is more than %d",
                              question->stages * question->microbatches, MAX_PASSES);
    }
    if (!is_good_time(question->forward) || !is_good_time(question->backward)) {
        return gems_error_set(err, GEMS_E_INVALID, "forward, backward: %g, %g must be above 0",
                              question->forward, question->backward);
    }
    return GEMS_OK;
}

/* Empty if the schedule can be. */
static void find_reason(const struct schedules_question *question, enum schedule_kind kind,
                        char *ret_reason, size_t n)
{
    static const struct parallel_spec none; /* the default chunks */
    const struct schedule *schedule = schedule_find(kind);

    ret_reason[0] = '\0';
    if (!schedule || !schedule->generate) {
        snprintf(ret_reason, n, "not in this version");
    } else if (schedule->is_one_stage && question->stages > 1) {
        snprintf(ret_reason, n, "runs on 1 device, not on %u stages", question->stages);
    } else if (schedule->is_even && question->stages % 2) {
        snprintf(ret_reason, n, "needs an even number of stages");
    } else if (question->stages * schedule_chunks(schedule, &none) > SPEC_MAX_STAGES) {
        snprintf(ret_reason, n, "more than %d chunks", SPEC_MAX_STAGES);
    }
}

int schedules_run(const struct schedules_question *question, enum schedule_kind kind,
                  struct schedules_run *ret_run, struct gems_error *err)
{
    struct schedules_run run = { .shortest = 0 };
    char reason[128];
    int status = check_question(question, err);

    if (status < 0) {
        return status;
    }
    find_reason(question, kind, reason, sizeof reason);
    if (reason[0]) {
        return gems_error_set(err, GEMS_E_UNSUPPORTED, "%s: %s", schedule_name(kind), reason);
    }
    status = simulate(question, kind, &run, err);
    if (status == GEMS_OK) {
        *ret_run = run;
    }
    return status;
}

void schedules_run_fini(struct schedules_run *run)
{
    sim_result_fini(&run->result);
    plan_fini(&run->plan);
}

int schedules_table(const struct schedules_question *question,
                    struct schedules_row ret_rows[SCHEDULE_COUNT], uint32_t *ret_n,
                    struct gems_error *err)
{
    uint32_t n = 0;
    int status = check_question(question, err);

    for (int kind = SCHEDULE_AUTO + 1; kind < SCHEDULE_COUNT && status == GEMS_OK; kind++) {
        struct schedules_row *row = &ret_rows[n++];

        *row = (struct schedules_row){ .kind = (enum schedule_kind)kind };
        find_reason(question, row->kind, row->reason, sizeof row->reason);
        if (!row->reason[0]) {
            status = measure(question, row, err);
        }
    }
    if (status == GEMS_OK) {
        *ret_n = n;
    }
    return status;
}
