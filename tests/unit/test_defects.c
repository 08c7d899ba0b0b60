/* What went wrong in published GEMS code, one test each: would it go wrong here?
 * GEMS has been implemented before, and its faults are known; a number says which. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/sched.h"
#include "tests/lib/oracle.h"
#include "tests/lib/run_suite.h"
#include "tests/unit/all_layouts.h"
#include "tests/unit/trainer_lab.h"

static void run(const struct job_spec *job, const struct any_layout *layout,
                struct lab_result *ret_result)
{
    struct job_spec spec = *job;

    any_layout_set(&spec, layout);
    lab_run(&spec, NULL, ret_result);
    for (uint32_t i = 0; i < ret_result->n_ranks; i++) {
        ck_assert_msg(ret_result->ranks[i].status == GEMS_OK, "%s: rank %u: %s",
                      any_layout_name(layout), i, ret_result->ranks[i].err.text);
    }
}

static const struct any_layout single = { SCHEDULE_SINGLE, 1, 1, 0, 0, RECOMPUTE_NONE };
static const struct any_layout mast_3 = { SCHEDULE_GEMS_MAST, 3, 1, 0, 0, RECOMPUTE_NONE };
static const struct any_layout hybrid = { SCHEDULE_GEMS_MAST, 2, 2, 0, 0, RECOMPUTE_NONE };

static void set_job(const char *model, struct job_spec *ret_spec)
{
    lab_spec(model, ret_spec);
    ret_spec->parallel.gradient_blocks = 4;
}

/* 1: only one pair of replica passes worked; with more, half of the images were lost,
 * with fewer a replica trained on nothing. */
START_TEST(defect_1_any_number_of_replications_trains_every_image)
{
    struct any_layout master = { SCHEDULE_GEMS_MASTER, 2, 1, 0, (uint32_t)_i + 1, RECOMPUTE_NONE };
    struct lab_result plain, result;
    struct job_spec spec;

    set_job("mlp", &spec);
    spec.data.samples = 24;
    spec.train.batch = 12;
    spec.parallel.microbatch = 1;
    run(&spec, &single, &plain);
    run(&spec, &master, &result);
    ck_assert_uint_eq(result.counted[1], 12);
    ck_assert_uint_eq(result.counted[2], 12);
    ck_assert_uint_eq(result.weights_hash, plain.weights_hash);
    lab_result_fini(&plain);
    lab_result_fini(&result);
}
END_TEST

static const struct lab_tensor *same_tensor(const struct lab_result *in,
                                            const struct lab_tensor *tensor)
{
    const struct lab_tensor *found = lab_find(&in->final, tensor->kind, tensor->name);

    ck_assert_msg(found && found->bytes == tensor->bytes, "%s %s is not there", tensor->kind,
                  tensor->name);
    return found;
}

static void expect_close(const struct lab_result *a, const struct lab_result *b, double tolerance)
{
    for (uint32_t i = 0; i < a->final.n_tensors; i++) {
        const struct lab_tensor *tensor = &a->final.tensors[i];
        const double *x = tensor->data, *y = same_tensor(b, tensor)->data;

        for (uint64_t k = 0; k < tensor->bytes / sizeof *x; k++) {
            ck_assert_msg(fabs(x[k] - y[k]) <= tolerance * (1 + fabs(x[k])),
                          "%s %s[%lu]: %.17g and %.17g", tensor->kind, tensor->name,
                          (unsigned long)k, x[k], y[k]);
        }
    }
}

/* 2: gradients of parts were summed, not averaged, and divided by the wrong count: the
 * learning rate meant something else for every number of parts and replications. */
START_TEST(defect_2_learning_rate_means_the_same_for_all_parts_and_replications)
{
    static const uint32_t sizes[] = { 1, 2, 3, 5, 12 };
    struct any_layout master = { SCHEDULE_GEMS_MASTER, 2, 1, 0, 2, RECOMPUTE_NONE };
    struct lab_result plain, result;
    struct job_spec spec;

    set_job("mlp", &spec); /* without batch-norm, whose statistics are the micro-batch's */
    spec.train.precision = PRECISION_F64;
    spec.data.samples = 24;
    spec.train.batch = 12;
    spec.parallel.microbatch = 12;
    run(&spec, &single, &plain);
    spec.parallel.microbatch = sizes[_i];
    master.replications = 2 + 2 * ((uint32_t)_i % 2);
    run(&spec, &master, &result);
    expect_close(&plain, &result, 1e-12);
    lab_result_fini(&plain);
    lab_result_fini(&result);
}
END_TEST

/* 3: the middle device of an odd number holds a stage twice; the two copies started
 * from different weights and never met. */
