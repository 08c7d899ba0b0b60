/* Whole networks: ref in f64 against PyTorch, cpu against ref, optimizers. */
#include "config.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/rng.h"
#include "model/passes.h"
#include "model/zoo.h"
#include "tests/lib/oracle.h"

enum { BATCH = 8, CLASSES = 10, SEED = 7, STEPS = 5 };

static void must(int st, const struct gems_error *err)
{
    ck_assert_msg(st == GEMS_OK, "%s", err->text);
}

static const struct backend *find(const char *name)
{
    struct gems_error err = { 0 };
    const struct backend *backend = backend_find(name, &err);

    ck_assert_msg(backend != NULL, "%s", err.text);
    return backend;
}

/* An amoebanet has the smallest number of layers, and depth filters. */
static void build(struct graph *graph, const char *zoo, uint32_t version, uint32_t depth,
                  uint32_t channels, uint32_t side)
{
    struct zoo_spec spec = { .version = version, .depth = depth, .layers = 3, .filters = depth,
                             .classes = CLASSES, .channels = channels, .height = side,
                             .width = side };
    struct gems_error err = { 0 };

    snprintf(spec.zoo, sizeof spec.zoo, "%s", zoo);
    must(zoo_build(&spec, graph, &err), &err);
    must(graph_fuse(graph, &err), &err);
}

/* Images and labels as in tests/data/make_torch_reference.py. */
static void *make_images(const struct graph *graph, uint32_t n, bool is_f64)
{
    uint64_t count = n * shape_count(&graph->nodes[0].out);
    void *images = malloc(count * sizeof(double));

    ck_assert_ptr_nonnull(images);
    for (uint64_t i = 0; i < count; i++) {
        double value = 2.0 * rng_unit(SEED, rng_stream(RNG_SYNTHETIC, 0), i) - 1.0;

        if (is_f64) {
            ((double *)images)[i] = value;
        } else {
            ((float *)images)[i] = (float)value;
        }
    }
    return images;
}

static void make_labels(uint32_t *labels, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        labels[i] = (3 * i + 1) % CLASSES;
    }
}

static struct oracle *open_oracle(const struct graph *graph, const char *backend, enum be_type type)
{
    struct oracle_config config = { .graph = graph, .backend = find(backend), .type = type,
                                    .threads = 1, .seed = SEED };
    struct gems_error err = { 0 };
    struct oracle *oracle = NULL;

    must(oracle_create(&config, &oracle, &err), &err);
    return oracle;
}

/* ---- PyTorch ---- */

static const struct torch_case {
    const char *name, *zoo;
    uint32_t version, depth, channels, side;
    struct oracle_update update;
} torch_cases[] = {
    { "resnet-20-v1", "resnet", 1, 20, 3, 16,
      { ORACLE_SGD, .sgd = { .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4,
                             .is_nesterov = true } } },
    { "resnet-20-v2", "resnet", 2, 20, 3, 16,
      { ORACLE_SGD, .sgd = { .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4 } } },
    { "amoebanet-d-3-16", "amoebanet-d", 0, 16, 3, 64,
      { ORACLE_SGD, .sgd = { .lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4 } } },
    { "lenet-adam", "lenet", 0, 0, 1, 28,
      { ORACLE_ADAM, .adam = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
                               .weight_decay = 1e-2 } } },
    { "lenet-adamw", "lenet", 0, 0, 1, 28,
      { ORACLE_ADAM, .adam = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
                               .weight_decay = 1e-2, .is_decoupled = true } } },
};
enum { N_TORCH = sizeof torch_cases / sizeof torch_cases[0] };

static FILE *open_reference(const char *name)
{
    const char *srcdir = getenv("srcdir");
    char path[4096], line[1024], wanted[64];
    FILE *file;

    snprintf(path, sizeof path, "%s/tests/data/torch_reference.txt", srcdir ? srcdir : ".");
    snprintf(wanted, sizeof wanted, "case %s\n", name);
    file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s: cannot be opened; is srcdir set?", path);
    while (fgets(line, sizeof line, file)) {
        if (strcmp(line, wanted) == 0) {
            return file;
        }
    }
    ck_abort_msg("%s: no case %s", path, name);
    return NULL;
}

