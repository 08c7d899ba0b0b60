/* The trainer against itself under every layout, and against the oracle. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/sched.h"
#include "tests/lib/oracle.h"
#include "tests/lib/run_suite.h"
#include "tests/unit/trainer_lab.h"
#include "worker/data/loader.h"

struct layout_case {
    enum schedule_kind schedule;
    uint32_t stages, groups, chunks;
};

static const struct layout_case layouts[] = {
    { SCHEDULE_LAYER, 2, 1, 0 },
    { SCHEDULE_LAYER, 3, 1, 0 },
    { SCHEDULE_LAYER, 5, 1, 0 },
    { SCHEDULE_GPIPE, 2, 1, 0 },
    { SCHEDULE_GPIPE, 3, 1, 0 },
    { SCHEDULE_GEMS_MAST, 1, 1, 0 },
    { SCHEDULE_GEMS_MAST, 2, 1, 0 },
    { SCHEDULE_GEMS_MAST, 3, 1, 0 },
    { SCHEDULE_GEMS_MAST, 4, 1, 0 },
    { SCHEDULE_1F1B, 3, 1, 0 },
    { SCHEDULE_GEMS_MASTER, 3, 1, 0 },
    { SCHEDULE_LAYER, 2, 2, 0 },
    { SCHEDULE_GPIPE, 2, 4, 0 },
    { SCHEDULE_GEMS_MAST, 2, 2, 0 },
    { SCHEDULE_GEMS_MAST, 3, 2, 0 },
    { SCHEDULE_CHIMERA, 2, 1, 0 },
    { SCHEDULE_CHIMERA, 4, 1, 0 },
    { SCHEDULE_CHIMERA, 2, 2, 0 },
    { SCHEDULE_1F1B_INTERLEAVED, 2, 1, 2 },
    { SCHEDULE_1F1B_INTERLEAVED, 1, 1, 3 },
    { SCHEDULE_1F1B_INTERLEAVED, 2, 2, 2 },
};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0] };

static void set_layout(struct job_spec *spec, const struct layout_case *layout)
{
    spec->parallel.schedule = layout->schedule;
    spec->parallel.stages = layout->stages;
    spec->parallel.groups = layout->groups;
    spec->parallel.chunks = layout->chunks;
}

/* A copy needs a gradient block of its own. */
static bool is_possible(const struct layout_case *layout, const struct job_spec *spec)
{
    uint32_t n_chains = schedule_find(layout->schedule)->n_chains;

    return layout->groups * n_chains <= spec->parallel.gradient_blocks;
}

static const char *describe(const struct job_spec *spec)
{
    static char text[128];

    snprintf(text, sizeof text, "%s, %s on %u in %u groups, micro-batch %u, blocks %u", spec->name,
             schedule_name(spec->parallel.schedule), spec->parallel.stages, spec->parallel.groups,
             spec->parallel.microbatch, spec->parallel.gradient_blocks);
    return text;
}

static void expect_success(const struct job_spec *spec, const struct lab_result *result)
{
    for (uint32_t i = 0; i < result->n_ranks; i++) {
        ck_assert_msg(result->ranks[i].status == GEMS_OK, "%s: rank %u: %s", describe(spec), i,
                      result->ranks[i].err.text);
    }
}

static void expect_planned_memory(const struct job_spec *spec, const struct lab_result *result)
{
    for (uint32_t i = 0; i < result->n_ranks; i++) {
        const struct rank_memory *a = &result->ranks[i].planned, *b = &result->ranks[i].taken;

        ck_assert_msg(!memcmp(a, b, sizeof *a),
                      "%s: rank %u: planned weights %lu gradients %lu optimizer %lu activations "
                      "%lu buffers %lu "
                      "workspace %lu total %lu, taken %lu %lu %lu %lu %lu %lu %lu",
                      describe(spec), i, a->weights_bytes, a->gradients_bytes, a->optimizer_bytes,
                      a->activations_bytes, a->buffers_bytes, a->workspace_bytes, a->total_bytes,
                      b->weights_bytes, b->gradients_bytes, b->optimizer_bytes,
                      b->activations_bytes, b->buffers_bytes, b->workspace_bytes, b->total_bytes);
    }
}

