/* The pieces of plan/: what a job may say, blocks and tags, shards, packing, cuts
 * against all possible ones, and what the planner refuses and advises. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "model/passes.h"
#include "plan/blocks.h"
#include "plan/cut.h"
#include "plan/pack.h"
#include "plan/planner.h"
#include "plan/program.h"
#include "tests/sim/random_job.h"

/* --- spec --- */

static void good_spec(struct job_spec *spec)
{
    spec_init(spec);
    strcpy(spec->name, "tiles");
    strcpy(spec->model.zoo, "resnet");
    spec->model.classes = 10;
    spec->model.height = spec->model.width = spec->data.height = spec->data.width = 32;
    spec->data.samples = 1000;
    spec->train.epochs = 2;
}

struct spec_case {
    void (*change)(struct job_spec *);
    int status;
    const char *text;
};

static void no_name(struct job_spec *s)
{
    s->name[0] = '\0';
}

static void name_with_newline(struct job_spec *s)
{
    strcpy(s->name, "a\nb");
}

static void endless_name(struct job_spec *s)
{
    memset(s->name, 'a', sizeof s->name);
}

static void no_model(struct job_spec *s)
{
    s->model.zoo[0] = '\0';
}

static void no_classes(struct job_spec *s)
{
    s->model.classes = 0;
}

static void relative_path(struct job_spec *s)
{
    s->data.format = DATA_IDX;
    strcpy(s->data.train, "data/train");
}

static void no_path(struct job_spec *s)
{
    s->data.format = DATA_IMAGEFOLDER;
}

static void bad_format(struct job_spec *s)
{
    s->data.format = (enum data_format)17;
}

static void no_samples(struct job_spec *s)
{
    s->data.samples = 0;
}

static void no_height(struct job_spec *s)
{
    s->data.height = s->model.height = 0;
}

static void other_size(struct job_spec *s)
{
    s->data.width = 64;
}

static void no_std(struct job_spec *s)
{
    s->data.std = 0;
}

static void no_end(struct job_spec *s)
{
    s->train.epochs = 0;
}

static void two_ends(struct job_spec *s)
{
    s->train.steps = 10;
}

static void no_batch(struct job_spec *s)
{
    s->train.batch = 0;
}

static void nan_lr(struct job_spec *s)
{
    s->train.lr = NAN;
}

static void momentum_of_one(struct job_spec *s)
{
    s->train.momentum = 1;
}

static void nesterov_with_adam(struct job_spec *s)
{
    s->train.optimizer = OPTIMIZER_ADAM;
    s->train.is_nesterov = true;
}

static void f64_on_cpu(struct job_spec *s)
{
    s->train.precision = PRECISION_F64;
    s->resources.kind = DEVICE_CPU;
}

static void later_schedule(struct job_spec *s)
{
    s->parallel.schedule = SCHEDULE_V_MIN;
}

static void odd_chimera(struct job_spec *s)
{
    s->parallel.schedule = SCHEDULE_CHIMERA;
    s->parallel.stages = 3;
}

static void unknown_schedule(struct job_spec *s)
{
    s->parallel.schedule = (enum schedule_kind)99;
}

static void later_recompute(struct job_spec *s)
{
    s->parallel.recompute = RECOMPUTE_CHEAP;
}

static void too_many_groups(struct job_spec *s)
{
    s->parallel.groups = PLAN_MAX_COPIES + 1;
}

static void more_groups_than_devices(struct job_spec *s)
{
    s->parallel.groups = 3;
    s->parallel.stages = 2;
    s->resources.devices_max = 5;
}

static void too_many_stages(struct job_spec *s)
{
    s->parallel.stages = 257;
}

static void single_in_two(struct job_spec *s)
{
    s->parallel.schedule = SCHEDULE_SINGLE;
    s->parallel.stages = 2;
}

static void other_balance(struct job_spec *s)
{
    s->parallel.stages = 3;
    s->parallel.n_balance = 2;
    s->parallel.balance[0] = s->parallel.balance[1] = 4;
}

static void empty_stage(struct job_spec *s)
{
    s->parallel.n_balance = 2;
    s->parallel.balance[0] = 4;
}

static void large_microbatch(struct job_spec *s)
{
    s->parallel.microbatch = 33;
}

static void one_block(struct job_spec *s)
{
    s->parallel.schedule = SCHEDULE_GEMS_MAST;
    s->parallel.gradient_blocks = 1;
}

static void one_block_of_master(struct job_spec *s)
{
    s->parallel.schedule = SCHEDULE_GEMS_MASTER;
    s->parallel.gradient_blocks = 1;
}

static void cuda(struct job_spec *s)
{
    s->resources.kind = DEVICE_CUDA;
}

static void min_above_max(struct job_spec *s)
{
    s->resources.devices_min = 3;
    s->resources.devices_max = 2;
}

static void too_few_devices(struct job_spec *s)
{
    s->parallel.stages = 3;
    s->resources.devices_max = 2;
}

static void keep_none(struct job_spec *s)
{
    s->checkpoint_keep = 0;
}

