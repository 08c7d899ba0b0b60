/* Fusion and the derivation of backward.
 *
 * Both are checked by meaning, not by shape alone: a graph is run on symbols.
 * A value is a hash of the operator, its attributes, its parameters' names and
 * the hashes of what it reads; a gradient is a hash of the whole chain of
 * additions that made it, in order (two summands may swap: floats allow
 * that). Equal hashes before and after fusion mean equal bits.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/rng.h"
#include "model/backward.h"
#include "model/passes.h"
#include "model/zoo.h"
#include "tests/lib/run_suite.h"

/* ---- symbols ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    return rng_u64(a, b, 0);
}

/* x + y: floats commute. */
static uint64_t sum(uint64_t x, uint64_t y)
{
    return mix(x < y ? x : y, mix(x < y ? y : x, 1001));
}

static uint64_t text(const char *name)
{
    uint64_t hash = 7;

    for (; *name; name++) {
        hash = mix(hash, (unsigned char)*name);
    }
    return hash;
}

enum { RELU_SYMBOL = 501, RELU_GRADIENT, WEIGHT_SYMBOL, WRITE_SYMBOL /* and the input */ };

/* Operator without what was fused behind it. Names count where parameters are. */
static uint64_t core(const struct graph *graph, uint32_t i, const uint64_t *values)
{
    const struct node *node = &graph->nodes[i];
    struct param params[MODEL_MAX_PARAMS];
    uint64_t hash = mix((uint64_t)node->kind, node->k);

    if (node->kind == OP_ADD) {
        return sum(values[node->inputs[0]], values[node->inputs[1]]);
    }
    if (node->kind == OP_RELU) {
        return mix(RELU_SYMBOL, values[node->inputs[0]]);
    }
    hash = mix(hash, (uint64_t)node->r << 32 | node->stride_h);
    hash = mix(hash, node_params(graph, i, params) ? text(node->name) : 0);
    for (uint32_t k = 0; k < node->n_inputs && !(node->kind == OP_CONV && k == 1); k++) {
        hash = mix(hash, values[node->inputs[k]]);
    }
    return hash;
}

static uint64_t value(const struct graph *graph, uint32_t i, const uint64_t *values)
{
    const struct node *node = &graph->nodes[i];
    uint64_t hash = core(graph, i, values);

    if (node->is_residual) {
        hash = sum(hash, values[node->inputs[1]]);
    }
    return node->is_relu ? mix(RELU_SYMBOL, hash) : hash;
}

struct symbols {
    uint64_t *values, *gradients;
    uint64_t weights; /* all weight gradients, independent of their order */
};

static void contribute(struct symbols *s, uint32_t tensor, bool is_first, uint64_t gradient)
{
    if (is_first) {
        ck_assert_uint_eq(s->gradients[tensor], 0);
        s->gradients[tensor] = gradient;
    } else {
        ck_assert_uint_ne(s->gradients[tensor], 0);
        s->gradients[tensor] = sum(s->gradients[tensor], gradient);
    }
}

static void run_step(struct symbols *s, const struct graph *graph, const struct backward_step *step)
{
    const struct node *node = &graph->nodes[step->node];
    uint64_t dy = s->gradients[step->node];

    ck_assert(node->kind == OP_LOSS || dy != 0);
    if (node->is_relu || node->kind == OP_RELU) {
        /* The mask is the ReLU's own output in both forms. */
        dy = mix(mix(RELU_GRADIENT, s->values[step->node]), dy);
    }
    if (step->has_weights) {
        s->weights +=
            mix(mix(WEIGHT_SYMBOL, text(node->name)), mix(dy, s->values[node->inputs[0]]));
    }
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        uint64_t dx = dy;

        if (step->how[k] == GRAD_NONE) {
            continue;
        }
        if (node->kind != OP_ADD && node->kind != OP_RELU && !(node->kind == OP_CONV && k == 1)) {
            dx = mix(mix(WRITE_SYMBOL + k, core(graph, step->node, s->values)), dy);
        }
        contribute(s, node->inputs[k], step->is_first[k], dx);
    }
}