static void near(double ours, double torch, double scale, const char *what)
{
    ck_assert_msg(fabs(ours - torch) <= 1e-9 * fmax(scale, 1.0), "%s: %.17g, PyTorch has %.17g",
                  what, ours, torch);
}

/* Node and parameter of a full tensor name. */
static uint64_t find_tensor(const struct graph *graph, const char *name, uint32_t *ret_node,
                            uint32_t *ret_p)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        struct param params[MODEL_MAX_PARAMS];
        uint32_t n = node_params(graph, i, params);

        for (uint32_t p = 0; p < n; p++) {
            char full[128];

            snprintf(full, sizeof full, "%s.%s", graph->nodes[i].name, params[p].suffix);
            if (strcmp(full, name) == 0) {
                *ret_node = i;
                *ret_p = p;
                return param_count(&params[p]);
            }
        }
    }
    ck_abort_msg("%s: no such tensor here", name);
    return 0;
}

static void compare_tensor(struct oracle *oracle, const struct graph *graph, const char *line)
{
    unsigned long long count;
    double want[6], sum = 0.0, squares = 0.0, *values;
    uint32_t node = 0, p = 0;
    struct gems_error err = { 0 };
    char name[128];
    uint64_t n;

    ck_assert_int_eq(sscanf(line, "tensor %127s %llu %lf %lf %lf %lf %lf %lf", name, &count,
                            &want[0], &want[1], &want[2], &want[3], &want[4], &want[5]),
                     8);
    n = find_tensor(graph, name, &node, &p);
    ck_assert_uint_eq(n, count);
    values = malloc(n * sizeof *values);
    ck_assert_ptr_nonnull(values);
    must(oracle_export(oracle, ORACLE_PARAM, node, p, values, &err), &err);
    for (uint64_t i = 0; i < n; i++) {
        sum += values[i];
        squares += values[i] * values[i];
    }
    near(sum, want[0], sqrt((double)n), name);
    near(squares, want[1], want[1], name);
    for (uint64_t i = 0; i < 4; i++) {
        near(values[i * (n - 1) / 3], want[2 + i], 1.0, name);
    }
    free(values);
}

START_TEST(ref_in_f64_trains_as_pytorch_does)
{
    const struct torch_case *c = &torch_cases[_i];
    struct oracle_update update = c->update;
    struct graph graph;
    struct oracle *oracle;
    struct gems_error err = { 0 };
    uint32_t labels[BATCH], n_tensors = 0, n_expected = 0;
    struct param params[MODEL_MAX_PARAMS];
    struct oracle_result result;
    FILE *reference = open_reference(c->name);
    char line[1024];
    void *images;

    build(&graph, c->zoo, c->version, c->depth, c->channels, c->side);
    oracle = open_oracle(&graph, "ref", BE_F64);
    images = make_images(&graph, BATCH, true);
    make_labels(labels, BATCH);
    for (uint32_t step = 0; step < STEPS; step++) {
        struct oracle_batch batch = { images, labels, BATCH, BATCH, 1, { 0 } };
        double want;

        update.adam.step = step + 1;
        must(oracle_gradients(oracle, &batch, &result, &err), &err);
        must(oracle_apply(oracle, &update, &err), &err);
        ck_assert_ptr_nonnull(fgets(line, sizeof line, reference));
        ck_assert_int_eq(sscanf(line, "loss %lf", &want), 1);
        near(result.loss_sum / BATCH, want, want, "loss");
    }
    while (fgets(line, sizeof line, reference) && strncmp(line, "tensor", 6) == 0) {
        compare_tensor(oracle, &graph, line);
        n_tensors++;
    }
    for (uint32_t i = 0; i < graph.n_nodes; i++) {
        n_expected += node_params(&graph, i, params);
    }
    ck_assert_uint_eq(n_tensors, n_expected);
    fclose(reference);
    free(images);
    oracle_destroy(oracle);
    graph_fini(&graph);
}
END_TEST