static const struct spec_case spec_cases[] = {
    { no_name, GEMS_E_INVALID, "name: " },
    { name_with_newline, GEMS_E_INVALID, "name: " },
    { endless_name, GEMS_E_INVALID, "name: " },
    { no_model, GEMS_E_INVALID, "model.zoo: " },
    { no_classes, GEMS_E_INVALID, "model.classes: " },
    { relative_path, GEMS_E_INVALID, "data.train: 'data/train' is not absolute" },
    { no_path, GEMS_E_INVALID, "data.train: is missing" },
    { bad_format, GEMS_E_INVALID, "data.format: " },
    { no_samples, GEMS_E_INVALID, "data.samples: " },
    { no_height, GEMS_E_INVALID, "data.size[0]: " },
    { other_size, GEMS_E_INVALID, "data.size: images are 3x32x64, the model takes 3x32x32" },
    { no_std, GEMS_E_INVALID, "data.std: " },
    { no_end, GEMS_E_INVALID, "train.epochs: " },
    { two_ends, GEMS_E_INVALID, "train.steps: " },
    { no_batch, GEMS_E_INVALID, "train.batch: " },
    { nan_lr, GEMS_E_INVALID, "train.lr: " },
    { momentum_of_one, GEMS_E_INVALID, "train.momentum: " },
    { nesterov_with_adam, GEMS_E_INVALID, "train.nesterov: " },
    { f64_on_cpu, GEMS_E_INVALID, "train.precision: " },
    { later_schedule, GEMS_E_UNSUPPORTED, "parallel.schedule: v-min is not in this version" },
    { unknown_schedule, GEMS_E_INVALID, "parallel.schedule: " },
    { later_recompute, GEMS_E_UNSUPPORTED, "parallel.recompute: cheap is not in this version" },
    { too_many_groups, GEMS_E_INVALID, "parallel.groups: 33 is not in 0..32" },
    { more_groups_than_devices, GEMS_E_INVALID,
      "parallel.groups: 3 groups of 2 stages do not go on 5 devices" },
    { too_many_stages, GEMS_E_INVALID, "parallel.stages: 257 is not in 0..256" },
    { single_in_two, GEMS_E_INVALID, "parallel.stages: schedule single has 1 stage, not 2" },
    { odd_chimera, GEMS_E_INVALID,
      "parallel.stages: chimera runs on an even number of stages, not on 3" },
    { other_balance, GEMS_E_INVALID, "parallel.balance: 2 entries for 3 stages" },
    { empty_stage, GEMS_E_INVALID, "parallel.balance[1]: is 0" },
    { large_microbatch, GEMS_E_INVALID, "parallel.microbatch: 33 is more than train.batch 32" },
    { one_block, GEMS_E_INVALID, "parallel.gradient_blocks: 1 " },
    { one_block_of_master, GEMS_E_INVALID, "parallel.gradient_blocks: 1 " },
    { cuda, GEMS_E_UNSUPPORTED, "resources.kind: cuda is not in this version" },
    { min_above_max, GEMS_E_INVALID, "resources.devices: " },
    { too_few_devices, GEMS_E_INVALID, "parallel.stages: 3 stages do not go on 2 devices" },
    { keep_none, GEMS_E_INVALID, "checkpoint.keep: " },
};

START_TEST(spec_names_the_key_that_is_wrong)
{
    const struct spec_case *c = &spec_cases[_i];
    struct gems_error err = { 0 };
    struct job_spec spec;

    good_spec(&spec);
    ck_assert_int_eq(spec_check(&spec, &err), GEMS_OK);
    c->change(&spec);
    ck_assert_int_eq(spec_check(&spec, &err), c->status);
    ck_assert_int_eq(err.status, c->status);
    ck_assert_msg(!strncmp(err.text, c->text, strlen(c->text)), "'%s' instead of '%s'", err.text,
                  c->text);
    if (c->status == GEMS_E_UNSUPPORTED) {
        ck_assert_ptr_nonnull(strstr(err.hint, "available: "));
    }
}
END_TEST

START_TEST(schedule_names_go_both_ways)
{
    for (int kind = 0; kind < SCHEDULE_COUNT; kind++) {
        ck_assert_int_eq(schedule_from_name(schedule_name(kind)), kind);
    }
    ck_assert_int_eq(schedule_from_name("gems-basic"), SCHEDULE_LAYER);
    ck_assert_int_lt(schedule_from_name("nonsense"), 0);
    ck_assert(schedule_is_available(SCHEDULE_GEMS_MAST));
    ck_assert(schedule_is_available(SCHEDULE_1F1B));
    ck_assert(schedule_is_available(SCHEDULE_GEMS_MASTER));
    ck_assert(!schedule_is_available(SCHEDULE_V_MIN));
}
END_TEST

/* --- blocks, tags, shards, packing --- */

START_TEST(blocks_hold_every_micro_batch_once)
{
    for (uint32_t g = 1; g <= 12; g++) {
        for (uint32_t n = 1; n <= 30; n++) {
            ck_assert_uint_eq(gradient_block_first(0, n, g), 0);
            ck_assert_uint_eq(gradient_block_first(g, n, g), n);
            for (uint32_t i = 0; i < n; i++) {
                uint32_t b = gradient_block(i, n, g);

                ck_assert_uint_lt(b, g);
                ck_assert_uint_le(gradient_block_first(b, n, g), i);
                ck_assert_uint_gt(gradient_block_first(b + 1, n, g), i);
            }
        }
    }
}
END_TEST

