#include "plan/times.h"

#include <stdlib.h>

#include "common/error.h"
#include "plan/cost.h"

static bool is_spread(const struct plan_device *devices, uint32_t n)
{
    for (uint32_t i = 1; devices && i < n; i++) {
        if (devices[i].node != devices[0].node) {
            return true;
        }
    }
    return false;
}

/* Batch-norms that run their forward again in backward. */
static double rebuild_seconds(const struct graph *graph, const struct plan *plan,
                              const struct facts *facts, uint32_t stage)
{
    double seconds = 0;

    for (uint32_t i = plan->stage_node[stage]; i < plan->stage_node[stage + 1]; i++) {
        if (graph->nodes[i].kind == OP_BATCHNORM) {
            seconds += cost_node(graph, facts, i).forward;
        }
    }
    return seconds;
}

/* Times of each stage; table has seven rows of n_stages. */
static void fill_times(const struct graph *graph, const struct plan *plan,
                       const struct facts *facts, struct cost_link link, double *table)
{
    uint32_t n = plan->n_stages, copies[PLAN_MAX_COPIES];

    for (uint32_t s = 0; s < n; s++) {
        struct cost_pass pass =
            cost_range(graph, facts, plan->stage_node[s], plan->stage_node[s + 1]);
        uint32_t k = plan_copies(plan, s, copies, PLAN_MAX_COPIES);
        uint64_t bytes = 0;

        for (uint32_t i = plan->stage_node[s]; i < plan->stage_node[s + 1]; i++) {
            bytes += facts->ops[i].param_bytes;
        }
        table[s] = pass.forward;
        table[n + s] = pass.backward;
        table[2 * n + s] = cost_stream(bytes);
        table[3 * n + s] =
            link.latency + (double)bytes / link.bytes_second + cost_stream(bytes) / k;
        table[4 * n + s] = 2 * cost_stream(bytes) / k;
        table[5 * n + s] = link.latency + (double)bytes / link.bytes_second;
        table[6 * n + s] = pass.weight;
        if (plan->stage_recompute[s] == RECOMPUTE_CHEAP) {
            table[n + s] += rebuild_seconds(graph, plan, facts, s);
        }
    }
}

int times_make(const struct graph *graph, const struct plan *plan, const struct facts *facts,
               const struct plan_device *devices, struct times *ret_times, struct gems_error *err)
{
    struct cost_link link = cost_link(is_spread(devices, plan->n_ranks));
    uint32_t n = plan->n_stages;
    double *table = calloc(7 * (size_t)n + plan->n_ranks, sizeof *table), *speed;
    uint64_t *edge_bytes = calloc(plan->n_edges + 1, sizeof *edge_bytes);

    if (!table || !edge_bytes) {
        free(table);
        free(edge_bytes);
        return gems_error_set(err, GEMS_E_NOMEM, "plan: no memory");
    }
    speed = table + 7 * n;
    fill_times(graph, plan, facts, link, table);
    for (uint32_t e = 0; e < plan->n_edges; e++) {
        edge_bytes[e] = facts->ops[plan->edges[e].node].out_bytes;
    }
    for (uint32_t r = 0; r < plan->n_ranks; r++) {
        speed[r] = devices && devices[r].speed > 0 ? devices[r].speed : 1;
    }
    *ret_times = (struct times){
        .table = table,
        .edge_bytes = edge_bytes,
        .costs = { .forward = table,
                   .backward = table + n,
                   .weight = table + 6 * n,
                   .combine = table + 2 * n,
                   .reduce = table + 3 * n,
                   .update = table + 4 * n,
                   .gather = table + 5 * n,
                   .edge_bytes = edge_bytes,
                   .latency = link.latency,
                   .bytes_second = link.bytes_second,
                   .speed = speed },
    };
    return GEMS_OK;
}

void times_fini(struct times *times)
{
    free(times->table);
    free(times->edge_bytes);
    *times = (struct times){ 0 };
}
