#include "plan/make.h"

#include <stdlib.h>

#include "common/error.h"
#include "plan/check.h"
#include "plan/cost.h"
#include "plan/layout_grad.h"
#include "plan/sched.h"
#include "plan/times.h"

struct make {
    const struct make_input *input;
    struct plan *plan;
    bool *has_gradient; /* by node */
    struct memory_map *maps;
    struct gems_error *err;
};

static int set_stages(struct make *m)
{
    const struct graph *graph = m->input->graph;
    struct plan *plan = m->plan;
    uint32_t node = 0, layer = 0;

    for (uint32_t s = 0; s < plan->n_stages; s++) {
        plan->stage_layers[s] = m->input->counts[s];
        plan->stage_node[s] = node;
        layer += m->input->counts[s];
        while (node < graph->n_nodes && graph->nodes[node].layer < layer) {
            node++;
        }
    }
    plan->stage_node[plan->n_stages] = graph->n_nodes;
    return node == graph->n_nodes && layer == graph->n_layers
               ? GEMS_OK
               : gems_error_set(m->err, GEMS_E_INTERNAL, "plan: %u layers instead of %u", layer,
                                graph->n_layers);
}

static int compare_edges(const void *a, const void *b)
{
    const struct plan_edge *x = a, *y = b;

    if (x->node != y->node) {
        return x->node < y->node ? -1 : 1;
    }
    return (int)x->to_stage - (int)y->to_stage;
}

static int set_edges(struct make *m)
{
    const struct graph *graph = m->input->graph;
    struct plan *plan = m->plan;
    uint16_t *stage_of = calloc(graph->n_nodes, sizeof *stage_of);
    struct plan_edge *edges = calloc((size_t)graph->n_nodes * MODEL_MAX_INPUTS, sizeof *edges);
    uint32_t n = 0, kept = 0;

    if (!stage_of || !edges) {
        free(stage_of);
        free(edges);
        return gems_error_set(m->err, GEMS_E_NOMEM, "plan: no memory");
    }
    for (uint16_t s = 0; s < plan->n_stages; s++) {
        for (uint32_t i = plan->stage_node[s]; i < plan->stage_node[s + 1]; i++) {
            stage_of[i] = s;
        }
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        for (uint32_t k = 0; k < graph->nodes[i].n_inputs; k++) {
            uint32_t from = graph->nodes[i].inputs[k];

            if (stage_of[from] != stage_of[i]) {
                edges[n++] = (struct plan_edge){ from, stage_of[from], stage_of[i] };
            }
        }
    }
    qsort(edges, n, sizeof *edges, compare_edges);
    for (uint32_t e = 0; e < n; e++) {
        if (!kept || compare_edges(&edges[kept - 1], &edges[e])) {
            edges[kept++] = edges[e];
        }
    }
    free(stage_of);
    plan->edges = edges;
    plan->n_edges = kept;
    return kept <= UINT16_MAX ? GEMS_OK
                              : gems_error_set(m->err, GEMS_E_INVALID,
                                               "parallel.stages: the cut has %u tensors that cross "
                                               "it, at most %d",
                                               kept, UINT16_MAX);
}

/* Slots that the training programs use on any rank. */
static uint32_t count_slots(const struct plan *plan)
{
    const struct program *programs[] = { &plan->train, &plan->train_last };
    uint32_t n = 0;

    for (int p = 0; p < 2; p++) {
        for (uint32_t r = 0; r < programs[p]->n_ranks; r++) {
            for (uint32_t i = 0; i < programs[p]->ranks[r].n; i++) {
                const struct instr *instr = &programs[p]->ranks[r].items[i];

                if (instr->op == INSTR_FORWARD && instr->slot + 1u > n) {
                    n = instr->slot + 1u;
                }
            }
        }
    }
    return n;
}

/* Program of a step of `samples` samples. */
static int make_program(struct make *m, uint64_t samples, bool is_eval, struct program *ret_program)
{
    uint32_t size = m->plan->microbatch, n = (uint32_t)((samples + size - 1) / size);
    struct sched_input input = {
        .plan = m->plan,
        .has_gradient = m->has_gradient,
        .is_eval = is_eval,
        .n_microbatches = n,
        .microbatch = size,
        .last_microbatch = (uint32_t)(samples - (uint64_t)(n - 1) * size),
        .first_slot = is_eval ? count_slots(m->plan) : 0,
    };

    return sched_make(&input, ret_program, m->err);
}

static int set_programs(struct make *m)
{
    const struct job_spec *spec = m->input->spec;
    struct plan *plan = m->plan;
    uint32_t batch = spec->train.batch;
    bool has_eval = plan->n_eval || spec->data.eval[0];
    int status = make_program(m, batch, false, &plan->train);

    if (status == GEMS_OK && plan->n_train % batch) {
        status = make_program(m, plan->n_train % batch, false, &plan->train_last);
    }
    if (status == GEMS_OK && has_eval && (!plan->n_eval || plan->n_eval >= batch)) {
        status = make_program(m, batch, true, &plan->eval);
    }
    if (status == GEMS_OK && plan->n_eval % batch) {
        status = make_program(m, plan->n_eval % batch, true, &plan->eval_last);
    }
    return status;
}