START_TEST(split_is_the_largest_power_of_two_below)
{
    static const uint32_t expected[] = { 0, 1, 1, 2, 2, 4, 4, 4, 4, 8 };

    for (uint32_t n = 2; n < sizeof expected / sizeof expected[0]; n++) {
        ck_assert_uint_eq(gradient_split(n), expected[n]);
    }
}
END_TEST

/* One buffer a level: 8 blocks need 4, not 8, and the sum lands in buffer 0. */
START_TEST(sums_hold_one_buffer_a_level)
{
    static const uint32_t most[] = { 0, 1, 2, 2, 3, 3, 3, 3, 4 };

    for (uint32_t g = 1; g <= 8; g++) {
        struct blocks blocks;
        uint32_t n_buffers = 0, to, from;
        bool is_first;

        blocks_init(&blocks, 0, g, 3 * g);
        for (uint32_t i = 0; i < 3 * g; i++) {
            uint32_t buffer = blocks_add(&blocks, &is_first);

            ck_assert_int_eq(is_first, i % 3 == 0);
            n_buffers = buffer + 1 > n_buffers ? buffer + 1 : n_buffers;
            while (blocks_combine(&blocks, i, &to, &from)) {
                ck_assert_uint_lt(to, from);
            }
        }
        ck_assert_uint_eq(n_buffers, most[g]);
        ck_assert_uint_eq(blocks.is_used, 1);
    }
}
END_TEST

START_TEST(tags_of_different_messages_differ)
{
    static const uint32_t values[6][3] = {
        { TAG_ACT, TAG_GRAD, TAG_GATHER }, { 0, 1, 15 },  { 0, 1, 65535 }, { 0, 1, 4095 },
        { 0, 1, (1 << 20) - 1 },           { 0, 1, 255 },
    };
    uint64_t tags[729];

    for (uint32_t i = 0; i < 729; i++) {
        uint32_t at[6], rest = i;

        for (int f = 0; f < 6; f++, rest /= 3) {
            at[f] = values[f][rest % 3];
        }
        tags[i] = program_tag(at[0], at[1], at[2], at[3], at[4], at[5]);
        for (uint32_t j = 0; j < i; j++) {
            ck_assert_uint_ne(tags[i], tags[j]);
        }
    }
}
END_TEST

START_TEST(shards_cover_all_blocks_about_evenly)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct draw draw = { seed, 0 };
        uint32_t n = draw_between(&draw, 1, 40), k = draw_between(&draw, 1, 6), first[8];
        uint64_t bytes[40], total = 0, largest = 0;

        for (uint32_t i = 0; i < n; i++) {
            bytes[i] = 64 * draw_between(&draw, 0, 50);
            total += bytes[i];
            largest = bytes[i] > largest ? bytes[i] : largest;
        }
        plan_shards(bytes, n, k, first);
        ck_assert_uint_eq(first[0], 0);
        ck_assert_uint_eq(first[k], n);
        for (uint32_t o = 0; o < k; o++) {
            uint64_t owned = 0;

            ck_assert_uint_le(first[o], first[o + 1]);
            for (uint32_t i = first[o]; i < first[o + 1]; i++) {
                owned += bytes[i];
            }
            ck_assert_uint_le(owned, total / k + largest + 1);
        }
    }
}
END_TEST

START_TEST(packed_places_never_overlap)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct draw draw = { seed, 0 };
        uint32_t n = draw_between(&draw, 0, 60);
        struct pack_item items[60];
        uint64_t total = 0, load[101] = { 0 }, needed = 0;

        for (uint32_t i = 0; i < n; i++) {
            uint32_t first = draw_between(&draw, 0, 99);

            items[i] = (struct pack_item){ draw_between(&draw, 1, 2000), first,
                                           draw_between(&draw, first, 100), 0 };
            for (uint32_t t = items[i].first; t <= items[i].last; t++) {
                load[t] += pack_round(items[i].bytes, 64);
                needed = load[t] > needed ? load[t] : needed;
            }
        }
        ck_assert_int_eq(pack_intervals(items, n, 64, &total, NULL), GEMS_OK);
        ck_assert_uint_ge(total, needed);
        ck_assert_uint_le(total, 2 * needed);
        for (uint32_t i = 0; i < n; i++) {
            ck_assert_uint_eq(items[i].offset % 64, 0);
            ck_assert_uint_le(items[i].offset + items[i].bytes, total);
            for (uint32_t j = 0; j < i; j++) {
                bool meet = items[i].first <= items[j].last && items[j].first <= items[i].last;
                bool overlap = items[i].offset < items[j].offset + items[j].bytes &&
                               items[j].offset < items[i].offset + items[i].bytes;

                ck_assert(!meet || !overlap);
            }
        }
    }
}
END_TEST

/* --- cuts --- */