static void expect_same_numbers(const struct job_spec *spec, const struct lab_result *a,
                                const struct lab_result *b)
{
    ck_assert_msg(a->weights_hash == b->weights_hash, "%s: other weights than single",
                  describe(spec));
    ck_assert_msg(a->state_hash == b->state_hash, "%s: other optimizer state than single",
                  describe(spec));
    ck_assert_uint_eq(a->final.position.step, b->final.position.step);
    ck_assert_uint_eq(a->final.position.samples, b->final.position.samples);
    for (uint32_t i = 0; i < LAB_MAX_STEPS; i++) {
        ck_assert_uint_eq(a->counted[i], b->counted[i]);
        ck_assert_uint_eq(a->eval_counted[i], b->eval_counted[i]);
        ck_assert_uint_eq(a->eval_correct[i], b->eval_correct[i]);
        ck_assert_double_eq_tol(a->loss[i], b->loss[i], 1e-12 * (1 + fabs(a->loss[i])));
        ck_assert_double_eq_tol(a->eval_loss[i], b->eval_loss[i],
                                1e-12 * (1 + fabs(a->eval_loss[i])));
    }
}

/* The job under `single`, then under each layout that its blocks allow. */
static void compare_layouts(const struct job_spec *job, const struct lab_options *options)
{
    struct job_spec spec = *job;
    struct lab_result single;

    set_layout(&spec, &(struct layout_case){ SCHEDULE_SINGLE, 1, 1, 0 });
    lab_run(&spec, options, &single);
    expect_success(&spec, &single);
    expect_planned_memory(&spec, &single);
    ck_assert_msg(single.loss[1] > 0 && isfinite(single.loss[1]), "first loss %g", single.loss[1]);
    for (int i = 0; i < N_LAYOUTS; i++) {
        struct lab_result result;

        if (!is_possible(&layouts[i], &spec)) {
            continue;
        }
        set_layout(&spec, &layouts[i]);
        lab_run(&spec, options, &result);
        expect_success(&spec, &result);
        expect_planned_memory(&spec, &result);
        expect_same_numbers(&spec, &single, &result);
        lab_result_fini(&result);
    }
    lab_result_fini(&single);
}

static const char *const models[] = {
    "mlp", "lenet", "resnet1", "resnet2", "amoebanet", "dropout"
};
enum { N_MODELS = sizeof models / sizeof models[0] };

/* 20 samples in steps of 7, 7, 6 and micro-batches of 2: a short last
 * micro-batch in the full steps, a short last step with whole ones. */
START_TEST(layouts_agree)
{
    struct job_spec spec;

    lab_spec(models[_i], &spec);
    compare_layouts(&spec, NULL);
}
END_TEST

START_TEST(layouts_agree_under_delays)
{
    struct lab_options options = { .max_delay_us = 2000 };
    struct job_spec spec;

    lab_spec(_i == 0 ? "mlp" : "resnet2", &spec);
    spec.train.epochs = 1;
    compare_layouts(&spec, &options);
}
END_TEST

START_TEST(layouts_agree_on_the_cpu_back_end)
{
    struct lab_options options = { .backend = "cpu" };
    struct job_spec spec;

    if (!backend_find("cpu", NULL)) {
        return;
    }
    lab_spec(models[_i], &spec);
    compare_layouts(&spec, &options);
}
END_TEST

struct step_case {
    uint32_t samples, batch, microbatch, blocks;
    enum optimizer optimizer;
    enum precision precision;
};

