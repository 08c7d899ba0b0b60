/* Operators: ref against central differences in f64, cpu against ref in f32,
 * written against added to, padding, determinism. */
#include "config.h"

#include <check.h>
#include <math.h>
#ifdef HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "tests/lib/op_trial.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

static const struct backend *find(const char *name)
{
    struct gems_error err = { 0 };
    const struct backend *backend = backend_find(name, &err);

    ck_assert_msg(backend != NULL, "%s", err.text);
    return backend;
}

/* ---- ref against central differences ---- */

static const struct trial_case difference_cases[] = {
    { .kind = OP_CONV, .batch = 2, .c = 3, .h = 5, .w = 6, .k = 4, .r = 3, .s = 3, .stride = 1,
      .pad = 1, .has_bias = true },
    { .kind = OP_CONV, .batch = 2, .c = 2, .h = 7, .w = 5, .k = 3, .r = 3, .s = 2, .stride = 2,
      .pad = 1 },
    { .kind = OP_CONV, .batch = 1, .c = 3, .h = 6, .w = 7, .k = 2, .r = 5, .s = 4, .stride = 3,
      .pad = 2, .has_bias = true, .is_residual = true },
    { .kind = OP_BATCHNORM, .batch = 3, .c = 3, .h = 3, .w = 4 },
    { .kind = OP_BATCHNORM, .batch = 2, .c = 4, .h = 4, .w = 3, .is_relu = true },
    { .kind = OP_RELU, .batch = 2, .c = 3, .h = 3, .w = 3 },
    { .kind = OP_ADD, .batch = 2, .c = 2, .h = 3, .w = 4 },
    { .kind = OP_ADD, .batch = 2, .c = 2, .h = 3, .w = 4, .is_relu = true },
    { .kind = OP_MAXPOOL, .batch = 2, .c = 2, .h = 7, .w = 6, .r = 3, .s = 2, .stride = 2,
      .pad = 1 },
    { .kind = OP_AVGPOOL, .batch = 2, .c = 2, .h = 7, .w = 6, .r = 3, .s = 2, .stride = 2,
      .pad = 1 },
    { .kind = OP_FLATTEN, .batch = 2, .c = 3, .h = 2, .w = 4 },
    { .kind = OP_DENSE, .batch = 3, .c = 7, .h = 2, .w = 2, .k = 5, .has_bias = true },
    { .kind = OP_DENSE, .batch = 3, .c = 7, .h = 2, .w = 2, .k = 5, .has_bias = true,
      .is_relu = true },
    { .kind = OP_LOSS, .batch = 4, .c = 6, .h = 2, .w = 2 },
    { .kind = OP_CONV, .batch = 2, .c = 2, .h = 8, .w = 9, .k = 3, .r = 1, .s = 7, .stride = 1,
      .pad = 3 },
    { .kind = OP_CONV, .batch = 2, .c = 2, .h = 9, .w = 8, .k = 3, .r = 7, .s = 1, .stride = 2,
      .pad = 3 },
    { .kind = OP_DROPOUT, .batch = 2, .c = 3, .h = 4, .w = 5, .rate = 0.3 },
    { .kind = OP_DROPOUT, .batch = 3, .c = 17, .h = 1, .w = 1, .rate = 0.5 },
    { .kind = OP_CONCAT, .batch = 2, .c = 3, .h = 3, .w = 4, .more = { 2, 1, 4 } },
    { .kind = OP_CONCAT, .batch = 1, .c = 2, .h = 2, .w = 2, .more = { 5 } },
    { .kind = OP_PICK, .batch = 2, .c = 3, .h = 5, .w = 6, .r = 1, .s = 1, .stride = 2 },
    { .kind = OP_PICK, .batch = 1, .c = 2, .h = 7, .w = 4, .r = 0, .s = 2, .stride = 3 },
};

