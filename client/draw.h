/* Simulates the training step of a plan and prints it as rows of text. */
#ifndef GEMS_CLIENT_DRAW_H
#define GEMS_CLIENT_DRAW_H

#include <stdint.h>

#include "plan/plan.h"

/* graph is the fused one. facts may be NULL: then passes take what their
 * arithmetic takes. */
int draw_step(const struct plan *plan, const struct graph *graph, const struct facts *facts,
              uint32_t width, struct gems_error *err);

#endif