static const struct step_case steps[] = {
    { 12, 4, 4, 2, OPTIMIZER_SGD, PRECISION_FP32 }, /* one micro-batch: a copy without gradient */
    { 12, 4, 4, 1, OPTIMIZER_SGD, PRECISION_FP32 },
    { 13, 6, 4, 2, OPTIMIZER_SGD, PRECISION_FP32 }, /* last step of one sample */
    { 20, 10, 1, 4, OPTIMIZER_SGD, PRECISION_FP32 },
    { 20, 10, 2, 4, OPTIMIZER_ADAM, PRECISION_FP32 }, /* 5 micro-batches in 4 blocks */
    { 20, 9, 2, 8, OPTIMIZER_ADAMW, PRECISION_FP32 }, /* fewer micro-batches than blocks */
    { 20, 8, 2, 1, OPTIMIZER_SGD, PRECISION_F64 },
    { 3, 8, 2, 2, OPTIMIZER_SGD, PRECISION_FP32 }, /* fewer samples than a step */
};
enum { N_STEPS = sizeof steps / sizeof steps[0] };

static void set_steps(struct job_spec *spec, const struct step_case *c)
{
    spec->data.samples = c->samples;
    spec->train.batch = c->batch;
    spec->parallel.microbatch = c->microbatch;
    spec->parallel.gradient_blocks = c->blocks;
    spec->train.optimizer = c->optimizer;
    spec->train.precision = c->precision;
}

START_TEST(layouts_agree_for_all_step_sizes)
{
    struct job_spec spec;

    lab_spec("mlp", &spec);
    set_steps(&spec, &steps[_i]);
    compare_layouts(&spec, NULL);
    lab_spec("resnet2", &spec);
    set_steps(&spec, &steps[_i]);
    spec.train.epochs = 1;
    compare_layouts(&spec, NULL);
}
END_TEST

/* ---- the oracle ---- */

struct oracle_run {
    struct job_spec spec;
    struct graph graph;
    struct dataset *train;
    struct oracle *oracle;
    uint64_t position; /* of the items handed out */
};

static uint32_t batch_of(const struct oracle_run *run, uint64_t step)
{
    uint64_t per_epoch =
        (run->spec.data.samples + run->spec.train.batch - 1) / run->spec.train.batch;
    uint64_t first = (step - 1) % per_epoch * run->spec.train.batch;

    return (uint32_t)(run->spec.data.samples - first < run->spec.train.batch
                          ? run->spec.data.samples - first
                          : run->spec.train.batch);
}

/* loader_sequence_fn: whole steps, in order. */
static bool next_step(void *arg, uint64_t i, struct loader_item *ret_item)
{
    struct oracle_run *run = arg;
    uint64_t per_epoch =
        (run->spec.data.samples + run->spec.train.batch - 1) / run->spec.train.batch;

    *ret_item = (struct loader_item){ .epoch = i / per_epoch,
                                      .first = i % per_epoch * run->spec.train.batch,
                                      .n = batch_of(run, i + 1),
                                      .has_images = true,
                                      .has_labels = true };
    return true;
}

/* The step's place in its epoch, which dropout is drawn by. */
static struct be_draw draw_of(struct oracle_run *run, uint64_t step)
{
    struct loader_item item;

    next_step(run, step - 1, &item);
    return (struct be_draw){ run->spec.train.seed, item.epoch, item.first };
}

static void apply_step(struct oracle_run *run, const struct plan *plan, uint64_t step)
{
    const struct train_spec *train = &run->spec.train;
    double lr = trainer_lr(&run->spec, plan, step);
    struct oracle_update update = {
        .kind = train->optimizer == OPTIMIZER_SGD ? ORACLE_SGD : ORACLE_ADAM,
        .sgd = { lr, train->momentum, train->weight_decay, train->is_nesterov },
        .adam = { lr, train->beta1, train->beta2, train->eps, train->weight_decay,
                  train->optimizer == OPTIMIZER_ADAMW, step },
    };

    ck_assert_int_eq(oracle_apply(run->oracle, &update, NULL), GEMS_OK);
}