/* Calls measure for every cut of n layers into p stages; least value. */
static double best_of_all(const struct cut_input *input, uint32_t *counts, uint32_t stage,
                          uint32_t left,
                          double (*measure)(const struct cut_input *, const uint32_t *))
{
    double best = INFINITY;

    if (stage + 1 == input->n_stages) {
        counts[stage] = left;
        return measure(input, counts);
    }
    for (uint32_t c = 1; c + input->n_stages - stage - 1 <= left; c++) {
        double value;

        counts[stage] = c;
        value = best_of_all(input, counts, stage + 1, left - c, measure);
        best = value < best ? value : best;
    }
    return best;
}

static double memory_as_double(const struct cut_input *input, const uint32_t *counts)
{
    return (double)cut_memory(input, counts);
}

/* Memory of each device by definition, against which cut_memory is held. */
static double memory_by_hand(const struct cut_input *input, const uint32_t *counts)
{
    uint32_t p = input->n_stages, first[SPEC_MAX_STAGES + 1] = { 0 };
    double most = 0;

    for (uint32_t s = 0; s < p; s++) {
        first[s + 1] = first[s] + counts[s];
    }
    for (uint32_t d = 0; d < p; d++) {
        uint32_t stages[2] = { d, p - 1 - d }, n = input->is_mirrored && d != p - 1 - d ? 2 : 1;
        double slots = 0, state = 0;

        for (uint32_t k = 0; k < n; k++) {
            uint32_t s = stages[k];
            double slot = (double)input->layers[first[s]].enter_bytes;

            for (uint32_t l = first[s]; l < first[s + 1]; l++) {
                slot += (double)input->layers[l].slot_bytes;
                state += (double)input->layers[l].state_bytes;
            }
            slots = slot > slots ? slot : slots;
        }
        most = fmax(most, input->n_slots * slots + state);
    }
    return most;
}

START_TEST(cuts_are_as_good_as_the_best_of_all)
{
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct draw draw = { seed, 0 };
        struct cut_layer layers[12] = { 0 };
        uint32_t counts[12], all[12], sum;
        struct cut_input input = { .layers = layers, .n_layers = draw_between(&draw, 1, 12) };
        double best;

        input.n_stages = draw_between(&draw, 1, input.n_layers < 6 ? input.n_layers : 6);
        input.n_slots = draw_between(&draw, 1, 4);
        input.is_mirrored = _i;
        for (uint32_t l = 0; l < input.n_layers; l++) {
            layers[l].seconds = draw_between(&draw, 1, 50);
            layers[l].slot_bytes = draw_between(&draw, 0, 1000);
            layers[l].state_bytes = draw_between(&draw, 0, 300);
            /* with it a longer stage may hold less: tried for one copy only */
            layers[l].enter_bytes = _i ? 0 : draw_between(&draw, 0, 500);
        }
        ck_assert_int_eq(cut_by_time(&input, counts, NULL), GEMS_OK);
        best = best_of_all(&input, all, 0, input.n_layers, cut_slowest);
        ck_assert_double_eq_tol(cut_slowest(&input, counts), best, 1e-9);
        ck_assert_int_eq(cut_by_memory(&input, counts, NULL), GEMS_OK);
        best = best_of_all(&input, all, 0, input.n_layers, memory_as_double);
        ck_assert_double_eq_tol(memory_as_double(&input, counts), best, 1e-9);
        ck_assert_double_eq_tol(memory_by_hand(&input, counts), best, 1e-9);
        sum = 0;
        for (uint32_t s = 0; s < input.n_stages; s++) {
            ck_assert_uint_ge(counts[s], 1);
            sum += counts[s];
        }
        ck_assert_uint_eq(sum, input.n_layers);
    }
}
END_TEST

/* --- planner --- */

/* A job on a chain of equal layers: input, 10 convolutions, flatten with dense. */
static void make_job(struct random_job *job, uint32_t batch, uint32_t n_devices, uint64_t memory)
{
    struct node node = { .kind = OP_INPUT, .name = "in", .out = { 8, 16, 16, false } };
    uint32_t sizes[FACTS_MAX_SIZES];
    int x;

    *job = (struct random_job){ .n_devices = n_devices };
    graph_init(&job->graph, "chain", 4);
    x = graph_add(&job->graph, &node, NULL);
    for (uint32_t i = 0; i < 10; i++) {
        node = (struct node){ .kind = OP_CONV,
                              .layer = i,
                              .n_inputs = 1,
                              .inputs = { (uint32_t)x },
                              .k = 8,
                              .r = 3,
                              .s = 3,
                              .stride_h = 1,
                              .stride_w = 1,
                              .pad_h = 1,
                              .pad_w = 1 };
        node.name[0] = (char)('a' + i);
        x = graph_add(&job->graph, &node, NULL);
    }
    node = (struct node){
        .kind = OP_FLATTEN, .name = "flat", .layer = 10, .n_inputs = 1, .inputs = { (uint32_t)x }
    };
    x = graph_add(&job->graph, &node, NULL);
    node = (struct node){ .kind = OP_DENSE,
                          .name = "head",
                          .layer = 10,
                          .n_inputs = 1,
                          .inputs = { (uint32_t)x },
                          .k = 4 };
    x = graph_add(&job->graph, &node, NULL);
    node = (struct node){
        .kind = OP_LOSS, .name = "loss", .layer = 10, .n_inputs = 1, .inputs = { (uint32_t)x }
    };
    x = graph_add(&job->graph, &node, NULL);
    ck_assert_int_eq(x, 13);
    job->graph.n_layers = 11;
    good_spec(&job->spec);
    job->spec.train.batch = batch;
    ck_assert_int_eq(planner_settle(&job->graph, &job->spec, NULL), GEMS_OK);
    job->facts.n_train = 100;
    job->facts.n_sizes = planner_batch_sizes(&job->spec, 100, 0, sizes);
    for (uint32_t i = 0; i < job->facts.n_sizes; i++) {
        random_facts(&job->graph, sizes[i], &job->facts.sizes[i]);
    }
    for (uint32_t i = 0; i < n_devices; i++) {
        job->devices[i] =
            (struct plan_device){ .kind = DEVICE_REF, .memory_bytes = memory, .speed = 1 };
    }
}