/* Runs a whole graph; backward in the given number of ranges, last first. */
static struct symbols run(const struct graph *graph, uint32_t n_ranges)
{
    struct symbols s = { calloc(graph->n_nodes, sizeof(uint64_t)),
                         calloc(graph->n_nodes, sizeof(uint64_t)), 0 };
    uint32_t last = graph->n_nodes;

    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        s.values[i] = value(graph, i, s.values);
    }
    for (uint32_t r = n_ranges; r-- > 0;) {
        uint32_t first = graph->n_nodes * r / n_ranges, n;
        struct backward_step *steps;

        ck_assert_int_eq(backward_derive(graph, first, last, &steps, &n, NULL), 0);
        for (uint32_t i = 0; i < n; i++) {
            ck_assert(steps[i].node >= first && steps[i].node < last);
            run_step(&s, graph, &steps[i]);
        }
        free(steps);
        last = first;
    }
    return s;
}

static void symbols_fini(struct symbols *s)
{
    free(s->values);
    free(s->gradients);
}

/* ---- graphs ---- */

static struct graph zoo(const char *name, uint32_t version, uint32_t depth)
{
    struct zoo_spec spec = { .version = version,
                             .depth = depth,
                             .layers = 3,
                             .filters = 16,
                             .n_hidden = 2,
                             .hidden = { 32, 16 },
                             .classes = 10,
                             .channels = 3,
                             .height = 32,
                             .width = 32 };
    struct gems_error err = { 0 };
    struct graph graph;

    snprintf(spec.zoo, sizeof spec.zoo, "%s", name);
    ck_assert_msg(zoo_build(&spec, &graph, &err) == 0, "%s", err.text);
    return graph;
}

/* Draws of one random graph. */
struct dice {
    uint64_t seed, n;
};

static uint32_t roll(struct dice *dice, uint32_t sides)
{
    return (uint32_t)rng_below(dice->seed, 1, dice->n++, sides);
}

static uint32_t put(struct graph *graph, struct node *node, uint32_t layer)
{
    struct gems_error err = { 0 };
    int index;

    snprintf(node->name, sizeof node->name, "n%u", graph->n_nodes);
    node->layer = layer;
    index = graph_add(graph, node, &err);
    ck_assert_msg(index >= 0, "%s", err.text);
    return (uint32_t)index;
}

/* A tensor of 2x4x4; behind a concat stands the convolution back to that. */
static uint32_t latest(const struct graph *graph, uint32_t back)
{
    uint32_t at = graph->n_nodes - 1 - back;

    return graph->nodes[at].kind == OP_CONCAT ? at + 1 : at;
}

/* One operator that keeps 2x4x4, on a tensor among the latest. */
static void put_random(struct graph *graph, struct dice *dice, uint32_t layer)
{
    static const enum op_kind kinds[] = { OP_CONV, OP_CONV, OP_BATCHNORM, OP_RELU, OP_ADD,
                                          OP_ADD,  OP_MAXPOOL, OP_DROPOUT, OP_CONCAT };
    uint32_t reach = graph->n_nodes < 5 ? graph->n_nodes : 5;
    struct node node = { .kind = kinds[roll(dice, 9)], .n_inputs = 1, .eps = 1e-5, .decay = 0.9 };

    node.inputs[0] = latest(graph, roll(dice, 2) ? 0 : roll(dice, reach));
    if (node.kind == OP_ADD || node.kind == OP_CONCAT) {
        node.n_inputs = 2;
        node.inputs[1] = latest(graph, roll(dice, reach));
    }
    if (node.kind == OP_CONCAT) {
        /* and back to two channels */
        node.inputs[0] = put(graph, &node, layer);
        node.n_inputs = 1;
        node.kind = OP_CONV;
    }
    if (node.kind == OP_CONV || node.kind == OP_MAXPOOL) {
        node.k = node.kind == OP_CONV ? 2 : 0;
        node.r = node.s = 3;
        node.stride_h = node.stride_w = node.pad_h = node.pad_w = 1;
    }
    put(graph, &node, layer);
}