static void train_oracle(struct oracle_run *run, const struct lab_result *result,
                         struct loader *loader)
{
    for (uint64_t step = 1; step <= result->plan.steps_total; step++) {
        struct oracle_batch batch = { .n = batch_of(run, step),
                                      .microbatch = run->spec.parallel.microbatch,
                                      .n_blocks = run->spec.parallel.gradient_blocks,
                                      .draw = draw_of(run, step) };
        struct oracle_result sums;
        struct gems_error err;

        ck_assert_msg(loader_next(loader, step - 1, &batch.images, &batch.labels, &err) == GEMS_OK,
                      "%s", err.text);
        ck_assert_msg(oracle_gradients(run->oracle, &batch, &sums, &err) == GEMS_OK, "%s",
                      err.text);
        loader_release(loader, step - 1);
        ck_assert_double_eq_tol(sums.loss_sum, result->loss[step], 1e-12 * fabs(sums.loss_sum));
        apply_step(run, &result->plan, step);
    }
}

static void compare_with_oracle(const struct oracle_run *run, const struct lab_result *result)
{
    for (uint32_t node = 0; node < run->graph.n_nodes; node++) {
        struct param params[MODEL_MAX_PARAMS];
        uint32_t n = node_params(&run->graph, node, params);

        for (uint32_t p = 0; p < n; p++) {
            char name[128];
            const struct lab_tensor *ours;
            void *theirs;

            snprintf(name, sizeof name, "%s.%s", run->graph.nodes[node].name, params[p].suffix);
            ours = lab_find(&result->final, "weight", name);
            ck_assert_msg(ours, "%s is not in the checkpoint", name);
            theirs = malloc(ours->bytes);
            ck_assert_int_eq(oracle_export(run->oracle, ORACLE_PARAM, node, p, theirs, NULL),
                             GEMS_OK);
            ck_assert_msg(!memcmp(ours->data, theirs, ours->bytes), "%s differs from the oracle's",
                          name);
            free(theirs);
        }
    }
}

static void compare_job_with_oracle(const struct job_spec *job, const char *backend)
{
    struct lab_options options = { .backend = backend };
    struct oracle_run run = { .spec = *job };
    struct dataset_spec data = { .format = DATASET_SYNTHETIC,
                                 .channels = job->data.channels,
                                 .height = job->data.height,
                                 .width = job->data.width,
                                 .classes = job->model.classes,
                                 .samples = job->data.samples,
                                 .seed = job->train.seed };
    bool is_f64 = job->train.precision == PRECISION_F64;
    struct oracle_config config = { .graph = &run.graph,
                                    .backend = backend_find(backend, NULL),
                                    .type = is_f64 ? BE_F64 : BE_F32,
                                    .threads = 1,
                                    .seed = job->train.seed };
    struct loader_config reading = { .has_images = true,
                                     .has_labels = true,
                                     .is_f64 = is_f64,
                                     .is_flip = job->data.is_flip,
                                     .is_shift = job->data.is_shift,
                                     .mean = job->data.mean,
                                     .std = job->data.std,
                                     .seed = job->train.seed,
                                     .max_batch = job->train.batch,
                                     .n_threads = 1,
                                     .sequence = next_step,
                                     .sequence_arg = &run,
                                     .depth = 2 };
    struct lab_result result;
    struct loader *loader;
    struct gems_error err;

    lab_run(job, &options, &result);
    expect_success(job, &result);
    lab_graph(job, &run.graph);
    ck_assert_msg(oracle_create(&config, &run.oracle, &err) == GEMS_OK, "%s", err.text);
    ck_assert_msg(dataset_open(&data, &run.train, &err) == GEMS_OK, "%s", err.text);
    reading.train = run.train;
    reading.buffers =
        aligned_alloc(64, (loader_buffer_bytes(reading.max_batch, data.channels, data.height,
                                               data.width, is_f64, true, true) *
                               2 +
                           63) /
                              64 * 64);
    ck_assert_msg(loader_create(&reading, &loader, &err) == GEMS_OK, "%s", err.text);
    train_oracle(&run, &result, loader);
    compare_with_oracle(&run, &result);
    loader_destroy(loader);
    free(reading.buffers);
    dataset_close(run.train);
    oracle_destroy(run.oracle);
    graph_fini(&run.graph);
    lab_result_fini(&result);
}

