/* From a spec, facts and devices to a plan. Pure; slow calls belong off the
 * event loop. */
#ifndef GEMS_PLAN_PLANNER_H
#define GEMS_PLAN_PLANNER_H

#include "plan/plan.h"

/* Decides what changes numbers, once, at submit: fills in micro-batch,
 * gradient blocks and whatever else is auto in the spec and belongs to the
 * job, not to an attempt (ARCHITECTURE.md 3). */
int planner_settle(const struct graph *graph, struct job_spec *spec, struct gems_error *err);

/* Batch sizes for which facts are needed, given what the data set holds (0:
 * unknown). Returns their number. Spec must be settled. */
uint32_t planner_batch_sizes(const struct job_spec *spec, uint64_t n_train, uint64_t n_eval,
                             uint32_t ret_sizes[FACTS_MAX_SIZES]);

/* Makes the plan for n devices in rank order. GEMS_OK also when it does not
 * fit: then ret_plan->fits is false, memory shows why, advice what would help.
 * GEMS_E_INVALID: cannot be run at all (more stages than layers, a balance that
 * does not add up); GEMS_E_NOFIT: fewer devices than stages. The text names the
 * key. Stages auto: one a device, so the caller says by n_devices how many to
 * use; with groups each takes as many devices as its pipeline is long, in order. ret_plan is owned
 * by the caller. */
int planner_plan(const struct graph *graph, const struct job_spec *spec,
                 const struct fact_set *facts, const struct plan_device *devices,
                 uint32_t n_devices, struct plan *ret_plan, struct gems_error *err);

#endif