/* The number whose gradient backward claims to give. */
static double objective(struct trial *t)
{
    double sum = 0.0;

    trial_forward(t, find("ref"), BE_F64, 1);
    if (t->graph.nodes[t->node].kind == OP_LOSS) {
        return t->loss_sum * t->grad_scale;
    }
    for (uint64_t i = 0; i < t->n_y; i++) {
        sum += t->y[i] * t->dy[i];
    }
    return sum;
}

static void check_differences(struct trial *t, double *values, const double *gradient, uint64_t n,
                              const char *what, int i)
{
    double worst = 0.0, largest = 0.0;

    for (uint64_t j = 0; j < n; j++) {
        double old = values[j], step = 1e-6, above, below;

        values[j] = old + step;
        above = objective(t);
        values[j] = old - step;
        below = objective(t);
        values[j] = old;
        worst = fmax(worst, fabs((above - below) / (2 * step) - gradient[j]));
        largest = fmax(largest, fabs(gradient[j]));
    }
    ck_assert_msg(largest > 0.0, "case %d: gradient of %s is zero everywhere", i, what);
    ck_assert_msg(worst <= 1e-6 * fmax(largest, 1.0), "case %d: %s differs by %g of %g", i, what,
                  worst, largest);
}

START_TEST(ref_gradients_equal_central_differences)
{
    struct trial t;

    trial_init(&t, &difference_cases[_i]);
    trial_run(&t, find("ref"), BE_F64, 1);
    for (uint32_t k = 0; k < t.n_inputs; k++) {
        uint32_t input = t.graph.nodes[t.node].inputs[k];

        check_differences(&t, t.x[k], t.dx[k], t.batch * shape_count(&t.graph.nodes[input].out),
                          "an input", _i);
    }
    for (uint32_t p = 0; p < t.n_params; p++) {
        if (t.params[p].role != PARAM_MEAN && t.params[p].role != PARAM_VARIANCE) {
            check_differences(&t, t.values[p], t.grads[p], param_count(&t.params[p]),
                              t.params[p].suffix, _i);
        }
    }
    trial_fini(&t);
}
END_TEST

/* ---- statistics of batch-norm ---- */

START_TEST(batchnorm_puts_mean_and_unbiased_variance_into_statistics)
{
    struct trial_case c = { .kind = OP_BATCHNORM, .batch = 3, .c = 2, .h = 2, .w = 5 };
    uint64_t plane = 10, count = 30;
    struct trial t;

    trial_init(&t, &c);
    t.stat_weight = 0.25;
    trial_run(&t, find("ref"), BE_F64, 1);
    for (uint64_t ch = 0; ch < 2; ch++) {
        double mean = 0.0, variance = 0.0;

        for (uint64_t i = 0; i < count; i++) {
            mean += t.x[0][i / plane * 2 * plane + ch * plane + i % plane] / (double)count;
        }
        for (uint64_t i = 0; i < count; i++) {
            double d = t.x[0][i / plane * 2 * plane + ch * plane + i % plane] - mean;

            variance += d * d / (double)(count - 1);
        }
        ck_assert_double_eq_tol(t.grads[2][ch], 0.25 * mean, 1e-14);
        ck_assert_double_eq_tol(t.grads[3][ch], 0.25 * variance, 1e-14);
    }
    trial_fini(&t);
}
END_TEST

/* ---- every back end against ref ---- */

#define CONV(b, ci, hi, wi, ko, f, st, pd, ...)                                             \
    { .kind = OP_CONV, .batch = b, .c = ci, .h = hi, .w = wi, .k = ko, .r = f, .s = f,      \
      .stride = st, .pad = pd, __VA_ARGS__ }
#define NORM(b, ci, hi, wi, ...)                                                            \
    { .kind = OP_BATCHNORM, .batch = b, .c = ci, .h = hi, .w = wi, __VA_ARGS__ }
#define POOL(kd, b, ci, hi, wi, f, st, pd)                                                  \
    { .kind = kd, .batch = b, .c = ci, .h = hi, .w = wi, .r = f, .s = f, .stride = st, .pad = pd }