/* Sums up every tensor that nobody has read, then the head. */
static void finish(struct graph *graph, uint32_t layer)
{
    bool *is_read = calloc(graph->n_nodes + 1, sizeof *is_read);
    uint32_t n = graph->n_nodes, x = n - 1;
    struct node node;

    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < graph->nodes[i].n_inputs; k++) {
            is_read[graph->nodes[i].inputs[k]] = true;
        }
    }
    for (uint32_t i = 0; i + 1 < n; i++) {
        if (!is_read[i]) {
            node = (struct node){ .kind = OP_ADD, .n_inputs = 2, .inputs = { x, i } };
            x = put(graph, &node, layer);
        }
    }
    free(is_read);
    node = (struct node){ .kind = OP_FLATTEN, .n_inputs = 1, .inputs = { x } };
    x = put(graph, &node, layer);
    node = (struct node){ .kind = OP_DENSE, .n_inputs = 1, .inputs = { x }, .k = 3 };
    x = put(graph, &node, layer);
    node = (struct node){ .kind = OP_LOSS, .n_inputs = 1, .inputs = { x } };
    put(graph, &node, layer);
}

static struct graph random_graph(uint64_t seed)
{
    struct dice dice = { seed, 0 };
    struct node input = { .kind = OP_INPUT, .out = { .c = 2, .h = 4, .w = 4 } };
    struct graph graph;
    uint32_t layer = 0, n = 3 + roll(&dice, 40);

    graph_init(&graph, "random", 3);
    put(&graph, &input, 0);
    for (uint32_t i = 0; i < n; i++) {
        put_random(&graph, &dice, layer);
        layer += roll(&dice, 6) == 0;
    }
    finish(&graph, layer);
    ck_assert_int_eq(graph_check(&graph, NULL), 0);
    return graph;
}

static uint32_t count(const struct graph *graph, enum op_kind kind)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        n += graph->nodes[i].kind == kind;
    }
    return n;
}

static void params_text(const struct graph *graph, char *ret_text, size_t bytes)
{
    struct param params[MODEL_MAX_PARAMS];
    size_t n = 0;

    ret_text[0] = '\0';
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        uint32_t n_params = node_params(graph, i, params);

        for (uint32_t p = 0; p < n_params; p++) {
            n += (size_t)snprintf(ret_text + n, bytes - n, "%s.%s %llu\n", graph->nodes[i].name,
                                  params[p].suffix, (unsigned long long)param_count(&params[p]));
            ck_assert_uint_lt(n, bytes);
        }
    }
}

/* ---- fusion ---- */

static void expect_same_meaning(struct graph *graph)
{
    static char before_text[1 << 20], after_text[1 << 20];
    struct gems_error err = { 0 };
    struct symbols before = run(graph, 1), after;
    uint64_t loss = before.values[graph->n_nodes - 1];

    params_text(graph, before_text, sizeof before_text);
    ck_assert_int_eq(graph_fuse(graph, &err), 0);
    ck_assert_msg(graph_check(graph, &err) == 0, "%s", err.text);
    params_text(graph, after_text, sizeof after_text);
    ck_assert_str_eq(before_text, after_text);
    after = run(graph, 1);
    ck_assert_uint_eq(after.values[graph->n_nodes - 1], loss);
    ck_assert_uint_eq(after.weights, before.weights);
    symbols_fini(&before);
    symbols_fini(&after);
}

