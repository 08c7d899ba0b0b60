/* The built-in networks: parameter counts, shapes, layers, error texts. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "model/zoo.h"

static struct zoo_spec resnet(uint32_t version, uint32_t depth, uint32_t side)
{
    return (struct zoo_spec){ .zoo = "resnet", .version = version, .depth = depth, .classes = 10,
                              .channels = 3, .height = side, .width = side };
}

static struct graph build(const struct zoo_spec *spec)
{
    struct gems_error err = { 0 };
    struct graph graph;

    ck_assert_msg(zoo_build(spec, &graph, &err) == 0, "%s", err.text);
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

static void expect_shape(const struct graph *graph, const char *name, uint32_t c, uint32_t h,
                         uint32_t w)
{
    const struct shape *shape = &graph->nodes[find(graph, name)].out;

    ck_assert_uint_eq(shape->c, c);
    ck_assert_uint_eq(shape->h, h);
    ck_assert_uint_eq(shape->w, w);
}

/* Counts of the Keras form at 32x32 with 10 classes; statistics 0: not stated. */
static const struct count {
    uint32_t version, depth;
    uint64_t trainable, statistics;
} counts[] = {
    { 1, 20, 273066, 1376 },     { 1, 56, 857706, 0 },    { 1, 110, 1734666, 0 },
    { 2, 20, 570602, 3488 },     { 2, 56, 1663338, 0 },   { 2, 110, 3302442, 20768 },
    { 2, 164, 4941546, 0 },      { 2, 1001, 30347658, 191840 },
};

START_TEST(resnet_has_the_published_number_of_parameters)
{
    const struct count *count = &counts[_i];
    struct zoo_spec spec = resnet(count->version, count->depth, 32);
    struct graph graph = build(&spec);
    uint32_t n = (count->depth - 2) / (count->version == 1 ? 6 : 9);

    ck_assert_uint_eq(graph_trainable(&graph), count->trainable);
    if (count->statistics) {
        ck_assert_uint_eq(graph_statistics(&graph), count->statistics);
    }
    ck_assert_uint_eq(graph.n_layers, 1 + 3 * n + 1);
    graph_fini(&graph);
}
END_TEST

START_TEST(resnet_maps_shrink_by_stack)
{
    struct zoo_spec spec = resnet(2, 20, 96);
    struct graph graph = build(&spec);

    expect_shape(&graph, "stem.relu", 16, 96, 96);
    expect_shape(&graph, "stack0.block1.add", 64, 96, 96);
    expect_shape(&graph, "stack1.block0.conv1", 64, 48, 48);
    expect_shape(&graph, "stack1.block0.shortcut", 128, 48, 48);
    expect_shape(&graph, "stack2.block1.add", 256, 24, 24);
    expect_shape(&graph, "head.pool", 256, 3, 3);
    expect_shape(&graph, "head.flatten", 2304, 1, 1);
    expect_shape(&graph, "head.dense", 10, 1, 1);
    graph_fini(&graph);
}
END_TEST

START_TEST(resnet_takes_28x28_grey_images)
{
    struct zoo_spec spec = resnet((uint32_t)_i, 20, 28);
    struct graph graph;

    spec.channels = 1;
    graph = build(&spec);
    expect_shape(&graph, "input", 1, 28, 28);
    expect_shape(&graph, _i == 1 ? "stack2.block2.relu2" : "stack2.block1.add",
                 _i == 1 ? 64 : 256, 7, 7);
    expect_shape(&graph, "head.pool", _i == 1 ? 64 : 256, 1, 1);
    graph_fini(&graph);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("zoo");
    TCase *tc = tcase_create("resnet");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, resnet_has_the_published_number_of_parameters, 0,
                        sizeof counts / sizeof counts[0]);
    tcase_add_test(tc, resnet_maps_shrink_by_stack);
    tcase_add_loop_test(tc, resnet_takes_28x28_grey_images, 1, 3);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    int failed;

    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
