/* AmoebaNet: a network whose boundaries carry two tensors, one of which passes a
 * layer by. Every schedule plans every number of stages and every cut of it. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "model/passes.h"
#include "model/zoo.h"
#include "plan/check.h"
#include "plan/layout_grad.h"
#include "plan/planner.h"
#include "tests/sim/random_graph.h"

enum { LAYERS = 6, N_LAYERS = LAYERS + 6, N_TRAIN = 50, N_EVAL = 21 };

static void must(int st, const struct gems_error *err)
{
    ck_assert_msg(st == GEMS_OK, "%s", err->text);
}

/* A job over the network, and its facts. */
struct job {
    struct graph graph;
    struct job_spec spec;
    struct fact_set facts;
    struct plan_device devices[N_LAYERS];
};

static void job_init(struct job *job, enum schedule_kind schedule, uint32_t batch,
                     uint32_t microbatch)
{
    struct zoo_spec zoo = { .zoo = "amoebanet-d",
                            .layers = LAYERS,
                            .filters = 16,
                            .classes = 10,
                            .channels = 3,
                            .height = 64,
                            .width = 64 };
    uint32_t sizes[FACTS_MAX_SIZES];
    struct gems_error err = { 0 };

    *job = (struct job){ .facts = { .n_train = N_TRAIN, .n_eval = N_EVAL } };
    must(zoo_build(&zoo, &job->graph, &err), &err);
    must(graph_fuse(&job->graph, &err), &err);
    ck_assert_uint_eq(job->graph.n_layers, N_LAYERS);
    spec_init(&job->spec);
    job->spec.parallel.schedule = schedule;
    job->spec.parallel.microbatch = microbatch;
    job->spec.train.batch = batch;
    job->spec.train.epochs = 1;
    must(planner_settle(&job->graph, &job->spec, &err), &err);
    job->facts.n_sizes = planner_batch_sizes(&job->spec, N_TRAIN, N_EVAL, sizes);
    for (uint32_t i = 0; i < job->facts.n_sizes; i++) {
        random_facts(&job->graph, sizes[i], &job->facts.sizes[i]);
    }
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        job->devices[i] = (struct plan_device){ .kind = DEVICE_REF, .speed = 1 };
    }
}

static void job_fini(struct job *job)
{
    fact_set_fini(&job->facts);
    graph_fini(&job->graph);
}

/* Every tensor that a stage reads and an earlier one makes has one edge to it. */
static void check_edges(const struct graph *graph, const struct plan *plan)
{
    uint32_t n_expected = 0;

    for (uint32_t from = 0; from < plan->n_stages; from++) {
        for (uint32_t i = plan->stage_node[from]; i < plan->stage_node[from + 1]; i++) {
            bool is_read[N_LAYERS] = { false };

            for (uint32_t s = from + 1; s < plan->n_stages; s++) {
                for (uint32_t j = plan->stage_node[s]; j < plan->stage_node[s + 1]; j++) {
                    for (uint32_t k = 0; k < graph->nodes[j].n_inputs; k++) {
                        is_read[s] = is_read[s] || graph->nodes[j].inputs[k] == i;
                    }
                }
                n_expected += is_read[s];
            }
            for (uint32_t e = 0; e < plan->n_edges; e++) {
                if (plan->edges[e].node == i) {
                    ck_assert_uint_eq(plan->edges[e].from_stage, from);
                    ck_assert(is_read[plan->edges[e].to_stage]);
                    is_read[plan->edges[e].to_stage] = false;
                }
            }
        }
    }
    ck_assert_uint_eq(plan->n_edges, n_expected);
}

