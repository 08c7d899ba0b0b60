/* All schedules side by side on uniform stages: what each costs, by simulation. */
#ifndef GEMS_PLAN_SCHEDULES_H
#define GEMS_PLAN_SCHEDULES_H

#include "plan/plan.h"

struct schedules_question {
    uint32_t stages, microbatches;
    double forward, backward; /* of one micro-batch on one stage */
};

struct schedules_row {
    enum schedule_kind kind;
    bool is_possible;
    char reason[128]; /* why not */
    double time, idle_fraction;
    uint32_t n_devices;
    double peak_activations[SPEC_MAX_STAGES]; /* by device, in micro-batches of a stage */
};

/* One row for each schedule but auto, in the order of enum schedule_kind.
 * GEMS_E_INVALID: stages, micro-batches or times out of range. */
int schedules_table(const struct schedules_question *question,
                    struct schedules_row ret_rows[SCHEDULE_COUNT], uint32_t *ret_n,
                    struct gems_error *err);

/* A plan of stages that each hand one tensor to the next, without a model:
 * schedule, stages, chains, ranks, blocks, edges and the training program. Owned
 * by the caller (plan_fini). */
int schedules_uniform_plan(enum schedule_kind kind, uint32_t n_stages, uint32_t n_microbatches,
                           uint32_t n_blocks, struct plan *ret_plan, struct gems_error *err);

#endif
