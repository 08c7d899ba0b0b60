/* Dropout: what is drawn, what it depends on, and what it does not. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/rng.h"
#include "tests/lib/op_trial.h"
#include "tests/lib/oracle.h"
#include "tests/lib/run_suite.h"

static const struct backend *find(const char *name)
{
    struct gems_error err = { 0 };
    const struct backend *backend = backend_find(name, &err);

    ck_assert_msg(backend != NULL, "%s", err.text);
    return backend;
}

/* All back ends of this build, in the loop index. */
static const struct backend *backend_of(int i)
{
    const struct backend *backend = backend_at((uint32_t)i);

    ck_assert_ptr_nonnull(backend);
    return backend;
}

static int count_backends(void)
{
    int n = 0;

    while (backend_at((uint32_t)n)) {
        n++;
    }
    return n;
}

static const struct trial_case wide = { .kind = OP_DROPOUT, .batch = 4, .c = 20, .h = 25, .w = 50,
                                        .rate = 0.3 };

/* y of the case under a draw; every input is 1, so that y shows the mask. */
static struct trial drawn(const struct trial_case *c, const struct backend *backend,
                          struct be_draw draw)
{
    struct trial t;

    trial_init(&t, c);
    t.draw = draw;
    for (uint64_t i = 0; i < t.n_x; i++) {
        t.x[0][i] = 1.0;
    }
    trial_run(&t, backend, BE_F32, 2);
    return t;
}

/* Computed apart from this code, in Python, from docs/MATH.md, "dropout". */
START_TEST(the_mask_is_the_documented_one)
{
    struct trial_case c = { .kind = OP_DROPOUT, .batch = 1, .c = 4, .h = 4, .w = 4, .rate = 0.4 };
    struct trial t = drawn(&c, backend_of(_i), (struct be_draw){ 11, 3, 40 });

    for (uint32_t i = 0; i < 64; i++) {
        bool is_kept = UINT64_C(0x669ee00eddff6da7) >> i & 1;

        ck_assert_msg((t.y[i] != 0.0) == is_kept, "element %u", i);
    }
    trial_fini(&t);
}
END_TEST

START_TEST(kept_values_are_scaled_and_the_rest_is_zero)
{
    struct trial t = drawn(&wide, backend_of(_i), (struct be_draw){ 1, 0, 0 });
    double n = (double)t.n_y, expected = 0.3 * n, n_zero = 0.0;

    for (uint64_t i = 0; i < t.n_y; i++) {
        ck_assert(t.y[i] == 0.0 || t.y[i] == (double)(float)(1.0 / 0.7));
        n_zero += t.y[i] == 0.0;
        /* The gradient goes the same way. */
        ck_assert((float)t.dx[0][i] == (float)t.dy[i] * (float)t.y[i]);
    }
    /* Five standard deviations of a binomial. */
    ck_assert_double_le(fabs(n_zero - expected), 5.0 * sqrt(0.3 * 0.7 * n));
    ck_assert(t.has_clean_padding);
    trial_fini(&t);
}
END_TEST

START_TEST(an_evaluation_passes_everything)
{
    struct trial t;

    trial_init(&t, &wide);
    t.mode = BE_EVAL;
    trial_run(&t, backend_of(_i), BE_F32, 1);
    ck_assert(memcmp(t.y, t.x[0], t.n_y * sizeof *t.y) == 0);
    trial_fini(&t);
}
END_TEST

/* Seed, epoch, sample and name of the node each give another mask: two that
 * have nothing to do with one another differ in 2 * 0.3 * 0.7 of the places. */
START_TEST(each_part_of_the_key_matters)
{
    static const struct be_draw others[] = { { 2, 7, 100 }, { 1, 8, 100 }, { 1, 7, 104 } };
    struct trial first = drawn(&wide, backend_of(_i), (struct be_draw){ 1, 7, 100 });

    for (uint32_t other = 0; other < 4; other++) {
        struct trial t;
        double n = (double)first.n_y, n_differ = 0.0;

        if (other < 3) {
            t = drawn(&wide, backend_of(_i), others[other]);
        } else {
            trial_init(&t, &wide);
            t.draw = (struct be_draw){ 1, 7, 100 };
            snprintf(t.graph.nodes[t.node].name, MODEL_NAME_BYTES, "renamed");
            trial_run(&t, backend_of(_i), BE_F32, 1);
        }
        for (uint64_t i = 0; i < first.n_y; i++) {
            n_differ += (first.y[i] == 0.0) != (t.y[i] == 0.0);
        }
        ck_assert_msg(fabs(n_differ - 0.42 * n) <= 5.0 * sqrt(0.42 * 0.58 * n),
                      "part %u: %g of %g places differ", other, n_differ, n);
        trial_fini(&t);
    }
    trial_fini(&first);
}
END_TEST

/* A micro-batch of four is two of two. */
START_TEST(the_size_of_the_microbatch_does_not_matter)
{
    struct trial whole = drawn(&wide, backend_of(_i), (struct be_draw){ 5, 2, 30 });
    struct trial_case half_case = wide;

    half_case.batch = 2;
    for (uint32_t i = 0; i < 2; i++) {
        struct trial half = drawn(&half_case, backend_of(_i), (struct be_draw){ 5, 2, 30 + 2 * i });

        ck_assert(memcmp(half.y, whole.y + i * half.n_y, half.n_y * sizeof *half.y) == 0);
        trial_fini(&half);
    }
    trial_fini(&whole);
}
END_TEST

