#include "client/draw.h"

#include <stdio.h>

#include "client/output.h"
#include "common/buf.h"
#include "common/error.h"
#include "plan/cost.h"
#include "plan/gantt.h"
#include "plan/svg.h"
#include "plan/times.h"

/* Without facts in a unit of its own. */
static int simulate_flops(const struct plan *plan, const struct graph *graph,
                          struct sim_result *ret_result, struct gems_error *err)
{
    double forward[SPEC_MAX_STAGES] = { 0 }, backward[SPEC_MAX_STAGES] = { 0 };
    const struct sim_costs costs = { .forward = forward, .backward = backward };

    for (uint32_t s = 0; s < plan->n_stages; s++) {
        for (uint32_t i = plan->stage_node[s]; i < plan->stage_node[s + 1]; i++) {
            forward[s] += cost_forward_flops(graph, i, plan->microbatch);
            backward[s] += cost_backward_flops(graph, i, plan->microbatch);
        }
    }
    return sim_run(plan, &plan->train, &costs, ret_result, err);
}

int draw_simulate(const struct plan *plan, const struct graph *graph, const struct facts *facts,
                  const struct plan_device *devices, struct sim_result *ret_result,
                  struct gems_error *err)
{
    struct times times;
    int status;

    if (!facts) {
        return simulate_flops(plan, graph, ret_result, err);
    }
    status = times_make(graph, plan, facts, devices, &times, err);
    if (status == GEMS_OK) {
        status = sim_run(plan, &plan->train, &times.costs, ret_result, err);
        times_fini(&times);
    }
    return status;
}

int draw_print(const struct plan *plan, const struct sim_result *result, uint32_t width,
               struct gems_error *err)
{
    struct buf text = { 0 };
    int status = gantt_text(&plan->train, result, width, &text);

    if (status < 0) {
        gems_error_set(err, status, "drawing: out of memory");
    } else {
        printf("One step; 0-9: forward of that micro-batch, a-j: its backward (k-t: its weight half),\n"
               ".: waiting\n%.*s",
               (int)text.n, (const char *)text.data);
    }
    buf_fini(&text);
    return status;
}

int draw_timeline(const struct plan *plan, const struct sim_result *result,
                  struct timeline *ret_timeline, struct gems_error *err)
{
    double scale = plan->step_seconds > 0 && result->step_seconds > 0
                       ? plan->step_seconds / result->step_seconds
                       : 1;

    return timeline_simulated(&plan->train, result, scale, ret_timeline, err);
}

int draw_write_svg(const struct timeline *timeline, const char *title, bool has_unit,
                   const char *path, struct gems_error *err)
{
    struct buf text = { 0 };
    int status = svg_write(timeline, title, has_unit, &text);

    status = status < 0 ? gems_error_set(err, GEMS_E_NOMEM, "drawing: out of memory")
                        : output_file(path, text.data, text.n, err);
    buf_fini(&text);
    return status;
}