START_TEST(defect_3_middle_device_of_an_odd_pipeline_has_one_stage)
{
    struct lab_result plain, result;
    uint32_t ranks[PLAN_MAX_COPIES];
    struct job_spec spec;

    set_job("resnet1", &spec);
    run(&spec, &single, &plain);
    run(&spec, &mast_3, &result);
    ck_assert_uint_eq(plan_rank(&result.plan, 0, 0, 1), 1);
    ck_assert_uint_eq(plan_rank(&result.plan, 0, 1, 1), 1);
    ck_assert_uint_eq(plan_copies(&result.plan, 1, ranks, PLAN_MAX_COPIES), 1);
    ck_assert_uint_eq(plan_copies(&result.plan, 0, ranks, PLAN_MAX_COPIES), 2);
    ck_assert_uint_eq(result.weights_hash, plain.weights_hash);
    ck_assert_uint_eq(result.state_hash, plain.state_hash);
    lab_result_fini(&plain);
    lab_result_fini(&result);
}
END_TEST

static bool is_message(const struct instr *instr)
{
    return instr->op == INSTR_SEND_ACT || instr->op == INSTR_RECV_ACT ||
           instr->op == INSTR_SEND_GRAD || instr->op == INSTR_RECV_GRAD;
}

/* 4: several groups of GEMS could not work: mirrors lay outside of the group, peers had
 * no offset, and all groups loaded the same images. */
START_TEST(defect_4_groups_have_own_mirrors_peers_and_images)
{
    const struct plan *plan;
    struct lab_result result;
    struct job_spec spec;
    uint32_t width, loads[64] = { 0 };

    set_job("mlp", &spec);
    run(&spec, &hybrid, &result);
    plan = &result.plan;
    width = plan_width(plan);
    ck_assert_uint_eq(plan->n_ranks, 2 * width);
    for (uint32_t rank = 0; rank < plan->n_ranks; rank++) {
        const struct instr_list *list = &plan->train.ranks[rank];

        for (uint32_t i = 0; i < list->n; i++) {
            const struct instr *instr = &list->items[i];

            if (is_message(instr)) {
                ck_assert_uint_eq(instr->peer / width, rank / width);
            }
            if (instr->op == INSTR_LOAD && instr->stage == 0) {
                loads[instr->microbatch]++;
            }
        }
    }
    for (uint32_t i = 0; i < plan->n_microbatches; i++) {
        ck_assert_uint_eq(loads[i], 1);
    }
    ck_assert_uint_eq(plan_rank(plan, 1, 1, 0), 2 * width - 1); /* mirrored in its own group */
    lab_result_fini(&result);
}
END_TEST

static uint32_t mask_of(const struct instr_list *list, uint32_t stage)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->items[i].op == INSTR_REDUCE && list->items[i].stage == stage) {
            return list->items[i].microbatch;
        }
    }
    return 0;
}

/* 5: every rank named the members of its reductions by itself, and they need not have
 * agreed. */
START_TEST(defect_5_all_copies_of_a_stage_reduce_with_the_same_ranks)
{
    struct any_layout layouts[ALL_LAYOUTS_MAX];
    struct job_spec spec;
    uint32_t n;

    set_job("mlp", &spec);
    n = all_layouts(&spec, layouts);
    for (uint32_t i = 0; i < n; i++) {
        struct lab_result result;
        const struct plan *plan;

        run(&spec, &layouts[i], &result);
        plan = &result.plan;
        for (uint32_t stage = 0; stage < plan->n_stages; stage++) {
            uint32_t ranks[PLAN_MAX_COPIES];
            uint32_t k = plan_copies(plan, stage, ranks, PLAN_MAX_COPIES);

            for (uint32_t c = 0; c < k && k > 1; c++) {
                uint32_t mask = mask_of(&plan->train.ranks[ranks[c]], stage);

                ck_assert_uint_eq(mask, mask_of(&plan->train.ranks[ranks[0]], stage));
                ck_assert_uint_lt(mask, 1u << k);
                ck_assert_uint_ne(mask, 0);
            }
        }
        lab_result_fini(&result);
    }
}
END_TEST

/* The job on one device, in the plainest way, from the same first weights. */
static struct oracle *make_oracle(const struct job_spec *spec, struct graph *ret_graph)
{
    struct oracle_config config = {
        .graph = ret_graph,
        .backend = backend_find("ref", NULL),
        .type = spec->train.precision == PRECISION_F64 ? BE_F64 : BE_F32,
        .threads = 1,
        .seed = spec->train.seed,
    };
    struct oracle *oracle;
    struct gems_error err;

