/* All schedules side by side on uniform stages: what each costs, by simulation. */
#ifndef GEMS_PLAN_SCHEDULES_H
#define GEMS_PLAN_SCHEDULES_H

#include "plan/plan.h"
#include "plan/sim.h"

struct schedules_question {
    uint32_t stages, microbatches;
    double forward, backward; /* of one micro-batch on one device */
    uint32_t replications;    /* passes of gems-master; 0: 2, or what parts make */
    uint32_t parts;           /* micro-batches of one of its passes; 0: N / replications */
};

struct schedules_row {
    enum schedule_kind kind;
    bool is_possible;
    char reason[128]; /* why not */
    double time, idle_fraction;
    uint32_t n_devices;
    /* by device, in micro-batches of one of P stages: a chunk of v counts 1/v */
    double peak_activations[SPEC_MAX_STAGES];
};

/* One row for each schedule but auto, in the order of enum schedule_kind.
 * GEMS_E_INVALID: stages, micro-batches or times out of range. */
int schedules_table(const struct schedules_question *question,
                    struct schedules_row ret_rows[SCHEDULE_COUNT], uint32_t *ret_n,
                    struct gems_error *err);

/* One schedule of the table as it ran: its plan, its step, and the time of its
 * shortest pass. Owned by the caller. GEMS_E_UNSUPPORTED: cannot be; why. */
struct schedules_run {
    struct plan plan;
    struct sim_result result;
    double shortest;
};
int schedules_run(const struct schedules_question *question, enum schedule_kind kind,
                  struct schedules_run *ret_run, struct gems_error *err);
void schedules_run_fini(struct schedules_run *run);

struct schedules_layout {
    enum schedule_kind kind;
    uint32_t width, groups, chunks; /* devices of a group; 0: 1 group, 2 chunks */
    uint32_t microbatches, blocks;  /* 0 blocks: 2 a group */
    uint32_t passes, parts;         /* gems-master, as in the question */
    enum recompute recompute;       /* of all stages */
};

/* A plan of stages that each hand one tensor to the next, without a model:
 * schedule, stages, chains, ranks, blocks, edges and the training program. Owned
 * by the caller (plan_fini). */
int schedules_uniform_plan(const struct schedules_layout *layout, struct plan *ret_plan,
                           struct gems_error *err);

#endif