/* ---- cpu against ref ---- */

static double *export_all(struct oracle *oracle, const struct graph *graph, enum oracle_what what,
                          bool is_f64, uint64_t *ret_n)
{
    uint64_t total = graph_trainable(graph) + graph_statistics(graph), at = 0;
    double *all = malloc(total * sizeof *all), *values = malloc(total * sizeof *values);
    struct gems_error err = { 0 };

    ck_assert(all && values);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        struct param params[MODEL_MAX_PARAMS];
        uint32_t n = node_params(graph, i, params);

        for (uint32_t p = 0; p < n; p++) {
            must(oracle_export(oracle, what, i, p, values, &err), &err);
            for (uint64_t j = 0; j < param_count(&params[p]); j++) {
                all[at++] = is_f64 ? values[j] : (double)((float *)values)[j];
            }
        }
    }
    ck_assert_uint_eq(at, total);
    free(values);
    *ret_n = total;
    return all;
}

/* Gradients of one step from the initial weights. */
static double *one_step(const struct graph *graph, const char *backend, enum be_type type,
                        const struct oracle_batch *shape, struct oracle_result *ret_result,
                        uint64_t *ret_n)
{
    struct oracle *oracle = open_oracle(graph, backend, type);
    struct oracle_batch batch = *shape;
    struct gems_error err = { 0 };
    uint32_t *labels = malloc(batch.n * sizeof *labels);
    void *images = make_images(graph, batch.n, type == BE_F64);
    double *gradients;

    ck_assert_ptr_nonnull(labels);
    make_labels(labels, batch.n);
    batch.images = images;
    batch.labels = labels;
    must(oracle_gradients(oracle, &batch, ret_result, &err), &err);
    gradients = export_all(oracle, graph, ORACLE_GRADIENT, type == BE_F64, ret_n);
    oracle_destroy(oracle);
    free(labels);
    free(images);
    return gradients;
}

static double distance(const double *a, const double *b, uint64_t n)
{
    double difference = 0.0, length = 0.0;

    for (uint64_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        length += b[i] * b[i];
    }
    return sqrt(difference / length);
}

#ifdef HAVE_ONEDNN
static const struct {
    const char *zoo;
    uint32_t version, depth, side;
} near_cases[] = { { "resnet", 1, 20, 32 },
                   { "resnet", 2, 20, 32 },
                   { "resnet-imagenet", 0, 18, 45 },
                   { "amoebanet-d", 0, 32, 64 } };
enum { N_NEAR = sizeof near_cases / sizeof near_cases[0] };

START_TEST(cpu_gradients_of_a_network_are_near_ref)
{
    struct oracle_batch shape = { .n = 10, .microbatch = 4, .n_blocks = 2 };
    struct oracle_result a, b;
    struct graph graph;
    uint64_t n;
    double *cpu, *ref, d;

    build(&graph, near_cases[_i].zoo, near_cases[_i].version, near_cases[_i].depth, 3,
          near_cases[_i].side);
    cpu = one_step(&graph, "cpu", BE_F32, &shape, &a, &n);
    ref = one_step(&graph, "ref", BE_F32, &shape, &b, &n);
    d = distance(cpu, ref, n);
    ck_assert_msg(d <= 1e-4, "gradients differ by %g relative", d);
    ck_assert_msg(fabs(a.loss_sum - b.loss_sum) <= 1e-4 * b.loss_sum, "loss %g instead of %g",
                  a.loss_sum, b.loss_sum);
    free(cpu);
    free(ref);
    graph_fini(&graph);
}
END_TEST

START_TEST(cpu_steps_have_the_same_bits_twice)
{
    struct oracle_batch shape = { .n = 10, .microbatch = 4, .n_blocks = 2 };
    struct oracle_result a, b;
    struct graph graph;
    uint64_t n;
    double *first, *second;

    build(&graph, _i ? "amoebanet-d" : "resnet", 2, 20, 3, 32);
    first = one_step(&graph, "cpu", BE_F32, &shape, &a, &n);
    second = one_step(&graph, "cpu", BE_F32, &shape, &b, &n);
    ck_assert(memcmp(first, second, n * sizeof *first) == 0);
    ck_assert(memcmp(&a.loss_sum, &b.loss_sum, sizeof a.loss_sum) == 0);
    free(first);
    free(second);
    graph_fini(&graph);
}
END_TEST