    lab_graph(spec, ret_graph);
    ck_assert_msg(oracle_create(&config, &oracle, &err) == GEMS_OK, "%s", err.text);
    return oracle;
}

/* 6: weights were moved into a new buffer of zeros: training began from nothing. A
 * learning rate of next to nothing leaves what training began from. */
START_TEST(defect_6_training_starts_from_the_initial_weights)
{
    struct lab_result result;
    struct oracle *oracle;
    struct job_spec spec;
    struct graph graph;
    bool has_other_than_zero = false;

    set_job("mlp", &spec);
    spec.train.lr = 1e-30;
    spec.train.momentum = spec.train.weight_decay = 0;
    spec.train.is_nesterov = false;
    oracle = make_oracle(&spec, &graph);
    run(&spec, _i ? &hybrid : &mast_3, &result);
    for (uint32_t node = 0; node < graph.n_nodes; node++) {
        struct param params[MODEL_MAX_PARAMS];
        uint32_t n = node_params(&graph, node, params);

        for (uint32_t p = 0; p < n; p++) {
            char name[128];
            const struct lab_tensor *tensor;
            float *initial;

            snprintf(name, sizeof name, "%s.%s", graph.nodes[node].name, params[p].suffix);
            tensor = lab_find(&result.final, "weight", name);
            ck_assert_ptr_nonnull(tensor);
            initial = malloc(tensor->bytes);
            ck_assert_int_eq(oracle_export(oracle, ORACLE_PARAM, node, p, initial, NULL), GEMS_OK);
            for (uint64_t i = 0; i < tensor->bytes / sizeof *initial; i++) {
                ck_assert_float_eq_tol(((float *)tensor->data)[i], initial[i], 1e-20f);
                has_other_than_zero = has_other_than_zero || initial[i] != 0;
            }
            free(initial);
        }
    }
    ck_assert(has_other_than_zero);
    oracle_destroy(oracle);
    graph_fini(&graph);
    lab_result_fini(&result);
}
END_TEST

/* 7: two momentum buffers took turns, each fed every second gradient. 8: stages divided
 * their sums by different counts. Both show in weights and momenta after some steps, in
 * f64, tensor by tensor. */
START_TEST(defects_7_and_8_one_momentum_and_one_scale_for_all_stages)
{
    struct any_layout layouts[ALL_LAYOUTS_MAX];
    struct lab_result plain;
    struct job_spec spec;
    uint32_t n;

    set_job("mlp", &spec);
    spec.train.precision = PRECISION_F64;
    spec.train.momentum = 0.9;
    run(&spec, &single, &plain);
    n = all_layouts(&spec, layouts);
    for (uint32_t i = (uint32_t)_i; i < n; i += 4) {
        struct lab_result result;

        run(&spec, &layouts[i], &result);
        ck_assert_uint_eq(result.final.n_tensors, plain.final.n_tensors);
        expect_close(&plain, &result, 0);
        lab_result_fini(&result);
    }
    lab_result_fini(&plain);
}
END_TEST

static bool has_suffix(const char *text, const char *suffix)
{
    size_t n = strlen(text), k = strlen(suffix);

    return n >= k && !strcmp(text + n - k, suffix);
}

/* 9: running statistics of batch-norm belonged to each replica alone. */
START_TEST(defect_9_running_statistics_are_those_of_all_images)
{
    struct lab_result plain, result;
    struct job_spec spec;
    uint32_t n = 0;

    set_job("resnet2", &spec);
    run(&spec, &single, &plain);
    run(&spec, _i ? &hybrid : &mast_3, &result);
    for (uint32_t i = 0; i < plain.final.n_tensors; i++) {
        const struct lab_tensor *tensor = &plain.final.tensors[i];

        if (!strcmp(tensor->kind, "weight") && (has_suffix(tensor->name, ".running_mean") ||
                                                has_suffix(tensor->name, ".running_var"))) {
            ck_assert_int_eq(
                memcmp(tensor->data, same_tensor(&result, tensor)->data, tensor->bytes), 0);
            n++;
        }
    }
    ck_assert_uint_gt(n, 20); /* two of each normalisation */
    lab_result_fini(&plain);
    lab_result_fini(&result);
}
END_TEST

/* 10: softmax twice. Its loss cannot fall under ln(1 + (classes - 1) / e), here 0.904,
 * however sure the network is. */
