/* Random numbers, initial values, and the header under which weights leave. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/rng.h"
#include "model/safetensors.h"
#include "model/zoo.h"
#include "tests/lib/run_suite.h"

/* ---- Philox 4x32-10: known answers published with Random123 ---- */

static const struct known {
    uint64_t seed, stream, index; /* key, upper and lower half of the counter */
    uint64_t first, second;       /* words 1:0 and 3:2 of the result */
} knowns[] = {
    { 0, 0, 0, 0xe169c58d6627e8d5u, 0x9b00dbd8bc57ac4cu },
    { UINT64_MAX, UINT64_MAX, UINT64_MAX, 0x41c83b0e408f276du, 0x6d5451fda20bc7c6u },
    { 0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u, 0x94fdccebd16cfe09u,
      0x24126ea15001e420u },
};

START_TEST(philox_gives_the_published_answers)
{
    const struct known *k = &knowns[_i];
    double u0 = (double)(k->first >> 11) * 0x1p-53, u1 = (double)(k->second >> 11) * 0x1p-53;

    ck_assert_uint_eq(rng_u64(k->seed, k->stream, k->index), k->first);
    ck_assert_double_eq(rng_unit(k->seed, k->stream, k->index), u0);
    /* The normal number shows the other two words. */
    ck_assert_double_eq_tol(rng_normal(k->seed, k->stream, k->index),
                            sqrt(-2.0 * log(1.0 - u0)) * cos(2.0 * M_PI * u1), 1e-14);
}
END_TEST

START_TEST(below_stays_below_and_reaches_everything)
{
    uint32_t seen[7] = { 0 };

    for (uint64_t i = 0; i < 7000; i++) {
        uint64_t r = rng_below(3, rng_stream(RNG_SHUFFLE, 1), i, 7);

        ck_assert_uint_lt(r, 7);
        seen[r]++;
    }
    for (int i = 0; i < 7; i++) {
        ck_assert_uint_gt(seen[i], 850);
        ck_assert_uint_lt(seen[i], 1150);
    }
    ck_assert_uint_eq(rng_below(3, 1, 9, 1), 0);
}
END_TEST

/* ---- initial values ---- */

static struct graph model(void)
{
    struct zoo_spec spec = { .zoo = "resnet",
                             .version = 2,
                             .depth = 20,
                             .classes = 10,
                             .channels = 3,
                             .height = 32,
                             .width = 32 };
    struct gems_error err = { 0 };
    struct graph graph;

    ck_assert_msg(zoo_build(&spec, &graph, &err) == 0, "%s", err.text);
    return graph;
}

static uint32_t find(const struct graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        if (strcmp(graph->nodes[i].name, name) == 0) {
            return i;
        }
    }
    ck_abort_msg("no node %s", name);
    return 0;
}

START_TEST(weights_are_he_normal)
{
    static const char *const names[] = { "stack0.block0.conv2", "stack2.block1.conv3",
                                         "stack2.block1.conv2" };
    struct graph graph = model();
    struct param params[MODEL_MAX_PARAMS];
    uint32_t node = find(&graph, names[_i]);
    double sum = 0.0, squares = 0.0, fourth = 0.0, deviation, count;
    double *values;

    node_params(&graph, node, params);
    count = (double)param_count(&params[0]);
    deviation = sqrt(2.0 / (double)params[0].fan_in);
    values = malloc(param_count(&params[0]) * sizeof *values);
    param_init(&graph, node, &params[0], 5, true, values);
    for (uint64_t i = 0; i < param_count(&params[0]); i++) {
        double z = values[i] / deviation;

        sum += z;
        squares += z * z;
        fourth += z * z * z * z;
    }
    /* Five standard errors of each moment of a normal distribution. */
    ck_assert_double_lt(fabs(sum / count), 5.0 / sqrt(count));
    ck_assert_double_lt(fabs(squares / count - 1.0), 5.0 * sqrt(2.0 / count));
    ck_assert_double_lt(fabs(fourth / count - 3.0), 5.0 * sqrt(96.0 / count));
    free(values);
    graph_fini(&graph);
}
END_TEST

START_TEST(float_is_the_rounded_double)
{
    struct graph graph = model();
    struct param params[MODEL_MAX_PARAMS];
    uint32_t node = find(&graph, "head.dense");
    double doubles[2560];
    float floats[2560];

    node_params(&graph, node, params);
    ck_assert_uint_eq(param_count(&params[0]), 2560);
    param_init(&graph, node, &params[0], 5, true, doubles);
    param_init(&graph, node, &params[0], 5, false, floats);
    for (int i = 0; i < 2560; i++) {
        ck_assert(floats[i] == (float)doubles[i]);
    }
    graph_fini(&graph);
}
END_TEST

START_TEST(other_parameters_start_at_zero_or_one)
{
    static const double expected[] = { 1.0, 0.0, 0.0, 1.0 };
    struct graph graph = model();
    struct param params[MODEL_MAX_PARAMS];
    uint32_t bn = find(&graph, "stem.bn"), conv = find(&graph, "stem.conv");
    float values[16];

    ck_assert_uint_eq(node_params(&graph, bn, params), 4);
    for (int p = 0; p < 4; p++) {
        memset(values, 0xff, sizeof values);
        param_init(&graph, bn, &params[p], 1, false, values);
        for (int i = 0; i < 16; i++) {
            ck_assert(values[i] == (float)expected[p]);
        }
    }
    node_params(&graph, conv, params);
    memset(values, 0xff, sizeof values);
    param_init(&graph, conv, &params[1], 1, false, values);
    ck_assert(values[0] == 0.0f && values[15] == 0.0f);
    graph_fini(&graph);
}
END_TEST

