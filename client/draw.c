#include "client/draw.h"

#include <stdio.h>

#include "common/buf.h"
#include "common/error.h"
#include "plan/cost.h"
#include "plan/gantt.h"

/* Without facts in a unit of its own: only proportions are drawn. */
static struct cost_pass stage_cost(const struct plan *plan, const struct graph *graph,
                                   const struct facts *facts, uint32_t stage)
{
    uint32_t first = plan->stage_node[stage], last = plan->stage_node[stage + 1];
    struct cost_pass sum = { 0 };

    if (facts) {
        return cost_range(graph, facts, first, last);
    }
    for (uint32_t i = first; i < last; i++) {
        sum.forward += cost_forward_flops(graph, i, plan->microbatch);
        sum.backward += cost_backward_flops(graph, i, plan->microbatch);
    }
    return sum;
}

int draw_step(const struct plan *plan, const struct graph *graph, const struct facts *facts,
              uint32_t width, struct gems_error *err)
{
    double forward[SPEC_MAX_STAGES], backward[SPEC_MAX_STAGES];
    struct sim_costs costs = { .forward = forward, .backward = backward };
    struct sim_result result;
    struct buf text = { 0 };
    int status;

    for (uint32_t s = 0; s < plan->n_stages; s++) {
        struct cost_pass pass = stage_cost(plan, graph, facts, s);

        forward[s] = pass.forward;
        backward[s] = pass.backward;
    }
    status = sim_run(plan, &plan->train, &costs, &result, err);
    if (status < 0) {
        return status;
    }
    status = gantt_text(&plan->train, &result, width, &text);
    if (status < 0) {
        gems_error_set(err, status, "plan: out of memory");
    } else {
        printf("One step; 0-9: forward of that micro-batch, a-j: its backward (k-t: its weight half),\n"
               ".: waiting\n%.*s",
               (int)text.n, (const char *)text.data);
    }
    buf_fini(&text);
    sim_result_fini(&result);
    return status;
}