START_TEST(defect_10_softmax_once)
{
    struct lab_result result;
    struct job_spec spec;
    uint64_t last;

    set_job("mlp", &spec);
    spec.data.samples = 4;
    spec.data.is_flip = spec.data.is_shift = false;
    spec.train.batch = 4;
    spec.train.epochs = 60;
    spec.train.warmup_epochs = 0;
    spec.train.weight_decay = 0;
    spec.parallel.microbatch = 1;
    run(&spec, &mast_3, &result);
    last = result.plan.steps_total;
    ck_assert_uint_eq(result.counted[last], 4);
    ck_assert_double_lt(result.loss[last] / 4, 0.2);
    ck_assert_double_gt(result.loss[1] / 4, 1.0); /* the first one is near ln(5) */
    lab_result_fini(&result);
}
END_TEST

/* 11: the bottlenecks had 3x3 where they should have 1x1: twice the parameters. */
START_TEST(defect_11_resnet_110_has_its_parameters)
{
    struct zoo_spec spec = { .zoo = "resnet",
                             .version = 2,
                             .depth = 110,
                             .classes = 10,
                             .channels = 3,
                             .height = 32,
                             .width = 32 };
    struct gems_error err;
    struct graph graph;

    ck_assert_msg(zoo_build(&spec, &graph, &err) == GEMS_OK, "%s", err.text);
    ck_assert_uint_eq(graph_trainable(&graph), 3302442);
    graph_fini(&graph);
}
END_TEST

/* 13: balance and the number of classes were used to find shapes, not for the model. */
START_TEST(defect_13_balance_and_classes_are_those_that_run)
{
    static const uint32_t balance[] = { 2, 1, 2 };
    struct any_layout layer = { SCHEDULE_LAYER, 3, 1, 0, 0, RECOMPUTE_NONE };
    const struct lab_tensor *bias;
    struct lab_result result;
    struct job_spec spec;

    set_job("mlp", &spec);
    spec.model.classes = 7;
    spec.parallel.n_balance = 3;
    memcpy(spec.parallel.balance, balance, sizeof balance);
    run(&spec, &layer, &result);
    for (uint32_t s = 0; s < 3; s++) {
        ck_assert_uint_eq(result.plan.stage_layers[s], balance[s]);
    }
    bias = lab_find(&result.final, "weight", "output.dense.bias");
    ck_assert_ptr_nonnull(bias);
    ck_assert_uint_eq(bias->bytes, 7 * sizeof(float));
    lab_result_fini(&result);
}
END_TEST

/* 15: means of an epoch were off by one, and images of one replica alone counted. 17: the
 * last short batch was dropped, and there was no evaluation. */
START_TEST(defects_15_and_17_every_image_counts_once_an_epoch)
{
    struct any_layout layouts[ALL_LAYOUTS_MAX];
    struct job_spec spec;
    uint32_t n;

    set_job("mlp", &spec); /* 20 images in steps of 7, 7, 6; 11 to evaluate */
    n = all_layouts(&spec, layouts);
    for (uint32_t i = 0; i < n; i++) {
        struct lab_result result;

        run(&spec, &layouts[i], &result);
        for (uint64_t step = 1; step <= 6; step++) {
            ck_assert_msg(result.counted[step] == (step % 3 ? 7 : 6), "%s: %lu images in step %lu",
                          any_layout_name(&layouts[i]), (unsigned long)result.counted[step],
                          (unsigned long)step);
            ck_assert_uint_eq(result.eval_counted[step], step % 3 ? 0 : 11);
        }
        ck_assert_uint_eq(result.final.position.samples, 40);
        lab_result_fini(&result);
    }
}
END_TEST

static void add_loop(Suite *suite, const char *name, const TTest *test, int n)
{
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, test, 0, n);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("defects");

    add_loop(suite, "1", defect_1_any_number_of_replications_trains_every_image, 6);
    add_loop(suite, "2", defect_2_learning_rate_means_the_same_for_all_parts_and_replications, 5);
    add_loop(suite, "3", defect_3_middle_device_of_an_odd_pipeline_has_one_stage, 1);
    add_loop(suite, "4", defect_4_groups_have_own_mirrors_peers_and_images, 1);
    add_loop(suite, "5", defect_5_all_copies_of_a_stage_reduce_with_the_same_ranks, 1);
    add_loop(suite, "6", defect_6_training_starts_from_the_initial_weights, 2);
    add_loop(suite, "7 and 8", defects_7_and_8_one_momentum_and_one_scale_for_all_stages, 4);
    add_loop(suite, "9", defect_9_running_statistics_are_those_of_all_images, 2);
    add_loop(suite, "10", defect_10_softmax_once, 1);
    add_loop(suite, "11", defect_11_resnet_110_has_its_parameters, 1);
    add_loop(suite, "13", defect_13_balance_and_classes_are_those_that_run, 1);
    add_loop(suite, "15 and 17", defects_15_and_17_every_image_counts_once_an_epoch, 1);
    return run_suite(suite);
}