/* A model with trained statistics evaluates alike on both. */
START_TEST(cpu_evaluation_of_a_trained_resnet_is_near_ref)
{
    struct oracle_update update = { ORACLE_SGD, .sgd = { .lr = 0.01, .momentum = 0.9 } };
    struct graph graph;
    struct oracle *cpu, *ref;
    struct gems_error err = { 0 };
    uint32_t labels[BATCH];
    struct oracle_result a, b;
    double value[4096];
    void *images;

    build(&graph, "resnet", 1, 8, 1, 16);
    cpu = open_oracle(&graph, "cpu", BE_F32);
    ref = open_oracle(&graph, "ref", BE_F32);
    images = make_images(&graph, BATCH, false);
    make_labels(labels, BATCH);
    struct oracle_batch batch = { images, labels, BATCH, 3, 2, { 0 } };

    must(oracle_gradients(ref, &batch, &a, &err), &err);
    must(oracle_apply(ref, &update, &err), &err);
    for (uint32_t i = 0; i < graph.n_nodes; i++) {
        struct param params[MODEL_MAX_PARAMS];
        uint32_t n = node_params(&graph, i, params);

        for (uint32_t p = 0; p < n; p++) {
            void *plain = malloc(param_count(&params[p]) * sizeof value[0]);

            ck_assert_ptr_nonnull(plain);
            must(oracle_export(ref, ORACLE_PARAM, i, p, plain, &err), &err);
            must(oracle_import(cpu, ORACLE_PARAM, i, p, plain, &err), &err);
            free(plain);
        }
    }
    must(oracle_evaluate(cpu, &batch, &a, &err), &err);
    must(oracle_evaluate(ref, &batch, &b, &err), &err);
    ck_assert_msg(fabs(a.loss_sum - b.loss_sum) <= 1e-5 * b.loss_sum, "loss %.9g instead of %.9g",
                  a.loss_sum, b.loss_sum);
    ck_assert_uint_eq(a.n_correct, b.n_correct);
    free(images);
    oracle_destroy(cpu);
    oracle_destroy(ref);
    graph_fini(&graph);
}
END_TEST

/* Loops compiled for this processor against plain ones, bit for bit. */
START_TEST(optimizers_of_cpu_have_the_bits_of_ref)
{
    enum { COUNT = 100003 };
    static float memory[2][5][COUNT];
    struct be_sgd sgd[3] = { { .lr = 0.1 },
                             { .lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4 },
                             { .lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4,
                               .is_nesterov = true } };
    struct be_adam adam[2] = { { 1e-3, 0.9, 0.999, 1e-8, 1e-2, false, 3 },
                               { 1e-3, 0.9, 0.999, 1e-8, 1e-2, true, 3 } };
    struct gems_error err = { 0 };

    for (uint32_t b = 0; b < 2; b++) {
        const struct backend *be = find(b ? "cpu" : "ref");
        struct be_device *dev = NULL;
        float *w = memory[b][0], *g = memory[b][1], *m = memory[b][2], *v = memory[b][3];

        must(be->device->open(0, 2, BE_F32, &dev, &err), &err);
        for (uint64_t i = 0; i < COUNT; i++) {
            w[i] = (float)rng_normal(1, 0, i);
            g[i] = (float)rng_normal(1, 1, i);
            m[i] = (float)rng_normal(1, 2, i);
            v[i] = (float)rng_unit(1, 3, i);
        }
        for (uint32_t i = 0; i < 3; i++) {
            must(be->vector->sgd(dev, w, g, i ? m : NULL, COUNT, &sgd[i], &err), &err);
        }
        for (uint32_t i = 0; i < 2; i++) {
            must(be->vector->adam(dev, w, g, m, v, COUNT, &adam[i], &err), &err);
        }
        must(be->vector->add(dev, w, g, memory[b][4], COUNT, &err), &err);
        must(be->vector->decay_add(dev, memory[b][4], m, COUNT, 0.81, &err), &err);
        be->device->close(dev);
    }
    ck_assert(memcmp(memory[0], memory[1], sizeof memory[0]) == 0);
}
END_TEST
#endif