START_TEST(numbers_are_those_of_the_oracle)
{
    struct job_spec spec;

    lab_spec(models[_i], &spec);
    set_layout(&spec, &(struct layout_case){ SCHEDULE_GEMS_MAST, 3, 1, 0 });
    compare_job_with_oracle(&spec, "ref");
    if (backend_find("cpu", NULL)) {
        compare_job_with_oracle(&spec, "cpu");
    }
    spec.train.optimizer = OPTIMIZER_ADAMW;
    spec.train.precision = PRECISION_F64;
    compare_job_with_oracle(&spec, "ref");
}
END_TEST

/* ---- restarts and wishes ---- */

START_TEST(restart_under_another_layout_continues_the_same_run)
{
    static const struct layout_case before[] = { { SCHEDULE_GEMS_MAST, 2, 1, 0 },
                                                 { SCHEDULE_SINGLE, 1, 1, 0 },
                                                 { SCHEDULE_GPIPE, 3, 1, 0 } };
    static const struct layout_case after[] = { { SCHEDULE_LAYER, 3, 1, 0 },
                                                { SCHEDULE_GEMS_MAST, 3, 1, 0 },
                                                { SCHEDULE_GEMS_MAST, 4, 1, 0 } };
    struct lab_result first, second;
    struct lab_options options = { .keep_step = 3 };
    struct job_spec spec;

    lab_spec(_i < 3 ? "resnet1" : "dropout", &spec);
    spec.train.optimizer = _i == 1 ? OPTIMIZER_ADAM : OPTIMIZER_SGD;
    set_layout(&spec, &before[_i % 3]);
    lab_run(&spec, &options, &first);
    expect_success(&spec, &first);
    ck_assert_uint_eq(first.kept.position.step, 3);
    ck_assert_uint_eq(first.kept.position.samples, 20);
    set_layout(&spec, &after[_i % 3]);
    options = (struct lab_options){ .restore = &first.kept };
    lab_run(&spec, &options, &second);
    expect_success(&spec, &second);
    ck_assert_uint_eq(first.weights_hash, second.weights_hash);
    ck_assert_uint_eq(first.state_hash, second.state_hash);
    ck_assert_uint_eq(second.eval_correct[6], first.eval_correct[6]);
    lab_result_fini(&first);
    lab_result_fini(&second);
}
END_TEST

START_TEST(wish_of_rank_0_is_granted_one_step_later_on_all_ranks)
{
    struct lab_options options = {
        .wish = TRAINER_CHECKPOINT, .wish_after = 1, .keep_step = 2, .max_delay_us = 1000
    };
    struct lab_result plain, result;
    struct job_spec spec;

    lab_spec("mlp", &spec);
    spec.parallel.gradient_blocks = 4;
    set_layout(&spec, &layouts[_i]);
    lab_run(&spec, NULL, &plain);
    lab_run(&spec, &options, &result);
    expect_success(&spec, &result);
    ck_assert_uint_eq(plain.n_checkpoints, 2); /* one an epoch */
    ck_assert_uint_eq(result.n_checkpoints, 3);
    ck_assert_uint_eq(result.kept.position.step, 2);
    ck_assert_uint_eq(result.weights_hash, plain.weights_hash);
    lab_result_fini(&plain);
    lab_result_fini(&result);
}
END_TEST