static int plan_it(struct random_job *job, struct plan *ret_plan, struct gems_error *err)
{
    return planner_plan(&job->graph, &job->spec, &job->facts, job->devices, job->n_devices,
                        ret_plan, err);
}

START_TEST(settle_decides_what_changes_numbers)
{
    static const uint32_t cases[][2] = { { 1, 1 }, { 2, 1 },  { 3, 2 },  { 4, 1 },
                                         { 5, 2 }, { 32, 8 }, { 33, 9 }, { 128, 32 } };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct random_job job;

        make_job(&job, cases[i][0], 1, 0);
        ck_assert_uint_eq(job.spec.parallel.microbatch, cases[i][1]);
        ck_assert_uint_eq(job.spec.parallel.gradient_blocks, 2);
        ck_assert_double_eq_tol(job.spec.train.lr, 0.1, 1e-15);
        ck_assert_int_eq(job.spec.parallel.schedule, SCHEDULE_AUTO);
        random_job_fini(&job);
    }
}
END_TEST

START_TEST(batch_sizes_are_those_of_the_last_micro_batches)
{
    struct job_spec spec;
    uint32_t sizes[FACTS_MAX_SIZES];

    good_spec(&spec);
    spec.train.batch = 10;
    spec.parallel.microbatch = 4;
    ck_assert_uint_eq(planner_batch_sizes(&spec, 0, 0, sizes), 2);
    ck_assert_uint_eq(sizes[0], 4);
    ck_assert_uint_eq(sizes[1], 2);
    ck_assert_uint_eq(planner_batch_sizes(&spec, 1003, 47, sizes), 3);
    ck_assert_uint_eq(sizes[2], 3);
    ck_assert_uint_eq(planner_batch_sizes(&spec, 1003, 41, sizes), 4);
    ck_assert_uint_eq(sizes[3], 1);
}
END_TEST

START_TEST(more_stages_than_layers_are_refused)
{
    struct gems_error err = { 0 };
    struct random_job job;
    struct plan plan;

    make_job(&job, 4, RANDOM_MAX_DEVICES, 0);
    job.spec.parallel.stages = 12;
    ck_assert_int_eq(plan_it(&job, &plan, &err), GEMS_E_INVALID);
    ck_assert_str_eq(err.text, "parallel.stages: 12 stages for a model of 11 layers");
    ck_assert_int_eq(planner_settle(&job.graph, &job.spec, &err), GEMS_E_INVALID);
    random_job_fini(&job);
}
END_TEST

START_TEST(too_few_devices_do_not_fit)
{
    struct gems_error err = { 0 };
    struct random_job job;
    struct plan plan;

    make_job(&job, 4, 2, 0);
    job.spec.parallel.stages = 3;
    ck_assert_int_eq(plan_it(&job, &plan, &err), GEMS_E_NOFIT);
    ck_assert_str_eq(err.text, "parallel.stages: 3 stages need as many devices, there are 2");
    random_job_fini(&job);
}
END_TEST

START_TEST(balance_must_add_up_and_is_kept)
{
    static const uint32_t balance[] = { 2, 5, 4 };
    struct gems_error err = { 0 };
    struct random_job job;
    struct plan plan;

    make_job(&job, 4, 3, 0);
    job.spec.parallel.schedule = SCHEDULE_GPIPE;
    job.spec.parallel.n_balance = 3;
    memcpy(job.spec.parallel.balance, balance, sizeof balance);
    ck_assert_int_eq(plan_it(&job, &plan, &err), GEMS_OK);
    ck_assert_mem_eq(plan.stage_layers, balance, sizeof balance);
    ck_assert_uint_eq(plan.stage_node[1], 3); /* input and two convolutions */
    ck_assert_uint_eq(plan.stage_node[2], 8);
    plan_fini(&plan);
    job.spec.parallel.balance[2] = 5;
    ck_assert_int_eq(plan_it(&job, &plan, &err), GEMS_E_INVALID);
    ck_assert_str_eq(err.text, "parallel.balance: adds up to 12 layers, the model has 11");
    random_job_fini(&job);
}
END_TEST

