/* A complete plan from decisions that are already taken. */
#ifndef GEMS_PLAN_MAKE_H
#define GEMS_PLAN_MAKE_H

#include "plan/plan.h"

enum { MAKE_MAX_MICROBATCHES = 4096 };

struct make_input {
    const struct graph *graph;
    const struct job_spec *spec; /* settled */
    const struct fact_set *facts;
    const struct plan_device *devices; /* one for each rank, group by group */
    enum schedule_kind schedule;
    uint32_t n_stages;      /* of the model: devices of a pipeline times chunks of the schedule */
    const uint32_t *counts; /* layers of each stage */
    bool is_trial;          /* what would be: no proof of the programs */
};

/* Edges, programs (proven), exact memory, times by simulation, fits. *ret_plan is
 * owned by the caller. */
int plan_make(const struct make_input *input, struct plan *ret_plan, struct gems_error *err);

/* Steps of an epoch and of the job from what the data set holds. */
void plan_count_steps(const struct job_spec *spec, const struct fact_set *facts, struct plan *plan);

#endif