START_TEST(stopped_run_can_be_continued)
{
    struct lab_options options = { .wish = TRAINER_CHECKPOINT_AND_STOP,
                                   .wish_after = 3,
                                   .max_delay_us = 1000 };
    struct lab_result plain, stopped, rest;
    struct job_spec spec;

    lab_spec("mlp", &spec);
    spec.parallel.gradient_blocks = 4;
    set_layout(&spec, &layouts[_i]);
    lab_run(&spec, NULL, &plain);
    lab_run(&spec, &options, &stopped);
    for (uint32_t i = 0; i < stopped.n_ranks; i++) {
        ck_assert_int_eq(stopped.ranks[i].status, GEMS_E_CANCELLED);
        ck_assert_str_eq(stopped.ranks[i].err.text, "stopped after step 4, as asked");
    }
    ck_assert_uint_eq(stopped.final.position.step, 4);
    ck_assert(stopped.final.is_final);
    options = (struct lab_options){ .restore = &stopped.final };
    set_layout(&spec, &layouts[(_i + 4) % N_LAYOUTS]);
    lab_run(&spec, &options, &rest);
    expect_success(&spec, &rest);
    ck_assert_uint_eq(rest.weights_hash, plain.weights_hash);
    lab_result_fini(&plain);
    lab_result_fini(&stopped);
    lab_result_fini(&rest);
}
END_TEST

START_TEST(restart_at_the_end_writes_the_last_checkpoint_again)
{
    struct lab_result first, second;
    struct lab_options options = { 0 };
    struct job_spec spec;

    lab_spec("mlp", &spec);
    set_layout(&spec, &layouts[6]);
    lab_run(&spec, NULL, &first);
    options.restore = &first.final;
    lab_run(&spec, &options, &second);
    expect_success(&spec, &second);
    ck_assert_uint_eq(second.n_checkpoints, 1);
    ck_assert_uint_eq(first.weights_hash, second.weights_hash);
    lab_result_fini(&first);
    lab_result_fini(&second);
}
END_TEST

/* ---- failures ---- */

START_TEST(loss_that_is_not_a_number_ends_the_run)
{
    struct lab_options options = { .nan_tensor = "output.dense.weight" };
    struct lab_result result;
    struct job_spec spec;
    uint32_t last;

    lab_spec("mlp", &spec);
    set_layout(&spec, &(struct layout_case){ SCHEDULE_LAYER, 3, 1, 0 });
    lab_run(&spec, &options, &result);
    last = result.n_ranks - 1;
    ck_assert_int_eq(result.ranks[last].status, GEMS_E_NAN);
    ck_assert_str_eq(result.ranks[last].err.text, "step 1, micro-batch 0: the loss is nan");
    for (uint32_t i = 0; i < last; i++) {
        ck_assert_int_eq(result.ranks[i].status, GEMS_E_PEER);
    }
    lab_result_fini(&result);
}
END_TEST

/* ---- memory ---- */

START_TEST(planted_error_of_64_bytes_shows)
{
    struct lab_options options = { .planted_bytes = 64 };
    struct lab_result result;
    struct job_spec spec;

    lab_spec("resnet1", &spec);
    set_layout(&spec, &(struct layout_case){ SCHEDULE_GEMS_MAST, 2, 1, 0 });
    lab_run(&spec, &options, &result);
    expect_success(&spec, &result);
    for (uint32_t i = 0; i < result.n_ranks; i++) {
        ck_assert_uint_eq(result.ranks[i].planned.total_bytes,
                          result.ranks[i].taken.total_bytes + 64);
        ck_assert_uint_eq(result.ranks[i].planned.workspace_bytes,
                          result.ranks[i].taken.workspace_bytes + 64);
    }
    lab_result_fini(&result);
}
END_TEST

/* With cpu, one rank only, as in its process: oneDNN's own allocations go to a
 * pool that is made for one compute thread.
 *
 * Starting the loader allocates, and its thread may or may not find a cached
 * stack; what a step or an evaluation allocates would come 9 and 3 times more
 * often in the longer run. */