START_TEST(plan_holds_steps_and_short_programs)
{
    struct random_job job;
    struct plan plan;

    make_job(&job, 16, 2, 0); /* 100 samples: 6 steps of 16 and one of 4 */
    ck_assert_int_eq(plan_it(&job, &plan, NULL), GEMS_OK);
    ck_assert_uint_eq(plan.steps_per_epoch, 7);
    ck_assert_uint_eq(plan.steps_total, 14);
    ck_assert_uint_eq(plan.train.n_microbatches, 4);
    ck_assert_uint_eq(plan.train_last.n_microbatches, 1);
    ck_assert_uint_eq(plan.train_last.last_microbatch, 4);
    ck_assert_uint_eq(plan.eval.n_ranks, 0);
    ck_assert_uint_eq(plan.eval_last.n_ranks, 0);
    ck_assert(plan.fits);
    plan_fini(&plan);
    random_job_fini(&job);
}
END_TEST

START_TEST(limit_of_the_job_counts_as_the_device_does)
{
    struct random_job job;
    struct plan plan;
    uint64_t needed;

    make_job(&job, 4, 2, 1 << 30);
    job.spec.parallel.schedule = SCHEDULE_LAYER;
    ck_assert_int_eq(plan_it(&job, &plan, NULL), GEMS_OK);
    ck_assert(plan.fits);
    needed = plan.memory[0].total_bytes > plan.memory[1].total_bytes ? plan.memory[0].total_bytes
                                                                     : plan.memory[1].total_bytes;
    plan_fini(&plan);
    job.spec.resources.memory_bytes = needed;
    ck_assert_int_eq(plan_it(&job, &plan, NULL), GEMS_OK);
    ck_assert(plan.fits);
    ck_assert_uint_eq(plan.memory[0].limit_bytes, needed);
    plan_fini(&plan);
    job.spec.resources.memory_bytes = needed / 2;
    ck_assert_int_eq(plan_it(&job, &plan, NULL), GEMS_OK);
    ck_assert(!plan.fits);
    plan_fini(&plan);
    random_job_fini(&job);
}
END_TEST

/* Takes "parallel.KEY: VALUE" out of the advice; 0 if it is not there. */
static unsigned advised(const struct plan *plan, const char *key)
{
    const char *at = strstr(plan->advice, key);

    return at ? (unsigned)strtoul(at + strlen(key), NULL, 10) : 0;
}

START_TEST(advice_is_true)
{
    struct random_job job;
    struct plan plan, better;
    unsigned stages;

    make_job(&job, 16, 1, 0);
    job.spec.parallel.schedule = SCHEDULE_SINGLE;
    ck_assert_int_eq(plan_it(&job, &plan, NULL), GEMS_OK);
    job.devices[0].memory_bytes = plan.memory[0].total_bytes * 7 / 10;
    plan_fini(&plan);
    ck_assert_int_eq(plan_it(&job, &plan, NULL), GEMS_OK);
    ck_assert(!plan.fits);
    ck_assert_ptr_nonnull(strstr(plan.advice, "rank 0 needs "));
    stages = advised(&plan, "parallel.stages: ");
    ck_assert_uint_ge(stages, 2);
    for (uint32_t i = 1; i < RANDOM_MAX_DEVICES; i++) {
        job.devices[i] = job.devices[0];
    }
    /* with as many as advised it fits, with one fewer it does not */
    job.spec.parallel.schedule = SCHEDULE_LAYER;
    job.n_devices = stages;
    ck_assert_int_eq(plan_it(&job, &better, NULL), GEMS_OK);
    ck_assert(better.fits);
    plan_fini(&better);
    job.n_devices = stages - 1;
    ck_assert_int_eq(plan_it(&job, &better, NULL), GEMS_OK);
    ck_assert(!better.fits);
    plan_fini(&better);
    plan_fini(&plan);
    random_job_fini(&job);
}
END_TEST

START_TEST(advice_says_when_nothing_helps)
{
    struct random_job job;
    struct plan plan;

    make_job(&job, 16, 2, 1000);
    ck_assert_int_eq(plan_it(&job, &plan, NULL), GEMS_OK);
    ck_assert(!plan.fits);
    ck_assert_ptr_nonnull(strstr(plan.advice, "has 1000 B; no number of stages"));
    plan_fini(&plan);
    random_job_fini(&job);
}
END_TEST