static const struct trial_case cases[] = {
    /* images */
    CONV(2, 3, 32, 32, 16, 3, 1, 1, .has_bias = true, .is_image = true),
    CONV(5, 1, 28, 28, 16, 3, 1, 1, .has_bias = true, .is_image = true),
    CONV(1, 1, 28, 28, 6, 5, 1, 2, .has_bias = true, .is_image = true),
    CONV(2, 3, 33, 31, 20, 7, 2, 3, .is_image = true),
    CONV(2, 6, 17, 16, 16, 3, 1, 1, .has_bias = true, .is_image = true),
    CONV(2, 16, 9, 9, 10, 3, 2, 1, .is_image = true),
    CONV(3, 4, 8, 8, 8, 1, 1, 0, .has_bias = true, .is_image = true),
    /* inside */
    CONV(2, 16, 32, 32, 16, 3, 1, 1, .has_bias = true),
    CONV(2, 16, 32, 32, 32, 3, 2, 1, .has_bias = true),
    CONV(1, 64, 8, 8, 64, 3, 1, 1, .has_bias = true),
    CONV(2, 64, 16, 16, 16, 1, 1, 0, .has_bias = true),
    CONV(2, 16, 16, 16, 64, 1, 1, 0, .has_bias = true, .is_residual = true),
    CONV(2, 64, 16, 16, 128, 1, 2, 0, .has_bias = true),
    CONV(5, 64, 15, 13, 32, 1, 2, 0, .has_bias = true),
    CONV(32, 32, 8, 8, 64, 3, 2, 1, .has_bias = true),
    CONV(32, 64, 7, 7, 64, 3, 1, 1, .has_bias = true, .is_residual = true),
    CONV(2, 20, 14, 14, 32, 5, 1, 2, .has_bias = true),
    CONV(2, 6, 14, 14, 16, 5, 1, 0, .has_bias = true),
    CONV(3, 10, 11, 9, 6, 3, 1, 1, .has_bias = true, .is_residual = true),
    CONV(2, 12, 8, 8, 20, 3, 2, 1),
    CONV(2, 32, 19, 21, 20, 7, 3, 3),
    CONV(1, 3, 8, 8, 10, 3, 1, 1, .has_bias = true),
    CONV(1, 1, 9, 9, 1, 3, 2, 1, .has_bias = true),
    /* points: all widths of tiles, parts of blocks, many chunks, past the caches */
    CONV(1, 20, 1, 1, 10, 1, 1, 0, .has_bias = true),
    CONV(3, 20, 9, 7, 40, 1, 1, 0, .has_bias = true, .is_residual = true),
    CONV(5, 10, 7, 7, 112, 1, 1, 0),
    CONV(2, 112, 13, 14, 48, 1, 1, 0, .has_bias = true),
    CONV(2, 2000, 3, 2, 16, 1, 1, 0, .has_bias = true),
    CONV(1, 16, 215, 207, 48, 1, 1, 0, .has_bias = true, .is_residual = true),
    /* by Winograd: parts of tiles, few channels, a batch too small for it */
    CONV(2, 32, 32, 32, 48, 3, 1, 1, .has_bias = true, .is_residual = true),
    CONV(3, 64, 21, 18, 32, 3, 1, 1, .has_bias = true),
    CONV(16, 96, 8, 7, 64, 3, 1, 1),
    CONV(3, 32, 32, 8, 32, 3, 1, 1, .has_bias = true),
    CONV(2, 16, 48, 44, 16, 3, 1, 1, .has_bias = true),
    CONV(1, 16, 65, 30, 64, 3, 1, 1, .has_bias = true, .is_image = true),
    /* batch-norm */
    NORM(2, 16, 32, 32),
    NORM(2, 16, 32, 32, .is_relu = true),
    NORM(32, 64, 8, 8, .is_relu = true),
    NORM(5, 32, 7, 9, .is_relu = true),
    NORM(3, 6, 10, 10, .is_relu = true),
    NORM(2, 10, 5, 7),
    NORM(1, 20, 6, 6, .is_relu = true),
    NORM(5, 3, 9, 9, .is_relu = true, .is_image = true),
    NORM(5, 128, 1, 1),
    /* element-wise */
    { .kind = OP_RELU, .batch = 2, .c = 16, .h = 9, .w = 7 },
    { .kind = OP_RELU, .batch = 2, .c = 6, .h = 9, .w = 7 },
    { .kind = OP_ADD, .batch = 5, .c = 32, .h = 8, .w = 8 },
    { .kind = OP_ADD, .batch = 2, .c = 10, .h = 8, .w = 8, .is_relu = true },
    { .kind = OP_ADD, .batch = 1, .c = 64, .h = 33, .w = 33, .is_relu = true },
    /* pools */
    POOL(OP_MAXPOOL, 2, 16, 32, 32, 2, 2, 0),
    POOL(OP_MAXPOOL, 5, 6, 28, 28, 2, 2, 0),
    POOL(OP_MAXPOOL, 2, 20, 15, 13, 3, 2, 1),
    POOL(OP_MAXPOOL, 1, 3, 9, 9, 3, 1, 1),
    POOL(OP_AVGPOOL, 32, 64, 8, 8, 8, 8, 0),
    POOL(OP_AVGPOOL, 2, 256, 16, 16, 8, 8, 0),
    POOL(OP_AVGPOOL, 2, 10, 15, 13, 3, 2, 1),
    POOL(OP_AVGPOOL, 1, 6, 28, 28, 2, 2, 0),
    POOL(OP_AVGPOOL, 2, 64, 7, 7, 7, 7, 0),
    POOL(OP_AVGPOOL, 2, 20, 9, 11, 3, 1, 1),
    POOL(OP_AVGPOOL, 2, 16, 14, 14, 2, 2, 0),
    /* long windows */
    { .kind = OP_CONV, .batch = 2, .c = 4, .h = 8, .w = 8, .k = 4, .r = 1, .s = 7, .stride = 1,
      .pad = 3 },
    { .kind = OP_CONV, .batch = 2, .c = 32, .h = 9, .w = 17, .k = 32, .r = 7, .s = 1, .stride = 1,
      .pad = 3 },
    { .kind = OP_CONV, .batch = 1, .c = 20, .h = 2, .w = 2, .k = 20, .r = 1, .s = 7, .stride = 1,
      .pad = 3 },
    /* dropout */
    { .kind = OP_DROPOUT, .batch = 3, .c = 20, .h = 5, .w = 7, .rate = 0.25 },
    { .kind = OP_DROPOUT, .batch = 2, .c = 3, .h = 40, .w = 41, .rate = 0.9, .is_image = true },
    { .kind = OP_DROPOUT, .batch = 32, .c = 4096, .h = 1, .w = 1, .rate = 0.5 },
    { .kind = OP_DROPOUT, .batch = 2, .c = 16, .h = 4, .w = 4 },
    /* concat: whole blocks, parts of blocks, several inputs in one block */
    { .kind = OP_CONCAT, .batch = 2, .c = 32, .h = 13, .w = 11, .more = { 16, 48, 16 } },
    { .kind = OP_CONCAT, .batch = 2, .c = 10, .h = 7, .w = 9, .more = { 9 } },
    { .kind = OP_CONCAT, .batch = 3, .c = 4, .h = 6, .w = 6, .more = { 4, 4, 4 } },
    { .kind = OP_CONCAT, .batch = 1, .c = 17, .h = 5, .w = 3, .more = { 40, 1 } },
    { .kind = OP_CONCAT, .batch = 2, .c = 3, .h = 33, .w = 40, .more = { 8, 23 },
      .is_image = true },
    /* pick */
    { .kind = OP_PICK, .batch = 2, .c = 32, .h = 32, .w = 32, .r = 1, .s = 1, .stride = 2 },
    { .kind = OP_PICK, .batch = 3, .c = 20, .h = 15, .w = 33, .r = 1, .s = 1, .stride = 2 },
    { .kind = OP_PICK, .batch = 1, .c = 6, .h = 7, .w = 7, .s = 3, .stride = 4 },
    { .kind = OP_PICK, .batch = 2, .c = 3, .h = 28, .w = 28, .r = 1, .stride = 2,
      .is_image = true },
    /* flat */
    { .kind = OP_FLATTEN, .batch = 2, .c = 16, .h = 5, .w = 5 },
    { .kind = OP_FLATTEN, .batch = 5, .c = 6, .h = 3, .w = 4 },
    { .kind = OP_FLATTEN, .batch = 3, .c = 64, .h = 1, .w = 1 },
    { .kind = OP_FLATTEN, .batch = 3, .c = 1, .h = 28, .w = 28, .is_image = true },
    { .kind = OP_DENSE, .batch = 32, .c = 784, .h = 2, .w = 2, .k = 512, .has_bias = true,
      .is_relu = true },
    { .kind = OP_DENSE, .batch = 5, .c = 64, .h = 2, .w = 2, .k = 10, .has_bias = true },
    { .kind = OP_DENSE, .batch = 1, .c = 37, .h = 2, .w = 2, .k = 3 },
    { .kind = OP_LOSS, .batch = 32, .c = 10, .h = 2, .w = 2 },
    { .kind = OP_LOSS, .batch = 1, .c = 1000, .h = 2, .w = 2 },
};

