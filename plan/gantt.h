/* A simulated program as text: one row a rank, time to the right. Pure.
 *
 *     rank 0 |0......a1b...|     0-9: forward (or evaluation) of that micro-batch,
 *     rank 1 |.0....a1..b..|     a-j: its backward, counted modulo ten,
 *                                R U G: reduce, update, gather, .: waiting */
#ifndef GEMS_PLAN_GANTT_H
#define GEMS_PLAN_GANTT_H

#include "plan/sim.h"

struct buf;

/* Appends one line a rank, width columns for the whole step; a column shows what
 * runs in its middle. GEMS_E_NOMEM. */
int gantt_text(const struct program *program, const struct sim_result *result, uint32_t width,
               struct buf *out);

#endif