START_TEST(zoo_models_run_on_any_number_of_stages)
{
    static const struct zoo_spec zoo[] = {
        { .zoo = "resnet", .version = 1, .depth = 20 },
        { .zoo = "resnet", .version = 2, .depth = 20 },
        { .zoo = "lenet" },
        { .zoo = "mlp", .n_hidden = 3, .hidden = { 30, 20, 10 } },
    };
    static const enum schedule_kind kinds[] = { SCHEDULE_LAYER, SCHEDULE_GPIPE,
                                                SCHEDULE_GEMS_MAST };
    struct gems_error err = { 0 };
    struct random_job job = { .n_devices = 0 };
    uint32_t sizes[FACTS_MAX_SIZES];

    good_spec(&job.spec);
    job.spec.train.batch = 6;
    job.spec.model = zoo[_i];
    job.spec.model.classes = 10;
    job.spec.model.channels = 3;
    job.spec.model.height = job.spec.model.width = 32;
    ck_assert_msg(zoo_build(&job.spec.model, &job.graph, &err) == GEMS_OK, "%s", err.text);
    ck_assert_int_eq(graph_fuse(&job.graph, &err), GEMS_OK);
    ck_assert_int_eq(planner_settle(&job.graph, &job.spec, &err), GEMS_OK);
    job.facts.n_train = 20;
    job.facts.n_eval = 9;
    job.facts.n_sizes = planner_batch_sizes(&job.spec, 20, 9, sizes);
    for (uint32_t i = 0; i < job.facts.n_sizes; i++) {
        random_facts(&job.graph, sizes[i], &job.facts.sizes[i]);
    }
    for (uint32_t p = 1; p <= job.graph.n_layers && p <= RANDOM_MAX_DEVICES; p++) {
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            struct plan plan;

            job.n_devices = p;
            job.spec.parallel.schedule = kinds[k];
            ck_assert_msg(plan_it(&job, &plan, &err) == GEMS_OK, "%s", err.text);
            ck_assert_uint_eq(plan.n_stages, p);
            ck_assert_uint_eq(plan.parameters, graph_trainable(&job.graph));
            ck_assert_double_gt(plan.step_seconds, 0);
            ck_assert_double_ge(plan.idle_fraction, 0);
            ck_assert_double_lt(plan.idle_fraction, 1);
            plan_fini(&plan);
        }
    }
    random_job_fini(&job);
}
END_TEST

START_TEST(mirrored_stages_lie_on_mirrored_ranks)
{
    struct plan plan = { .n_stages = 5, .n_groups = 1, .n_chains = 2, .n_ranks = 5 };
    uint32_t list[PLAN_MAX_RESIDENT];

    ck_assert_uint_eq(plan_rank(&plan, 0, 0, 1), 1);
    ck_assert_uint_eq(plan_rank(&plan, 0, 1, 1), 3);
    ck_assert_uint_eq(plan_resident(&plan, 3, list), 2);
    ck_assert_uint_eq(list[0], 1);
    ck_assert_uint_eq(list[1], 3);
    ck_assert_uint_eq(plan_resident(&plan, 2, list), 1); /* the middle one: its stage once */
    ck_assert_uint_eq(plan_copies(&plan, 1, list, PLAN_MAX_RESIDENT), 2);
    ck_assert_uint_eq(list[0], 1);
    ck_assert_uint_eq(list[1], 3);
    ck_assert_uint_eq(plan_copies(&plan, 2, list, PLAN_MAX_RESIDENT), 1);
}
END_TEST

/* The tree over the blocks is dealt as it splits, or not at all. */
START_TEST(groups_and_chains_own_whole_parts_of_the_tree)
{
    for (uint32_t groups = 1; groups <= 8; groups++) {
        for (uint32_t chains = 1; chains <= 2; chains++) {
            for (uint32_t blocks = 1; blocks <= 40; blocks++) {
                struct plan plan = { .n_groups = groups, .n_chains = chains, .n_blocks = blocks };
                uint32_t end = 0;

                if (blocks == groups * chains || blocks % (groups * chains) == 0) {
                    /* one block each always goes; so does any power of two of them */
                    uint32_t each = blocks / (groups * chains);

                    ck_assert((each & (each - 1)) || plan_keeps_sums(&plan));
                }
                if (blocks < groups * chains) {
                    ck_assert(!plan_keeps_sums(&plan));
                }
                for (uint32_t k = 0; plan_keeps_sums(&plan) && k < groups * chains; k++) {
                    uint32_t first, last;

                    ck_assert(plan_blocks(&plan, k / chains, k % chains, &first, &last));
                    ck_assert_uint_eq(first, end);
                    ck_assert_uint_gt(last, first);
                    end = last;
                }
                ck_assert(!plan_keeps_sums(&plan) || end == blocks);
            }
        }
    }
}
END_TEST

START_TEST(groups_that_change_the_sums_are_refused)
{
    struct gems_error err = { 0 };
    struct random_job job;
    struct plan plan;

    make_job(&job, 16, 9, 0);
    job.spec.parallel.schedule = SCHEDULE_GEMS_MAST;
    job.spec.parallel.groups = 2;
    job.spec.parallel.gradient_blocks = 3;
    ck_assert_int_eq(plan_it(&job, &plan, &err), GEMS_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "parallel.gradient_blocks: 3 blocks cannot be dealt"));
    ck_assert_ptr_nonnull(strstr(err.hint, "parallel.gradient_blocks: 4"));
    job.spec.parallel.gradient_blocks = 4;
    job.spec.parallel.stages = 5;
    ck_assert_int_eq(plan_it(&job, &plan, &err), GEMS_E_NOFIT);
    ck_assert_str_eq(err.text, "parallel.groups: 2 groups of 5 devices need 10, there are 9");
    job.spec.parallel.stages = 4;
    ck_assert_int_eq(plan_it(&job, &plan, &err), GEMS_OK);
    ck_assert_uint_eq(plan.n_ranks, 8);
    ck_assert_uint_eq(plan.n_groups, 2);
    plan_fini(&plan);
    job.spec.parallel.groups = 17;
    job.spec.parallel.gradient_blocks = 34;
    ck_assert_int_eq(plan_it(&job, &plan, &err), GEMS_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "34 copies of a stage, at most 32"));
    random_job_fini(&job);
}
END_TEST

