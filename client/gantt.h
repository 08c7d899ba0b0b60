/* Draws the training program of a plan: one row a rank, time to the right. */
#ifndef GEMS_CLIENT_GANTT_H
#define GEMS_CLIENT_GANTT_H

#include <stdio.h>

#include "plan/plan.h"

/* graph is the fused one. facts may be NULL: then passes take what their
 * arithmetic takes. */
int gantt_draw(FILE *out, const struct plan *plan, const struct graph *graph,
               const struct facts *facts, uint32_t width, struct gems_error *err);

#endif