/* Distance of two vectors relative to the length of the second. */
static double distance(const double *a, const double *b, uint64_t n)
{
    double difference = 0.0, length = 0.0;

    for (uint64_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        length += b[i] * b[i];
    }
    return sqrt(difference) / fmax(sqrt(length), 1e-30);
}

/* Largest relative distance allowed: sums of float, in another order. */
static const double tolerance = 1e-5;

static void compare(const struct trial *a, const struct trial *b, int i, const char *name)
{
    double d = distance(a->y, b->y, a->n_y);

    ck_assert_msg(d <= tolerance, "case %d: output of %s is off by %g", i, name, d);
    for (uint32_t k = 0; k < a->n_inputs; k++) {
        uint32_t input = a->graph.nodes[a->node].inputs[k];

        d = distance(a->dx[k], b->dx[k], a->batch * shape_count(&a->graph.nodes[input].out));
        ck_assert_msg(d <= tolerance, "case %d: dx[%u] of %s is off by %g", i, k, name, d);
    }
    for (uint32_t p = 0; p < a->n_params; p++) {
        d = distance(a->grads[p], b->grads[p], param_count(&a->params[p]));
        ck_assert_msg(d <= tolerance, "case %d: gradient of %s of %s is off by %g", i,
                      a->params[p].suffix, name, d);
    }
    d = fabs(a->loss_sum - b->loss_sum) / fmax(fabs(b->loss_sum), 1.0);
    ck_assert_msg(d <= tolerance, "case %d: loss of %s is off by %g", i, name, d);
    ck_assert_uint_eq(a->n_correct, b->n_correct);
    ck_assert_msg(a->has_clean_padding, "case %d: padding of %s is not zero", i, name);
}