/* Splitting a step changes the statistics a batch-norm sees, but without one
 * the gradient is that of the whole batch. */
START_TEST(gradients_do_not_depend_on_the_split_without_batchnorm)
{
    struct oracle_batch whole = { .n = 7, .microbatch = 7, .n_blocks = 1 };
    struct oracle_batch split = { .n = 7, .microbatch = 2, .n_blocks = 3 };
    struct oracle_result a, b;
    struct graph graph;
    uint64_t n;
    double *first, *second;

    build(&graph, "lenet", 0, 0, 1, 28);
    first = one_step(&graph, "ref", BE_F64, &whole, &a, &n);
    second = one_step(&graph, "ref", BE_F64, &split, &b, &n);
    ck_assert_double_le(distance(first, second, n), 1e-13);
    ck_assert_double_eq_tol(a.loss_sum, b.loss_sum, 1e-12);
    ck_assert_uint_eq(a.n_correct, b.n_correct);
    free(first);
    free(second);
    graph_fini(&graph);
}
END_TEST

/* running <- a^N running + sum of (1-a) a^(N-1-i) stat_i, as N single steps. */
START_TEST(running_statistics_of_a_split_step_are_those_of_its_microbatches_in_turn)
{
    struct oracle_update still = { ORACLE_SGD, .sgd = { .lr = 0.0 } };
    struct oracle_result result;
    struct graph graph;
    struct oracle *one, *turns;
    struct gems_error err = { 0 };
    uint32_t labels[BATCH];
    uint64_t n;
    double *a, *b;
    void *images;

    build(&graph, "resnet", 1, 8, 1, 8);
    one = open_oracle(&graph, "ref", BE_F64);
    turns = open_oracle(&graph, "ref", BE_F64);
    images = make_images(&graph, BATCH, true);
    make_labels(labels, BATCH);
    struct oracle_batch batch = { images, labels, BATCH, 2, 2, { 0 } };

    must(oracle_gradients(one, &batch, &result, &err), &err);
    must(oracle_apply(one, &still, &err), &err);
    for (uint32_t i = 0; i < BATCH / 2; i++) {
        struct oracle_batch part = { (double *)images + i * 2 * 64, labels + 2 * i, 2, 2, 1, { 0 } };

        must(oracle_gradients(turns, &part, &result, &err), &err);
        must(oracle_apply(turns, &still, &err), &err);
    }
    a = export_all(one, &graph, ORACLE_PARAM, true, &n);
    b = export_all(turns, &graph, ORACLE_PARAM, true, &n);
    ck_assert_double_le(distance(a, b, n), 1e-14);
    free(a);
    free(b);
    free(images);
    oracle_destroy(one);
    oracle_destroy(turns);
    graph_fini(&graph);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend training");
    TCase *tcase = tcase_create("networks");
    SRunner *runner;
    int n_failed;

    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, ref_in_f64_trains_as_pytorch_does, 0, N_TORCH);
    tcase_add_test(tcase, gradients_do_not_depend_on_the_split_without_batchnorm);
    tcase_add_test(tcase,
                   running_statistics_of_a_split_step_are_those_of_its_microbatches_in_turn);
#ifdef HAVE_ONEDNN
    tcase_add_loop_test(tcase, cpu_gradients_of_a_network_are_near_ref, 0, N_NEAR);
    tcase_add_loop_test(tcase, cpu_steps_have_the_same_bits_twice, 0, 2);
    tcase_add_test(tcase, cpu_evaluation_of_a_trained_resnet_is_near_ref);
    tcase_add_test(tcase, optimizers_of_cpu_have_the_bits_of_ref);
#endif
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