START_TEST(steps_allocate_nothing)
{
    bool is_cpu = _i % 2 == 1 && backend_find("cpu", NULL);
    struct lab_options options = { .backend = is_cpu ? "cpu" : "ref" };
    struct lab_result few, many;
    struct job_spec spec;
    uint64_t n = 0;

    if (!lab_counts_allocations()) {
        return;
    }
    lab_spec(_i < 2 ? "resnet1" : _i == 2 ? "lenet" : "amoebanet", &spec);
    spec.checkpoint_every_epochs = 0;
    if (!is_cpu) {
        set_layout(&spec, &(struct layout_case){ SCHEDULE_GEMS_MAST, 3, 1, 0 });
    }
    spec.train.epochs = 1;
    lab_run(&spec, &options, &few);
    spec.train.epochs = 4;
    lab_run(&spec, &options, &many);
    expect_success(&spec, &few);
    expect_success(&spec, &many);
    for (uint32_t i = 0; i < few.n_ranks; i++) {
        uint64_t a = few.ranks[i].n_allocations, b = many.ranks[i].n_allocations;

        ck_assert_msg(b <= a + 2, "rank %u: %lu allocations in 3 steps, %lu in 12", i, a, b);
        n += a;
    }
    ck_assert_uint_gt(n, 0); /* the counting works */
    lab_result_fini(&few);
    lab_result_fini(&many);
}
END_TEST

/* ---- cadence ---- */

START_TEST(learning_rate_follows_the_schedule)
{
    struct plan plan = { .steps_per_epoch = 10, .steps_total = 40 };
    struct job_spec spec;

    lab_spec("mlp", &spec);
    spec.train.lr = 0.8;
    spec.train.warmup_epochs = 0.5;
    spec.train.schedule = LR_CONSTANT;
    ck_assert_double_eq_tol(trainer_lr(&spec, &plan, 1), 0.16, 1e-15);
    ck_assert_double_eq_tol(trainer_lr(&spec, &plan, 4), 0.64, 1e-15);
    ck_assert_double_eq_tol(trainer_lr(&spec, &plan, 5), 0.8, 1e-15);
    ck_assert_double_eq_tol(trainer_lr(&spec, &plan, 40), 0.8, 1e-15);
    spec.train.warmup_epochs = 0;
    spec.train.schedule = LR_COSINE;
    ck_assert_double_eq_tol(trainer_lr(&spec, &plan, 1), 0.8, 1e-15);
    ck_assert_double_eq_tol(trainer_lr(&spec, &plan, 21), 0.4, 1e-15);
    ck_assert_double_eq_tol(trainer_lr(&spec, &plan, 40), 0.4 * (1 + cos(M_PI * 39 / 40)), 1e-15);
    spec.train.schedule = LR_STEP;
    spec.train.lr_step_epochs = 2;
    spec.train.lr_gamma = 0.1;
    ck_assert_double_eq_tol(trainer_lr(&spec, &plan, 20), 0.8, 1e-15);
    ck_assert_double_eq_tol(trainer_lr(&spec, &plan, 21), 0.08, 1e-15);
}
END_TEST

START_TEST(checkpoints_and_evaluations_come_when_due)
{
    struct plan plan = { .steps_per_epoch = 10, .steps_total = 35, .n_eval = 5 };
    struct job_spec spec;

    lab_spec("mlp", &spec);
    spec.checkpoint_every_steps = 7;
    spec.checkpoint_every_epochs = 2;
    for (uint64_t step = 0; step <= 35; step++) {
        bool is_checkpoint =
            step == 7 || step == 14 || step == 20 || step == 21 || step == 28 || step == 35;
        bool is_eval = step == 10 || step == 20 || step == 30 || step == 35;

        ck_assert_int_eq(trainer_checkpoint_due(&spec, &plan, step), is_checkpoint);
        ck_assert_int_eq(trainer_eval_due(&spec, &plan, step), is_eval);
    }
    spec.checkpoint_every_steps = spec.checkpoint_every_epochs = 0;
    plan.n_eval = 0;
    ck_assert(!trainer_checkpoint_due(&spec, &plan, 34));
    ck_assert(trainer_checkpoint_due(&spec, &plan, 35)); /* always one at the end */
    ck_assert(!trainer_eval_due(&spec, &plan, 35));
}
END_TEST