static void check_against_ref(int i, const char *name, enum be_mode mode, uint32_t threads)
{
    struct trial ref, other;

    trial_init(&ref, &cases[i]);
    trial_init(&other, &cases[i]);
    ref.mode = other.mode = mode;
    trial_run(&ref, find("ref"), BE_F64, 1);
    trial_run(&other, find(name), BE_F32, threads);
    compare(&other, &ref, i, name);
    trial_fini(&ref);
    trial_fini(&other);
}

START_TEST(ref_in_f32_is_near_f64)
{
    check_against_ref(_i, "ref", BE_TRAIN, 1);
}
END_TEST

#ifdef HAVE_ONEDNN
START_TEST(cpu_training_is_near_ref)
{
    check_against_ref(_i, "cpu", BE_TRAIN, 1);
}
END_TEST

START_TEST(cpu_evaluation_is_near_ref)
{
    check_against_ref(_i, "cpu", BE_EVAL, 1);
}
END_TEST

START_TEST(cpu_with_two_threads_is_near_ref)
{
    check_against_ref(_i, "cpu", BE_TRAIN, 2);
}
END_TEST

/* Equal bits: outputs and gradients of two runs. */
static void same_bits(const struct trial *a, const struct trial *b, int i)
{
    ck_assert_msg(memcmp(a->y, b->y, a->n_y * sizeof *a->y) == 0, "case %d: outputs differ", i);
    for (uint32_t k = 0; k < a->n_inputs; k++) {
        uint64_t n = a->batch * shape_count(&a->graph.nodes[a->graph.nodes[a->node].inputs[k]].out);

        ck_assert_msg(memcmp(a->dx[k], b->dx[k], n * sizeof(double)) == 0,
                      "case %d: input gradients differ", i);
    }
    for (uint32_t p = 0; p < a->n_params; p++) {
        ck_assert_msg(memcmp(a->grads[p], b->grads[p],
                             param_count(&a->params[p]) * sizeof(double)) == 0,
                      "case %d: gradients of %s differ", i, a->params[p].suffix);
    }
}