/* Programs and memory maps, apart from what the planner itself has checked. */
static void check_programs(const struct job *job, const struct plan *plan)
{
    const struct program *programs[] = { &plan->train, &plan->train_last, &plan->eval,
                                         &plan->eval_last };
    struct memory_map maps[N_LAYERS];
    struct gems_error err = { 0 };
    bool *has_gradient;

    must(layout_gradients(&job->graph, &has_gradient, &err), &err);
    for (uint32_t r = 0; r < plan->n_ranks; r++) {
        must(memory_map_make(&job->graph, &job->spec, plan, &job->facts, r, &maps[r], &err), &err);
    }
    for (uint32_t p = 0; p < 4; p++) {
        if (programs[p]->n_ranks) {
            must(program_check(plan, has_gradient, programs[p], maps, &err), &err);
        }
    }
    for (uint32_t r = 0; r < plan->n_ranks; r++) {
        memory_map_fini(&maps[r]);
    }
    free(has_gradient);
}

static void plan_and_check(const struct job *job, uint32_t n_devices)
{
    struct gems_error err = { 0 };
    struct plan plan;

    must(planner_plan(&job->graph, &job->spec, &job->facts, job->devices, n_devices, &plan, &err),
         &err);
    ck_assert_uint_eq(plan.n_stages, n_devices);
    check_edges(&job->graph, &plan);
    check_programs(job, &plan);
    plan_fini(&plan);
}

static const enum schedule_kind kinds[] = { SCHEDULE_LAYER, SCHEDULE_GPIPE, SCHEDULE_1F1B,
                                            SCHEDULE_GEMS_MAST, SCHEDULE_GEMS_MASTER };
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* One micro-batch, some, many; the last one whole and short. */
START_TEST(every_number_of_stages_is_planned)
{
    static const uint32_t batches[][2] = { { 1, 1 }, { 2, 1 }, { 7, 2 }, { 16, 1 } };

    for (uint32_t i = 0; i < 4; i++) {
        struct job job;

        job_init(&job, kinds[_i], batches[i][0], batches[i][1]);
        for (uint32_t n = 1; n <= N_LAYERS; n++) {
            plan_and_check(&job, n);
        }
        job_fini(&job);
    }
}
END_TEST

/* All cuts into three stages, which passes by a stage of one layer. */
START_TEST(every_cut_is_planned)
{
    struct job job;

    job_init(&job, kinds[_i], 8, 2);
    job.spec.parallel.stages = job.spec.parallel.n_balance = 3;
    for (uint32_t a = 1; a < N_LAYERS - 1; a++) {
        for (uint32_t b = 1; a + b < N_LAYERS; b++) {
            job.spec.parallel.balance[0] = a;
            job.spec.parallel.balance[1] = b;
            job.spec.parallel.balance[2] = N_LAYERS - a - b;
            plan_and_check(&job, 3);
        }
    }
    job_fini(&job);
}
END_TEST

/* With a layer a stage each output goes to the next two stages, straight. */
START_TEST(a_tensor_that_skips_a_stage_goes_straight_there)
{
    struct gems_error err = { 0 };
    struct plan plan;
    struct job job;
    uint32_t n_far = 0;

    job_init(&job, SCHEDULE_GPIPE, 8, 2);
    must(planner_plan(&job.graph, &job.spec, &job.facts, job.devices, N_LAYERS, &plan, &err), &err);
    for (uint32_t e = 0; e < plan.n_edges; e++) {
        uint32_t length = plan.edges[e].to_stage - plan.edges[e].from_stage;

        ck_assert(length == 1 || length == 2);
        n_far += length == 2;
        /* its gradient comes back through the stage between */
        ck_assert_uint_eq(plan_grad_stage(&plan, e), plan.edges[e].to_stage - 1);
    }
    /* stem and all cells but the last two are read two stages on */
    ck_assert_uint_eq(n_far, N_LAYERS - 3);
    ck_assert_uint_eq(plan.n_edges, N_LAYERS - 1 + n_far);
    plan_fini(&plan);
    job_fini(&job);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("two tensors");
    TCase *tcase = tcase_create("amoebanet");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, every_number_of_stages_is_planned, 0, N_KINDS);
    tcase_add_loop_test(tcase, every_cut_is_planned, 0, N_KINDS);
    tcase_add_test(tcase, a_tensor_that_skips_a_stage_goes_straight_there);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