/* Values of one tensor hang on seed, name and index, and on nothing else. */
START_TEST(values_follow_from_seed_and_name_alone)
{
    struct graph graph = model();
    struct param params[MODEL_MAX_PARAMS];
    uint32_t a = find(&graph, "stack0.block1.conv2"), b = find(&graph, "stack0.block0.conv2");
    static double one[16 * 16 * 9], two[16 * 16 * 9];

    node_params(&graph, a, params);
    param_init(&graph, a, &params[0], 1, true, one);
    param_init(&graph, b, &params[0], 1, true, two);
    ck_assert(one[0] != two[0]);
    param_init(&graph, a, &params[0], 2, true, two);
    ck_assert(one[0] != two[0]);
    strcpy(graph.nodes[b].name, "stack0.block1.conv2");
    graph.nodes[b].layer = 77;
    param_init(&graph, b, &params[0], 1, true, two);
    ck_assert_int_eq(memcmp(one, two, sizeof one), 0);
    graph_fini(&graph);
}
END_TEST

/* ---- safetensors ---- */

START_TEST(the_header_is_the_one_readers_expect)
{
    static const struct safetensors_tensor tensors[] = {
        { "stem.conv.weight", SAFETENSORS_F32, 4, { 16, 3, 3, 3 } },
        { "scalar", SAFETENSORS_F64, 0, { 0 } },
        { "head.dense.bias", SAFETENSORS_F64, 1, { 10 } },
    };
    static const struct safetensors_note notes[] = { { "model", "a \"b\"\\\n" }, { "step", "7" } };
    static const char json[] =
        "{\"__metadata__\":{\"model\":\"a \\\"b\\\"\\\\\\u000a\",\"step\":\"7\"},"
        "\"stem.conv.weight\":{\"dtype\":\"F32\",\"shape\":[16,3,3,3],\"data_offsets\":[0,1728]},"
        "\"scalar\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[1728,1736]},"
        "\"head.dense.bias\":{\"dtype\":\"F64\",\"shape\":[10],\"data_offsets\":[1736,1816]}}";
    struct gems_error err = { 0 };
    unsigned char *header;
    void *memory;
    size_t bytes, padded = (sizeof json - 1 + 7) / 8 * 8;

    ck_assert_int_eq(safetensors_header(tensors, 3, notes, 2, &memory, &bytes, &err), 0);
    header = memory;
    ck_assert_uint_eq(bytes, 8 + padded);
    ck_assert_uint_eq(header[0] | (unsigned)header[1] << 8, padded);
    for (int i = 2; i < 8; i++) {
        ck_assert_uint_eq(header[i], 0);
    }
    ck_assert_int_eq(memcmp(header + 8, json, sizeof json - 1), 0);
    for (size_t i = 8 + sizeof json - 1; i < bytes; i++) {
        ck_assert_int_eq(header[i], ' ');
    }
    free(memory);
}
END_TEST

START_TEST(no_tensors_make_an_empty_header)
{
    void *memory;
    size_t bytes;

    ck_assert_int_eq(safetensors_header(NULL, 0, NULL, 0, &memory, &bytes, NULL), 0);
    ck_assert_uint_eq(bytes, 8 + 24);
    ck_assert_int_eq(memcmp((char *)memory + 8, "{\"__metadata__\":{}}     ", 24), 0);
    free(memory);
}
END_TEST

START_TEST(names_taken_twice_are_refused)
{
    static const struct safetensors_tensor pairs[][2] = {
        { { "w", SAFETENSORS_F32, 1, { 1 } }, { "w", SAFETENSORS_F64, 1, { 2 } } },
        { { "w", SAFETENSORS_F32, 1, { 1 } }, { "__metadata__", SAFETENSORS_F32, 1, { 1 } } },
    };
    static const char *const texts[] = { "safetensors: name w is taken twice",
                                         "safetensors: name __metadata__ is taken twice" };
    struct gems_error err = { 0 };
    void *memory = NULL;
    size_t bytes;

    ck_assert_int_eq(safetensors_header(pairs[_i], 2, NULL, 0, &memory, &bytes, &err),
                     GEMS_E_INVALID);
    ck_assert_str_eq(err.text, texts[_i]);
    ck_assert_ptr_null(memory);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("params");
    TCase *rng = tcase_create("rng"), *init = tcase_create("init");
    TCase *safetensors = tcase_create("safetensors");

    tcase_set_timeout(rng, 20);
    tcase_add_loop_test(rng, philox_gives_the_published_answers, 0,
                        sizeof knowns / sizeof knowns[0]);
    tcase_add_test(rng, below_stays_below_and_reaches_everything);
    suite_add_tcase(s, rng);
    tcase_set_timeout(init, 20);
    tcase_add_loop_test(init, weights_are_he_normal, 0, 3);
    tcase_add_test(init, float_is_the_rounded_double);
    tcase_add_test(init, other_parameters_start_at_zero_or_one);
    tcase_add_test(init, values_follow_from_seed_and_name_alone);
    suite_add_tcase(s, init);
    tcase_set_timeout(safetensors, 20);
    tcase_add_test(safetensors, the_header_is_the_one_readers_expect);
    tcase_add_test(safetensors, no_tensors_make_an_empty_header);
    tcase_add_loop_test(safetensors, names_taken_twice_are_refused, 0, 2);
    suite_add_tcase(s, safetensors);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
