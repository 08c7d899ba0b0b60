/* The step of a plan, simulated again to be shown. */
#ifndef GEMS_CLIENT_DRAW_H
#define GEMS_CLIENT_DRAW_H

#include <stdint.h>

#include "plan/plan.h"
#include "plan/sim.h"
#include "plan/timeline.h"

/* graph is the fused one, facts those of the micro-batch. They may be NULL: then
 * passes take what their arithmetic takes, and only proportions are true. *ret_result
 * is owned by the caller. */
int draw_simulate(const struct plan *plan, const struct graph *graph, const struct facts *facts,
                  const struct plan_device *devices, struct sim_result *ret_result,
                  struct gems_error *err);

/* Prints it as rows of text, what the letters mean above them. */
int draw_print(const struct plan *plan, const struct sim_result *result, uint32_t width,
               struct gems_error *err);

/* The same as a timeline that lasts as long as the plan says; owned by the caller. */
int draw_timeline(const struct plan *plan, const struct sim_result *result,
                  struct timeline *ret_timeline, struct gems_error *err);

/* Writes a timeline to a file ("-": stdout) as a drawing; has_unit as in plan/svg.h. */
int draw_write_svg(const struct timeline *timeline, const char *title, bool has_unit,
                   const char *path, struct gems_error *err);

#endif