START_TEST(every_back_end_draws_the_bits_of_ref)
{
    struct trial ref, other;

    trial_init(&ref, &wide);
    trial_init(&other, &wide);
    trial_run(&ref, find("ref"), BE_F32, 1);
    trial_run(&other, backend_of(_i), BE_F32, 2);
    ck_assert(memcmp(ref.y, other.y, ref.n_y * sizeof *ref.y) == 0);
    ck_assert(memcmp(ref.dx[0], other.dx[0], ref.n_x * sizeof *ref.y) == 0);
    trial_fini(&ref);
    trial_fini(&other);
}
END_TEST

/* ---- in a network ---- */

static uint32_t put(struct graph *graph, struct node node, const char *name)
{
    struct gems_error err = { 0 };
    int index;

    snprintf(node.name, sizeof node.name, "%s", name);
    index = graph_add(graph, &node, &err);
    ck_assert_msg(index >= 0, "%s", err.text);
    return (uint32_t)index;
}

/* Convolution, dropout on its map, dense, dropout on the vector, dense. */
static void build(struct graph *graph)
{
    struct node input = { .kind = OP_INPUT, .out = { 2, 6, 6, false } };
    struct node conv = { .kind = OP_CONV, .n_inputs = 1, .k = 5, .r = 3, .s = 3, .stride_h = 1,
                         .stride_w = 1, .pad_h = 1, .pad_w = 1 };
    struct node node = { .kind = OP_DROPOUT, .n_inputs = 1, .rate = 0.25 };

    graph_init(graph, "drops", 3);
    put(graph, input, "input");
    node.inputs[0] = put(graph, conv, "conv");
    node.inputs[0] = put(graph, node, "drop0");
    node.kind = OP_FLATTEN;
    node.inputs[0] = put(graph, node, "flatten");
    node.kind = OP_DENSE;
    node.k = 20;
    node.is_relu = true;
    node.inputs[0] = put(graph, node, "dense0");
    node.is_relu = false;
    node.kind = OP_DROPOUT;
    node.inputs[0] = put(graph, node, "drop1");
    node.kind = OP_DENSE;
    node.k = 3;
    node.inputs[0] = put(graph, node, "dense1");
    node.kind = OP_LOSS;
    put(graph, node, "loss");
}

enum { SAMPLES = 7, PIXELS = 72, WEIGHTS = 5 * 2 * 3 * 3 };

/* Gradient of the first convolution after a step of SAMPLES samples. */
static double step(const struct graph *graph, uint32_t microbatch, struct be_draw draw,
                   double ret_gradient[WEIGHTS])
{
    static double images[SAMPLES * PIXELS];
    static const uint32_t labels[SAMPLES] = { 0, 1, 2, 0, 1, 2, 1 };
    struct oracle_config config = { .graph = graph, .backend = find("ref"), .type = BE_F64,
                                    .threads = 1, .seed = 4 };
    struct oracle_batch batch = { images, labels, SAMPLES, microbatch, 2, draw };
    struct oracle_result result;
    struct gems_error err = { 0 };
    struct oracle *oracle;

    for (uint32_t i = 0; i < SAMPLES * PIXELS; i++) {
        images[i] = rng_normal(1, 0, i);
    }
    ck_assert_msg(oracle_create(&config, &oracle, &err) == GEMS_OK, "%s", err.text);
    ck_assert_msg(oracle_gradients(oracle, &batch, &result, &err) == GEMS_OK, "%s", err.text);
    ck_assert_int_eq(oracle_export(oracle, ORACLE_GRADIENT, 1, 0, ret_gradient, &err), GEMS_OK);
    oracle_destroy(oracle);
    return result.loss_sum;
}

/* The same samples in other micro-batches: the same masks, so the same numbers
 * but for the order of sums. Another epoch: other numbers. */
START_TEST(a_step_does_not_depend_on_its_split)
{
    struct be_draw draw = { 9, 1, 50 }, later = { 9, 2, 50 };
    double whole[WEIGHTS], split[WEIGHTS], other[WEIGHTS], far = 0.0;
    struct graph graph;
    double loss;

    build(&graph);
    loss = step(&graph, SAMPLES, draw, whole);
    ck_assert_double_eq_tol(step(&graph, 2, draw, split), loss, 1e-12);
    ck_assert_double_gt(fabs(step(&graph, SAMPLES, later, other) - loss), 1e-3);
    for (uint32_t i = 0; i < WEIGHTS; i++) {
        ck_assert_double_eq_tol(whole[i], split[i], 1e-13);
        far = fmax(far, fabs(whole[i] - other[i]));
    }
    ck_assert_double_gt(far, 1e-3);
    graph_fini(&graph);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("backend dropout");
    TCase *tc = tcase_create("dropout");
    int n = count_backends();

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, the_mask_is_the_documented_one, 0, n);
    tcase_add_loop_test(tc, kept_values_are_scaled_and_the_rest_is_zero, 0, n);
    tcase_add_loop_test(tc, an_evaluation_passes_everything, 0, n);
    tcase_add_loop_test(tc, each_part_of_the_key_matters, 0, n);
    tcase_add_loop_test(tc, the_size_of_the_microbatch_does_not_matter, 0, n);
    tcase_add_loop_test(tc, every_back_end_draws_the_bits_of_ref, 0, n);
    tcase_add_test(tc, a_step_does_not_depend_on_its_split);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