/* Every message is late, so ranks with peers wait; what a step is made of is there,
 * and no more than the whole run. */
START_TEST(time_is_booked_where_it_is_spent)
{
    struct lab_options options = { .max_delay_us = 2000 };
    const struct layout_case *layout = &layouts[_i];
    struct lab_result result;
    struct job_spec spec;

    lab_spec("lenet", &spec);
    set_layout(&spec, layout);
    if (!is_possible(layout, &spec)) {
        return;
    }
    lab_run(&spec, &options, &result);
    expect_success(&spec, &result);
    for (uint32_t i = 0; i < result.n_ranks; i++) {
        const struct lab_rank *rank = &result.ranks[i];
        uint32_t copies[PLAN_MAX_COPIES], stages[PLAN_MAX_RESIDENT];
        uint32_t n = plan_resident(&result.plan, i, stages);
        bool is_end = stages[0] == 0 || stages[n - 1] + 1 == result.plan.n_stages;
        uint64_t step_ns = 0;

        for (int kind = 0; kind < TIMELINE_SPENT; kind++) {
            step_ns += rank->step_ns[kind];
        }
        ck_assert_uint_gt(rank->step_ns[TIMELINE_COMPUTE], 0);
        ck_assert_uint_le(step_ns, rank->busy_ns + rank->wait_ns);
        ck_assert_uint_le(rank->busy_ns + rank->wait_ns, rank->run_ns);
        if (result.n_ranks > 1) {
            ck_assert_uint_gt(rank->step_ns[TIMELINE_WAIT], 50000);
        }
        if (plan_copies(&result.plan, stages[0], copies, PLAN_MAX_COPIES) > 1) {
            ck_assert_uint_gt(rank->step_ns[TIMELINE_REDUCE], 0);
        }
        if (is_end) {
            ck_assert_uint_gt(rank->step_ns[TIMELINE_COPY], 0);
        }
    }
    lab_result_fini(&result);
}
END_TEST

static void add_loop(Suite *suite, const char *name, const TTest *test, int n)
{
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, 240);
    tcase_add_loop_test(tcase, test, 0, n);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("trainer");

    add_loop(suite, "rates", learning_rate_follows_the_schedule, 1);
    add_loop(suite, "due", checkpoints_and_evaluations_come_when_due, 1);
    add_loop(suite, "layouts", layouts_agree, N_MODELS);
    add_loop(suite, "steps", layouts_agree_for_all_step_sizes, N_STEPS);
    add_loop(suite, "delays", layouts_agree_under_delays, 2);
    add_loop(suite, "cpu", layouts_agree_on_the_cpu_back_end, N_MODELS);
    add_loop(suite, "oracle", numbers_are_those_of_the_oracle, N_MODELS);
    add_loop(suite, "restart", restart_under_another_layout_continues_the_same_run, 6);
    add_loop(suite, "wish", wish_of_rank_0_is_granted_one_step_later_on_all_ranks, N_LAYOUTS);
    add_loop(suite, "stop", stopped_run_can_be_continued, N_LAYOUTS);
    add_loop(suite, "end", restart_at_the_end_writes_the_last_checkpoint_again, 1);
    add_loop(suite, "times", time_is_booked_where_it_is_spent, N_LAYOUTS);
    add_loop(suite, "nan", loss_that_is_not_a_number_ends_the_run, 1);
    add_loop(suite, "planted", planted_error_of_64_bytes_shows, 1);
    add_loop(suite, "allocations", steps_allocate_nothing, 4);
    return run_suite(suite);
}
