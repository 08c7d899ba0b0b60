/* What the simulator needs to know of a plan's machine: the time of every pass,
 * sum, update and message, from the facts of the back end. */
#ifndef GEMS_PLAN_TIMES_H
#define GEMS_PLAN_TIMES_H

#include "plan/sim.h"

struct times {
    struct sim_costs costs; /* points into what follows */
    double *table;          /* owned */
    uint64_t *edge_bytes;   /* owned */
};

/* plan: cut, edges and recomputation are decided. facts: of its micro-batch. devices:
 * one for each rank; NULL: equal ones on one node. The caller may set costs.maps. */
int times_make(const struct graph *graph, const struct plan *plan, const struct facts *facts,
               const struct plan_device *devices, struct times *ret_times, struct gems_error *err);
void times_fini(struct times *times); /* also of a zeroed one */

#endif