START_TEST(cpu_gives_the_same_bits_twice)
{
    for (uint32_t threads = 1; threads <= 2; threads++) {
        struct trial a, b;

        trial_init(&a, &cases[_i]);
        trial_init(&b, &cases[_i]);
        trial_run(&a, find("cpu"), BE_F32, threads);
        trial_run(&b, find("cpu"), BE_F32, threads);
        same_bits(&a, &b, _i);
        trial_fini(&a);
        trial_fini(&b);
    }
}
END_TEST

/* Convolutions that are done without the library. */
static bool is_point(const struct trial_case *c)
{
    return __builtin_cpu_supports("avx512bw") && c->r == 1 && c->s == 1 && c->stride == 1 &&
           c->pad == 0 && !(c->is_image && (c->c == 1 || c->c == 3));
}

/* oneDNN's reference code is a hundred times slower than its kernels. What ran
 * is in the library's own log, which goes to the standard output. */
START_TEST(cpu_convolutions_run_in_kernels_of_the_library)
{
    static char log[1 << 20];
    const char *line;
    int out = dup(STDOUT_FILENO);
    FILE *file = tmpfile();
    struct trial t;
    size_t n;

    ck_assert(file != NULL && out >= 0);
    trial_init(&t, &cases[_i]);
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    dnnl_set_verbose(1);
    trial_run(&t, find("cpu"), BE_F32, 1);
    dnnl_set_verbose(0);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    close(out);
    rewind(file);
    n = fread(log, 1, sizeof log - 1, file);
    log[n] = '\0';
    fclose(file);
    trial_fini(&t);
    line = strstr(log, "exec,cpu,convolution,");
    if (!__builtin_cpu_supports("avx2") || cases[_i].s > cases[_i].w) {
        return; /* no kernels for less, nor for windows wider than the image */
    }
    ck_assert_msg((line != NULL) == (cases[_i].kind == OP_CONV && !is_point(&cases[_i])),
                  "case %d: %s", _i, log);
    line = strstr(log, "exec,cpu,convolution,ref");
    ck_assert_msg(line == NULL, "case %d: %.400s", _i, line);
}
END_TEST

/* The residual inside the convolution against an addition of the plan. */
START_TEST(residual_inside_gives_the_bits_of_an_addition_apart)
{
    struct trial with, without;

    if (!cases[_i].is_residual) {
        return;
    }
    struct trial_case c = cases[_i];

    trial_init(&with, &c);
    c.is_residual = false;
    trial_init(&without, &c);
    memcpy(without.x[0], with.x[0], with.n_x * sizeof(double));
    trial_run(&with, find("cpu"), BE_F32, 1);
    trial_run(&without, find("cpu"), BE_F32, 1);
    for (uint64_t i = 0; i < with.n_y; i++) {
        float sum = (float)without.y[i] + (float)with.x[1][i];

        ck_assert_msg((float)with.y[i] == sum, "case %d: element %llu", _i, (unsigned long long)i);
    }
    ck_assert_msg(memcmp(with.dx[1], with.dy, with.n_y * sizeof(double)) == 0,
                  "case %d: gradient of the residual is not dy", _i);
    trial_fini(&with);
    trial_fini(&without);
}
END_TEST
#endif