static const struct model_case {
    const char *name;
    uint32_t version, depth;
    uint32_t nodes, relus, adds; /* after fusion */
} models[] = {
    /* 3 stacks of 3: input, stem 2, blocks of conv bn conv bn add, 2 shortcuts, head 4 */
    { "resnet", 1, 20, 3 + 9 * 5 + 2 + 4, 0, 9 },
    /* input, stem 2, blocks of 3 conv and 3 bn, less the first bn, 3 shortcuts, head 1 + 4 */
    { "resnet", 2, 20, 3 + 6 * 6 - 1 + 3 + 5, 0, 0 },
    { "resnet", 2, 110, 3 + 36 * 6 - 1 + 3 + 5, 0, 0 },
    /* input, stem 3, 8 blocks of conv bn conv bn add, 3 shortcuts of 2, head 4 */
    { "resnet-imagenet", 0, 18, 4 + 8 * 5 + 3 * 2 + 4, 0, 8 },
    /* input, 8 conv relu, 5 pools, flatten, 2 dense dropout, dense, loss */
    { "vgg", 0, 11, 1 + 8 * 2 + 5 + 1 + 2 * 2 + 2, 8, 0 },
    /* input, stem 3; 7 cells: nearer 3, farther 3 or, behind a reduction, 6; 4 reductions: 5
       pools, bottlenecks 6 and 8, conv bn, 3 relus, 5 adds, concat; 3 normal cells: 3 pools,
       2 bottlenecks of 8, 3 conv bn, 2 relus (the third has a sum to itself), 5 adds, concat;
       head 4 */
    { "amoebanet-d", 0, 0,
      4 + 7 * 3 + 3 * 3 + 4 * 6 + 4 * (5 + 14 + 2 + 3 + 6) + 3 * (3 + 16 + 6 + 2 + 6) + 4,
      1 + 7 + 7 + 4 * 3 + 3 * 2, 7 * 5 },
    { "mlp", 0, 0, 2 + 3 + 1, 0, 0 },
    /* the two behind convolutions stay */
    { "lenet", 0, 0, 1 + 2 * 3 + 1 + 3 + 1, 2, 0 },
};

START_TEST(fusion_leaves_of_a_model_what_it_must)
{
    const struct model_case *c = &models[_i];
    struct graph graph = zoo(c->name, c->version, c->depth);
    uint32_t layers = graph.n_layers;

    expect_same_meaning(&graph);
    ck_assert_uint_eq(graph.n_nodes, c->nodes);
    ck_assert_uint_eq(count(&graph, OP_RELU), c->relus);
    ck_assert_uint_eq(count(&graph, OP_ADD), c->adds);
    ck_assert_uint_eq(graph.n_layers, layers);
    graph_fini(&graph);
}
END_TEST

START_TEST(fusion_twice_changes_nothing_more)
{
    struct graph graph = zoo("resnet", 2, 20);
    uint32_t n;

    ck_assert_int_eq(graph_fuse(&graph, NULL), 0);
    n = graph.n_nodes;
    expect_same_meaning(&graph);
    ck_assert_uint_eq(graph.n_nodes, n);
    graph_fini(&graph);
}
END_TEST

START_TEST(fusion_keeps_the_meaning_of_random_graphs)
{
    uint32_t n_removed = 0, n_residuals = 0;

    for (uint64_t seed = 0; seed < 400; seed++) {
        struct graph graph = random_graph(seed + 1000 * (uint64_t)_i);
        uint32_t n = graph.n_nodes;

        expect_same_meaning(&graph);
        n_removed += n - graph.n_nodes;
        for (uint32_t i = 0; i < graph.n_nodes; i++) {
            n_residuals += graph.nodes[i].is_residual;
        }
        graph_fini(&graph);
    }
    ck_assert_uint_gt(n_removed, 300);
    ck_assert_uint_gt(n_residuals, 50);
}
END_TEST

/* input, x = first(input), y = second(x); then head. Layer of y as given. */
static struct graph pair(struct node first, struct node second, uint32_t layer)
{
    struct node input = { .kind = OP_INPUT, .out = { .c = 2, .h = 4, .w = 4 } };
    struct graph graph;

    graph_init(&graph, "pair", 3);
    put(&graph, &input, 0);
    put(&graph, &first, 0);
    put(&graph, &second, layer);
    finish(&graph, layer);
    return graph;
}

static const struct node norm = { .kind = OP_BATCHNORM, .n_inputs = 1, .eps = 1e-5, .decay = 0.9 };
static const struct node relu = { .kind = OP_RELU, .n_inputs = 1, .inputs = { 1 } };
static const struct node conv = { .kind = OP_CONV,
                                  .n_inputs = 1,
                                  .k = 2,
                                  .r = 3,
                                  .s = 3,
                                  .stride_h = 1,
                                  .stride_w = 1,
                                  .pad_h = 1,
                                  .pad_w = 1 };
static const struct node sum_01 = { .kind = OP_ADD, .n_inputs = 2, .inputs = { 0, 1 } };

