#include "client/gantt.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "plan/cost.h"
#include "plan/sim.h"

/* Arithmetic alone, in a unit of its own: only the proportions are drawn. */
static struct cost_pass stage_cost(const struct plan *plan, const struct graph *graph,
                                   const struct facts *facts, uint32_t stage)
{
    uint32_t first = plan->stage_node[stage], last = plan->stage_node[stage + 1];
    struct cost_pass sum = { 0, 0 };

    if (facts) {
        return cost_range(graph, facts, first, last);
    }
    for (uint32_t i = first; i < last; i++) {
        sum.forward += cost_forward_flops(graph, i, plan->microbatch);
        sum.backward += cost_backward_flops(graph, i, plan->microbatch);
    }
    return sum;
}

static char letter(const struct instr *instr)
{
    switch ((enum instr_op)instr->op) {
    case INSTR_FORWARD:
        return (char)('0' + instr->microbatch % 10);
    case INSTR_BACKWARD:
    case INSTR_BACKWARD_INPUT:
    case INSTR_BACKWARD_WEIGHT:
        return (char)('a' + instr->microbatch % 10);
    case INSTR_RECOMPUTE:
        return '*';
    default:
        return '\0';
    }
}

static void draw_rank(FILE *out, const struct program *program, const struct sim_result *result,
                      uint32_t rank, uint32_t width, char *row)
{
    const struct instr_list *list = &program->ranks[rank];

    memset(row, '.', width);
    row[width] = '\0';
    for (uint32_t i = 0; i < list->n; i++) {
        char mark = letter(&list->items[i]);
        const struct sim_span *span = &result->spans[rank][i];
        double scale = width / result->step_seconds;
        uint32_t from = (uint32_t)(span->start * scale + 0.5),
                 to = (uint32_t)(span->end * scale + 0.5);

        for (uint32_t x = from; mark && x < to && x < width; x++) {
            row[x] = mark;
        }
    }
    fprintf(out, "rank %-3u |%s|\n", rank, row);
}

int gantt_draw(FILE *out, const struct plan *plan, const struct graph *graph,
               const struct facts *facts, uint32_t width, struct gems_error *err)
{
    double forward[SPEC_MAX_STAGES], backward[SPEC_MAX_STAGES];
    struct sim_costs costs = { .forward = forward, .backward = backward };
    struct sim_result result;
    char *row;
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
    row = malloc(width + 1);
    if (!row) {
        sim_result_fini(&result);
        return gems_error_set(err, GEMS_E_NOMEM, "plan: out of memory");
    }
    fprintf(out, "One step; 0-9: forward of that micro-batch, a-j: its backward, .: waiting\n");
    for (uint32_t r = 0; r < plan->n_ranks; r++) {
        draw_rank(out, &plan->train, &result, r, width, row);
    }
    free(row);
    sim_result_fini(&result);
    return GEMS_OK;
}