/* Stages of chunks: v for each device, dealt round and round, or there and back. */
START_TEST(chunks_lie_where_the_schedule_says)
{
    struct plan plan = { .schedule = SCHEDULE_1F1B_INTERLEAVED,
                         .n_stages = 6,
                         .n_groups = 2,
                         .n_chains = 1,
                         .n_ranks = 6,
                         .n_blocks = 4 };
    uint32_t list[PLAN_MAX_RESIDENT];

    ck_assert_uint_eq(plan_width(&plan), 3);
    ck_assert_uint_eq(plan_rank(&plan, 0, 0, 4), 1);
    ck_assert_uint_eq(plan_rank(&plan, 1, 0, 4), 4);
    ck_assert_uint_eq(plan_resident(&plan, 4, list), 2);
    ck_assert_uint_eq(list[0], 1);
    ck_assert_uint_eq(list[1], 4);
    plan.schedule = SCHEDULE_V_HALF;
    ck_assert_uint_eq(plan_rank(&plan, 0, 0, 5), 0);
    ck_assert_uint_eq(plan_rank(&plan, 0, 0, 3), 2);
    ck_assert_uint_eq(plan_resident(&plan, 3, list), 2);
    ck_assert_uint_eq(list[0], 0);
    ck_assert_uint_eq(list[1], 5);
    ck_assert_uint_eq(plan_copies(&plan, 5, list, PLAN_MAX_RESIDENT), 2);
    ck_assert_uint_eq(list[0], 0);
    ck_assert_uint_eq(list[1], 3);
}
END_TEST

START_TEST(chunks_need_as_many_layers)
{
    struct gems_error err = { 0 };
    struct random_job job;
    struct plan plan;

    make_job(&job, 8, 9, 0);
    job.spec.parallel.schedule = SCHEDULE_1F1B_INTERLEAVED;
    job.spec.parallel.chunks = 3;
    job.spec.parallel.stages = 4;
    ck_assert_int_eq(plan_it(&job, &plan, &err), GEMS_E_INVALID);
    ck_assert_str_eq(err.text, "parallel.stages: 4 devices with 3 chunks each make 12 stages, the "
                               "model has 11 layers");
    ck_assert_ptr_nonnull(strstr(err.hint, "at most 3 devices"));
    job.spec.parallel.stages = 0; /* as many as the model allows */
    ck_assert_int_eq(plan_it(&job, &plan, &err), GEMS_OK);
    ck_assert_uint_eq(plan.n_ranks, 3);
    ck_assert_uint_eq(plan.n_stages, 9);
    plan_fini(&plan);
    job.spec.parallel.schedule = SCHEDULE_CHIMERA; /* an even number of the nine */
    ck_assert_int_eq(plan_it(&job, &plan, &err), GEMS_OK);
    ck_assert_uint_eq(plan.n_ranks, 8);
    plan_fini(&plan);
    job.spec.parallel.stages = 5;
    ck_assert_int_eq(plan_it(&job, &plan, &err), GEMS_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "even number of stages, not on 5"));
    random_job_fini(&job);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tcase = tcase_create("pieces");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, spec_names_the_key_that_is_wrong, 0,
                        sizeof spec_cases / sizeof spec_cases[0]);
    tcase_add_test(tcase, schedule_names_go_both_ways);
    tcase_add_test(tcase, blocks_hold_every_micro_batch_once);
    tcase_add_test(tcase, split_is_the_largest_power_of_two_below);
    tcase_add_test(tcase, sums_hold_one_buffer_a_level);
    tcase_add_test(tcase, tags_of_different_messages_differ);
    tcase_add_test(tcase, shards_cover_all_blocks_about_evenly);
    tcase_add_test(tcase, packed_places_never_overlap);
    tcase_add_loop_test(tcase, cuts_are_as_good_as_the_best_of_all, 0, 2);
    tcase_add_test(tcase, settle_decides_what_changes_numbers);
    tcase_add_test(tcase, batch_sizes_are_those_of_the_last_micro_batches);
    tcase_add_test(tcase, more_stages_than_layers_are_refused);
    tcase_add_test(tcase, too_few_devices_do_not_fit);
    tcase_add_test(tcase, balance_must_add_up_and_is_kept);
    tcase_add_test(tcase, plan_holds_steps_and_short_programs);
    tcase_add_test(tcase, limit_of_the_job_counts_as_the_device_does);
    tcase_add_test(tcase, advice_is_true);
    tcase_add_test(tcase, advice_says_when_nothing_helps);
    tcase_add_loop_test(tcase, zoo_models_run_on_any_number_of_stages, 0, 4);
    tcase_add_test(tcase, mirrored_stages_lie_on_mirrored_ranks);
    tcase_add_test(tcase, groups_and_chains_own_whole_parts_of_the_tree);
    tcase_add_test(tcase, groups_that_change_the_sums_are_refused);
    tcase_add_test(tcase, chunks_lie_where_the_schedule_says);
    tcase_add_test(tcase, chunks_need_as_many_layers);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