START_TEST(a_relu_in_another_layer_stays_apart)
{
    struct graph graph = pair(norm, relu, (uint32_t)_i);

    expect_same_meaning(&graph);
    ck_assert_uint_eq(count(&graph, OP_RELU), (uint32_t)_i);
    graph_fini(&graph);
}
END_TEST

START_TEST(an_addition_in_another_layer_stays_apart)
{
    struct node first = conv, other = conv;
    struct graph graph;
    struct node input = { .kind = OP_INPUT, .out = { .c = 2, .h = 4, .w = 4 } };
    struct node sum_12 = sum_01;

    sum_12.inputs[0] = 1;
    sum_12.inputs[1] = 2;
    graph_init(&graph, "layers", 3);
    put(&graph, &input, 0);
    put(&graph, &first, 0);
    put(&graph, &other, 0);
    put(&graph, &sum_12, (uint32_t)_i);
    finish(&graph, (uint32_t)_i);
    expect_same_meaning(&graph);
    ck_assert_uint_eq(count(&graph, OP_ADD), (uint32_t)_i);
    graph_fini(&graph);
}
END_TEST

START_TEST(a_sum_with_the_convolutions_own_input_stays_apart)
{
    /* Fused, the residual and the convolution would swap their turns. */
    struct graph graph = pair(conv, sum_01, 0);

    expect_same_meaning(&graph);
    ck_assert_uint_eq(count(&graph, OP_ADD), 1);
    graph_fini(&graph);
}
END_TEST

START_TEST(a_value_that_others_read_is_not_fused_away)
{
    struct node input = { .kind = OP_INPUT, .out = { .c = 2, .h = 4, .w = 4 } };
    struct node bn = norm, rectified = relu, both = sum_01;
    struct graph graph;

    both.inputs[0] = 1;
    both.inputs[1] = 2;
    graph_init(&graph, "shared", 3);
    put(&graph, &input, 0);
    put(&graph, &bn, 0);
    put(&graph, &rectified, 0);
    put(&graph, &both, 0);
    finish(&graph, 0);
    expect_same_meaning(&graph);
    ck_assert_uint_eq(count(&graph, OP_RELU), 1);
    graph_fini(&graph);
}
END_TEST

/* ---- backward ---- */

START_TEST(backward_steps_come_in_reverse_order)
{
    struct graph graph = zoo("resnet", (uint32_t)_i, 20);
    struct backward_step *steps;
    uint32_t n;

    ck_assert_int_eq(backward_derive(&graph, 0, graph.n_nodes, &steps, &n, NULL), 0);
    ck_assert_uint_eq(n, graph.n_nodes - 1); /* all but the input */
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_eq(steps[i].node, graph.n_nodes - 1 - i);
    }
    /* Images want no gradient; the first convolution has weights. */
    ck_assert_int_eq(steps[n - 1].how[0], GRAD_NONE);
    ck_assert(steps[n - 1].has_weights);
    free(steps);
    graph_fini(&graph);
}
END_TEST

START_TEST(operators_above_all_weights_have_no_backward)
{
    struct graph graph = zoo("mlp", 0, 0); /* input, flatten, dense ... */
    struct backward_step *steps;
    uint32_t n;

    ck_assert_int_eq(backward_derive(&graph, 0, graph.n_nodes, &steps, &n, NULL), 0);
    ck_assert_uint_eq(n, graph.n_nodes - 2);
    ck_assert_uint_eq(steps[n - 1].node, 2);
    ck_assert_int_eq(steps[n - 1].how[0], GRAD_NONE);
    free(steps);
    graph_fini(&graph);
}
END_TEST

START_TEST(residuals_pass_the_gradient_on)
{
    struct graph graph = zoo("resnet", 2, 20);
    struct backward_step *steps;
    uint32_t n, n_passed = 0;

    ck_assert_int_eq(graph_fuse(&graph, NULL), 0);
    ck_assert_int_eq(backward_derive(&graph, 0, graph.n_nodes, &steps, &n, NULL), 0);
    for (uint32_t i = 0; i < n; i++) {
        const struct node *node = &graph.nodes[steps[i].node];

        if (node->is_residual) {
            ck_assert_int_eq(steps[i].how[0], GRAD_WRITE);
            ck_assert_int_eq(steps[i].how[1], GRAD_PASS);
            ck_assert(steps[i].is_first[1]);
            n_passed++;
        }
    }
    ck_assert_uint_eq(n_passed, 6);
    free(steps);
    graph_fini(&graph);
}
END_TEST