static int check_programs(struct make *m)
{
    const struct program *programs[] = { &m->plan->train, &m->plan->train_last, &m->plan->eval,
                                         &m->plan->eval_last };
    int status = GEMS_OK;

    for (int p = 0; p < 4 && status == GEMS_OK && !m->input->is_trial; p++) {
        if (programs[p]->n_ranks) {
            status = program_check(m->plan, m->has_gradient, programs[p], m->maps, m->err);
        }
    }
    return status;
}

static int set_memory(struct make *m)
{
    const struct make_input *input = m->input;
    struct plan *plan = m->plan;
    uint64_t limit = input->spec->resources.memory_bytes;
    int status = GEMS_OK;

    plan->memory = calloc(plan->n_ranks, sizeof *plan->memory);
    m->maps = calloc(plan->n_ranks, sizeof *m->maps);
    if (!plan->memory || !m->maps) {
        return gems_error_set(m->err, GEMS_E_NOMEM, "plan: no memory");
    }
    plan->fits = true;
    for (uint32_t r = 0; r < plan->n_ranks && status == GEMS_OK; r++) {
        struct rank_memory *memory = &plan->memory[r];
        uint64_t has = input->devices[r].memory_bytes;

        status =
            memory_map_make(input->graph, input->spec, plan, input->facts, r, &m->maps[r], m->err);
        if (status == GEMS_OK) {
            *memory = m->maps[r].total;
            memory->limit_bytes = limit && (!has || limit < has) ? limit : has;
            plan->fits =
                plan->fits && (!memory->limit_bytes || memory->total_bytes <= memory->limit_bytes);
        }
    }
    return status;
}

static int set_times(struct make *m)
{
    const struct make_input *input = m->input;
    struct plan *plan = m->plan;
    struct sim_result result;
    struct times times;
    int status = times_make(input->graph, plan, fact_set_find(input->facts, plan->microbatch),
                            input->devices, &times, m->err);

    if (status < 0) {
        return status;
    }
    times.costs.maps = m->maps;
    status = sim_run(plan, &plan->train, &times.costs, &result, m->err);
    if (status == GEMS_OK) {
        plan->step_seconds = result.step_seconds;
        plan->idle_fraction = result.idle_fraction;
        plan->samples_per_second =
            result.step_seconds > 0 ? input->spec->train.batch / result.step_seconds : 0;
        sim_result_fini(&result);
    }
    times_fini(&times);
    return status;
}

void plan_count_steps(const struct job_spec *spec, const struct fact_set *facts, struct plan *plan)
{
    plan->n_train = facts->n_train;
    plan->n_eval = facts->n_eval;
    plan->steps_per_epoch = (plan->n_train + spec->train.batch - 1) / spec->train.batch;
    plan->steps_total =
        spec->train.steps ? spec->train.steps : spec->train.epochs * plan->steps_per_epoch;
}

static int fill_plan(struct make *m)
{
    int status;

    if ((status = layout_gradients(m->input->graph, &m->has_gradient, m->err)) < 0 ||
        (status = set_stages(m)) < 0 || (status = set_edges(m)) < 0 ||
        (status = set_programs(m)) < 0 || (status = set_memory(m)) < 0 ||
        (status = check_programs(m)) < 0) {
        return status;
    }
    return set_times(m);
}

int plan_make(const struct make_input *input, struct plan *ret_plan, struct gems_error *err)
{
    const struct job_spec *spec = input->spec;
    const struct schedule *schedule = schedule_find(input->schedule);
    uint32_t n_groups = spec->parallel.groups ? spec->parallel.groups : 1;
    struct plan plan = {
        .schedule = input->schedule,
        .n_stages = input->n_stages,
        .n_groups = n_groups,
        .n_chains = schedule->n_chains,
        .n_ranks = input->n_stages / schedule_chunks(schedule, &spec->parallel) * n_groups,
        .microbatch = spec->parallel.microbatch,
        .n_microbatches =
            (spec->train.batch + spec->parallel.microbatch - 1) / spec->parallel.microbatch,
        .n_blocks = spec->parallel.gradient_blocks,
        .recompute =
            spec->parallel.recompute == RECOMPUTE_AUTO ? RECOMPUTE_NONE : spec->parallel.recompute,
        .parameters = graph_trainable(input->graph),
    };
    struct make m = { .input = input, .plan = &plan, .err = err };
    int status;

    if (input->schedule == SCHEDULE_GEMS_MASTER) {
        plan.pass_microbatches = sched_pass_microbatches(&plan, spec->parallel.replications);
    }
    for (uint32_t s = 0; s < plan.n_stages; s++) {
        plan.stage_recompute[s] = plan.recompute;
    }
    plan_count_steps(spec, input->facts, &plan);
    if (fact_set_find(input->facts, plan.microbatch)) {
        status = fill_plan(&m);
    } else {
        status =
            gems_error_set(err, GEMS_E_INTERNAL, "plan: no facts for %u samples", plan.microbatch);
    }
    for (uint32_t r = 0; m.maps && r < plan.n_ranks; r++) {
        memory_map_fini(&m.maps[r]);
    }
    free(m.maps);
    free(m.has_gradient);
    if (status == GEMS_OK) {
        *ret_plan = plan;
    } else {
        plan_fini(&plan);
    }
    return status;
}