/* Written once, then added twice: three times the gradient, in two roundings. */
static void check_added(int i, const char *name, enum be_type type)
{
    struct trial once, thrice;

    trial_init(&once, &cases[i]);
    trial_init(&thrice, &cases[i]);
    thrice.n_weight_runs = 3;
    trial_run(&once, find(name), type, 1);
    trial_run(&thrice, find(name), type, 1);
    for (uint32_t p = 0; p < once.n_params; p++) {
        for (uint64_t j = 0; j < param_count(&once.params[p]); j++) {
            float g = (float)once.grads[p][j], sum = g + g + g;

            ck_assert_msg((float)thrice.grads[p][j] == sum, "case %d: %s[%llu]: %g instead of %g",
                          i, once.params[p].suffix, (unsigned long long)j, thrice.grads[p][j],
                          (double)sum);
        }
    }
    ck_assert(thrice.has_clean_padding);
    trial_fini(&once);
    trial_fini(&thrice);
}

START_TEST(gradients_are_written_or_added_as_asked)
{
    check_added(_i, "ref", BE_F32);
#ifdef HAVE_ONEDNN
    check_added(_i, "cpu", BE_F32);
#endif
}
END_TEST

START_TEST(first_of_equal_maxima_takes_the_gradient)
{
    struct trial_case c = { .kind = OP_MAXPOOL, .batch = 1, .c = 16, .h = 4, .w = 4, .r = 2, .s = 2,
                            .stride = 2 };

    for (uint32_t b = 0; backend_at(b); b++) {
        struct trial t;

        trial_init(&t, &c);
        memset(t.x[0], 0, t.n_x * sizeof(double));
        trial_run(&t, backend_at(b), BE_F32, 1);
        for (uint64_t i = 0; i < t.n_x; i++) {
            uint64_t h = i / 4 % 4, w = i % 4;
            bool is_first = h % 2 == 0 && w % 2 == 0;

            ck_assert_msg(is_first == (t.dx[0][i] != 0.0), "%s: element %llu",
                          backend_at(b)->name, (unsigned long long)i);
        }
        trial_fini(&t);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend operators");
    TCase *tcase = tcase_create("ref");
    SRunner *runner;
    int n_failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, ref_gradients_equal_central_differences, 0, N(difference_cases));
    tcase_add_test(tcase, batchnorm_puts_mean_and_unbiased_variance_into_statistics);
    tcase_add_loop_test(tcase, ref_in_f32_is_near_f64, 0, N(cases));
    tcase_add_loop_test(tcase, gradients_are_written_or_added_as_asked, 0, N(cases));
    tcase_add_test(tcase, first_of_equal_maxima_takes_the_gradient);
    suite_add_tcase(suite, tcase);
#ifdef HAVE_ONEDNN
    tcase = tcase_create("cpu");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, cpu_training_is_near_ref, 0, N(cases));
    tcase_add_loop_test(tcase, cpu_evaluation_is_near_ref, 0, N(cases));
    tcase_add_loop_test(tcase, cpu_with_two_threads_is_near_ref, 0, N(cases));
    tcase_add_loop_test(tcase, cpu_gives_the_same_bits_twice, 0, N(cases));
    tcase_add_loop_test(tcase, cpu_convolutions_run_in_kernels_of_the_library, 0, N(cases));
    tcase_add_loop_test(tcase, residual_inside_gives_the_bits_of_an_addition_apart, 0, N(cases));
    suite_add_tcase(suite, tcase);
#endif
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