START_TEST(a_sum_with_relu_writes_both_gradients)
{
    struct graph graph = zoo("resnet", 1, 20);
    struct backward_step *steps;
    uint32_t n;

    ck_assert_int_eq(graph_fuse(&graph, NULL), 0);
    ck_assert_int_eq(backward_derive(&graph, 0, graph.n_nodes, &steps, &n, NULL), 0);
    for (uint32_t i = 0; i < n; i++) {
        if (graph.nodes[steps[i].node].kind == OP_ADD) {
            ck_assert_int_eq(steps[i].how[0], GRAD_WRITE);
            ck_assert_int_eq(steps[i].how[1], GRAD_WRITE);
        }
    }
    free(steps);
    graph_fini(&graph);
}
END_TEST

START_TEST(any_cut_gives_the_same_gradients)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct graph graph = random_graph(5000 + seed);
        struct symbols whole = run(&graph, 1);

        for (uint32_t n_ranges = 2; n_ranges < 6; n_ranges++) {
            struct symbols cut = run(&graph, n_ranges);

            ck_assert_uint_eq(cut.weights, whole.weights);
            ck_assert_int_eq(
                memcmp(cut.gradients, whole.gradients, graph.n_nodes * sizeof *cut.gradients), 0);
            symbols_fini(&cut);
        }
        symbols_fini(&whole);
        graph_fini(&graph);
    }
}
END_TEST

START_TEST(ranges_outside_the_graph_are_refused)
{
    static const uint32_t ranges[][2] = { { 3, 2 }, { 0, 1000 }, { UINT32_MAX, UINT32_MAX } };
    struct graph graph = zoo("mlp", 0, 0);
    struct gems_error err = { 0 };
    struct backward_step *steps = NULL;
    uint32_t n = 0;

    ck_assert_int_eq(backward_derive(&graph, ranges[_i][0], ranges[_i][1], &steps, &n, &err),
                     GEMS_E_INTERNAL);
    ck_assert_ptr_null(steps);
    graph_fini(&graph);
}
END_TEST

START_TEST(an_empty_range_has_no_steps)
{
    struct graph graph = zoo("mlp", 0, 0);
    struct backward_step *steps = NULL;
    uint32_t n = 9;

    ck_assert_int_eq(backward_derive(&graph, 3, 3, &steps, &n, NULL), 0);
    ck_assert_uint_eq(n, 0);
    free(steps);
    graph_fini(&graph);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("passes");
    TCase *fusion = tcase_create("fusion"), *backward = tcase_create("backward");

    tcase_set_timeout(fusion, 120);
    tcase_add_loop_test(fusion, fusion_leaves_of_a_model_what_it_must, 0,
                        sizeof models / sizeof models[0]);
    tcase_add_test(fusion, fusion_twice_changes_nothing_more);
    tcase_add_loop_test(fusion, fusion_keeps_the_meaning_of_random_graphs, 0, 3);
    tcase_add_loop_test(fusion, a_relu_in_another_layer_stays_apart, 0, 2);
    tcase_add_loop_test(fusion, an_addition_in_another_layer_stays_apart, 0, 2);
    tcase_add_test(fusion, a_sum_with_the_convolutions_own_input_stays_apart);
    tcase_add_test(fusion, a_value_that_others_read_is_not_fused_away);
    suite_add_tcase(s, fusion);
    tcase_set_timeout(backward, 120);
    tcase_add_loop_test(backward, backward_steps_come_in_reverse_order, 1, 3);
    tcase_add_test(backward, operators_above_all_weights_have_no_backward);
    tcase_add_test(backward, residuals_pass_the_gradient_on);
    tcase_add_test(backward, a_sum_with_relu_writes_both_gradients);
    tcase_add_test(backward, any_cut_gives_the_same_gradients);
    tcase_add_loop_test(backward, ranges_outside_the_graph_are_refused, 0, 3);
    tcase_add_test(backward, an_empty_range_has_no_steps);
    suite_add_tcase(s, backward);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
