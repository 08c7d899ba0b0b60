/* Graph: shape inference, every refusal and its words, hostile graphs, parameters. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "model/graph.h"
#include "tests/lib/run_suite.h"

/* ---- nodes as short as the cases need them ---- */

static struct node named(enum op_kind kind, const char *name, uint32_t layer)
{
    struct node node = { .kind = kind, .layer = layer };

    snprintf(node.name, sizeof node.name, "%s", name);
    return node;
}

static struct node reading(enum op_kind kind, const char *name, uint32_t layer, uint32_t x)
{
    struct node node = named(kind, name, layer);

    node.n_inputs = 1;
    node.inputs[0] = x;
    return node;
}

static struct node image(uint32_t c, uint32_t h, uint32_t w)
{
    struct node node = named(OP_INPUT, "input", 0);

    node.out = (struct shape){ .c = c, .h = h, .w = w };
    return node;
}

static struct node windowed(enum op_kind kind, const char *name, uint32_t x, uint32_t window,
                            uint32_t stride, uint32_t pad)
{
    struct node node = reading(kind, name, 0, x);

    node.r = node.s = window;
    node.stride_h = node.stride_w = stride;
    node.pad_h = node.pad_w = pad;
    return node;
}

static struct node conv(const char *name, uint32_t x, uint32_t k, uint32_t window, uint32_t stride,
                        uint32_t pad)
{
    struct node node = windowed(OP_CONV, name, x, window, stride, pad);

    node.k = k;
    return node;
}

static struct node batchnorm(const char *name, uint32_t x)
{
    struct node node = reading(OP_BATCHNORM, name, 0, x);

    node.eps = 1e-5;
    node.decay = 0.9;
    return node;
}

static struct node dense(const char *name, uint32_t x, uint32_t k)
{
    struct node node = reading(OP_DENSE, name, 0, x);

    node.k = k;
    return node;
}

static struct node add(const char *name, uint32_t a, uint32_t b)
{
    struct node node = reading(OP_ADD, name, 0, a);

    node.n_inputs = 2;
    node.inputs[1] = b;
    return node;
}

static uint32_t put(struct graph *graph, struct node node)
{
    struct gems_error err = { 0 };
    int index = graph_add(graph, &node, &err);

    ck_assert_msg(index >= 0, "%s", err.text);
    return (uint32_t)index;
}

/* input 3x8x8, conv, flatten, dense, loss. */
static struct graph small(void)
{
    struct graph graph;

    graph_init(&graph, "small", 10);
    put(&graph, image(3, 8, 8));
    put(&graph, conv("conv", 0, 4, 3, 1, 1));
    put(&graph, reading(OP_FLATTEN, "flatten", 0, 1));
    put(&graph, dense("dense", 2, 10));
    put(&graph, reading(OP_LOSS, "loss", 0, 3));
    return graph;
}

static void expect_text(const struct gems_error *err, int status, enum gems_status want,
                        const char *text)
{
    ck_assert_int_eq(status, want);
    ck_assert_int_eq(err->status, want);
    ck_assert_str_eq(err->text, text);
}

/* ---- shapes ---- */

static const struct window_case {
    uint32_t h, w, r, s, stride_h, stride_w, pad_h, pad_w, p, q;
} windows[] = {
    { 8, 8, 3, 3, 1, 1, 1, 1, 8, 8 }, { 8, 8, 3, 3, 2, 2, 1, 1, 4, 4 },
    { 7, 7, 3, 3, 2, 2, 1, 1, 4, 4 }, { 1, 1, 3, 3, 2, 2, 1, 1, 1, 1 },
    { 9, 9, 2, 2, 2, 2, 0, 0, 4, 4 }, { 12, 12, 8, 8, 8, 8, 0, 0, 1, 1 },
    { 5, 9, 1, 7, 1, 2, 0, 3, 5, 5 }, { 6, 4, 6, 4, 1, 1, 0, 0, 1, 1 },
};

START_TEST(a_window_slides_as_far_as_it_fits)
{
    static const enum op_kind kinds[] = { OP_CONV, OP_MAXPOOL, OP_AVGPOOL };
    const struct window_case *c = &windows[_i];

    for (int i = 0; i < 3; i++) {
        struct graph graph;
        struct node node = windowed(kinds[i], "node", 0, c->r, c->stride_h, c->pad_h);

        graph_init(&graph, "window", 2);
        put(&graph, image(3, c->h, c->w));
        node.s = c->s;
        node.stride_w = c->stride_w;
        node.pad_w = c->pad_w;
        node.k = kinds[i] == OP_CONV ? 5 : 0;
        put(&graph, node);
        ck_assert_uint_eq(graph.nodes[1].out.c, kinds[i] == OP_CONV ? 5 : 3);
        ck_assert_uint_eq(graph.nodes[1].out.h, c->p);
        ck_assert_uint_eq(graph.nodes[1].out.w, c->q);
        graph_fini(&graph);
    }
}
END_TEST

START_TEST(a_flat_vector_differs_from_a_1x1_image)
{
    struct gems_error err = { 0 };
    struct graph graph;
    struct node node = add("sum", 1, 2);

    graph_init(&graph, "flat", 2);
    put(&graph, image(3, 1, 1));
    put(&graph, reading(OP_RELU, "relu", 0, 0));
    put(&graph, reading(OP_FLATTEN, "flatten", 0, 0));
    ck_assert(graph.nodes[2].out.is_flat);
    expect_text(&err, graph_add(&graph, &node, &err), GEMS_E_INVALID,
                "node sum (add): its summands differ: 3x1x1 and 3x1x1 (flat)");
    graph_fini(&graph);
}
END_TEST

/* ---- refusals: one node on top of input 3x8x8 (0) and a flat vector (1) ---- */

static struct node with_inputs(struct node node, uint32_t n)
{
    node.n_inputs = n;
    return node;
}

static struct node with_relu(struct node node)
{
    node.is_relu = true;
    return node;
}

static struct node with_residual(struct node node, uint32_t n_inputs)
{
    node.is_residual = true;
    node.n_inputs = n_inputs;
    return node;
}

static struct node with_norm(struct node node, double eps, double decay)
{
    node.eps = eps;
    node.decay = decay;
    return node;
}

static struct node in_layer(struct node node, uint32_t layer)
{
    node.layer = layer;
    return node;
}

static struct node dropout(double rate)
{
    struct node node = reading(OP_DROPOUT, "x", 0, 0);

    node.rate = rate;
    return node;
}

static struct node concat(uint32_t a, uint32_t b, uint32_t n)
{
    struct node node = add("x", a, b);

    node.kind = OP_CONCAT;
    node.n_inputs = n;
    return node;
}

static struct node pick(uint32_t x, uint32_t row, uint32_t column, uint32_t stride)
{
    struct node node = windowed(OP_PICK, "x", x, row, stride, 0);

    node.s = column;
    return node;
}

struct refusal {
    struct node node;
    const char *text;
};

static struct node long_name(void)
{
    struct node node = reading(OP_RELU, "", 0, 0);

    memset(node.name, 'x', sizeof node.name);
    return node;
}

enum { N_REFUSALS = 43 };

static void make_refusals(struct refusal r[N_REFUSALS])
{
    const struct refusal all[N_REFUSALS] = {
        { reading(OP_RELU, "", 0, 0), "node 2: its name must have 1 to 63 characters" },
        { long_name(), "node 2: its name must have 1 to 63 characters" },
        { reading(OP_RELU, "a b", 0, 0),
          "node 2: character 0x20 in its name; letters, digits and ._-/: are allowed" },
        { reading(OP_RELU, "a\"", 0, 0),
          "node 2: character 0x22 in its name; letters, digits and ._-/: are allowed" },
        { reading(OP_RELU, "\xff", 0, 0),
          "node 2: character 0xff in its name; letters, digits and ._-/: are allowed" },
        { reading((enum op_kind)99, "x", 0, 0), "node x: unknown operator 99" },
        { reading((enum op_kind) - 1, "x", 0, 0), "node x: unknown operator 4294967295" },
        { image(3, 8, 8), "node input (input): the first node, and no other, must be the input" },
        { with_inputs(reading(OP_RELU, "x", 0, 0), 0),
          "node x (relu): has 0 inputs instead of 1 to 1" },
        { with_inputs(reading(OP_RELU, "x", 0, 0), 2),
          "node x (relu): has 2 inputs instead of 1 to 1" },
        { with_inputs(add("x", 0, 0), 1), "node x (add): has 1 inputs instead of 2 to 2" },
        { with_inputs(add("x", 0, 0), UINT32_MAX),
          "node x (add): has 4294967295 inputs instead of 2 to 2" },
        { reading(OP_RELU, "x", 0, 2),
          "node x (relu): reads node 2, which does not come before it" },
        { add("x", 0, UINT32_MAX),
          "node x (add): reads node 4294967295, which does not come before it" },
        { with_relu(conv("x", 0, 4, 3, 1, 1)), "node x (conv): cannot have a fused ReLU" },
        { with_relu(reading(OP_RELU, "x", 0, 0)), "node x (relu): cannot have a fused ReLU" },
        { with_residual(reading(OP_RELU, "x", 0, 0), 1),
          "node x (relu): cannot have a residual input" },
        { with_residual(conv("x", 0, 3, 3, 1, 1), 1),
          "node x (conv): a second input and the residual mark go together" },
        { with_inputs(conv("x", 0, 3, 3, 1, 1), 2),
          "node x (conv): a second input and the residual mark go together" },
        { with_residual(conv("x", 0, 4, 3, 1, 1), 2),
          "node x (conv): its residual input has another shape than its output" },
        { conv("x", 1, 4, 1, 1, 0),
          "node x (conv): needs an image, but its input is a flat vector" },
        { conv("x", 0, 0, 3, 1, 1), "node x (conv): needs at least 1 output channel" },
        { conv("x", 0, 4, 0, 1, 0), "node x (conv): window and stride must be at least 1" },
        { windowed(OP_MAXPOOL, "x", 0, 2, 0, 0),
          "node x (maxpool): window and stride must be at least 1" },
        { windowed(OP_AVGPOOL, "x", 0, 2, 2, 2),
          "node x (avgpool): padding must be smaller than the window" },
        { conv("x", 0, 4, 9, 1, 0),
          "node x (conv): window 9x9 is larger than its padded input 8x8" },
        { with_norm(reading(OP_BATCHNORM, "x", 0, 0), 0.0, 0.9),
          "node x (batchnorm): eps must be above 0" },
        { with_norm(reading(OP_BATCHNORM, "x", 0, 0), NAN, 0.9),
          "node x (batchnorm): eps must be above 0" },
        { with_norm(reading(OP_BATCHNORM, "x", 0, 0), 1e-5, 1.0),
          "node x (batchnorm): decay must be at least 0 and below 1" },
        { batchnorm("x", 1), "node x (batchnorm): needs an image, but its input is a flat vector" },
        { reading(OP_FLATTEN, "x", 0, 1), "node x (flatten): its input is flat already" },
        { dense("x", 0, 4), "node x (dense): needs a flat vector; put a flatten before it" },
        { dense("x", 1, 0), "node x (dense): needs at least 1 output" },
        { reading(OP_LOSS, "x", 0, 1),
          "node x (loss): needs a flat vector of 2 class scores, but its input is 192x1x1 (flat)" },
        { dropout(1.0), "node x (dropout): rate must be at least 0 and below 1" },
        { dropout(NAN), "node x (dropout): rate must be at least 0 and below 1" },
        { concat(0, 0, 1), "node x (concat): has 1 inputs instead of 2 to 4" },
        { concat(0, 0, 5), "node x (concat): has 5 inputs instead of 2 to 4" },
        { concat(0, 1, 2), "node x (concat): needs images, but an input is a flat vector" },
        { pick(1, 0, 0, 2), "node x (pick): needs an image, but its input is a flat vector" },
        { pick(0, 2, 0, 2), "node x (pick): row and column must be inside the stride" },
        { pick(0, 1, 3, 2), "node x (pick): row and column must be inside the stride" },
        { pick(0, 0, 0, 0), "node x (pick): row and column must be inside the stride" },
    };

    memcpy(r, all, sizeof all);
}

START_TEST(a_wrong_node_is_refused_by_name)
{
    struct refusal refusals[N_REFUSALS];
    struct gems_error err = { 0 };
    struct graph graph;

    make_refusals(refusals);
    graph_init(&graph, "refusals", 2);
    put(&graph, image(3, 8, 8));
    put(&graph, reading(OP_FLATTEN, "flat", 0, 0));
    expect_text(&err, graph_add(&graph, &refusals[_i].node, &err), GEMS_E_INVALID,
                refusals[_i].text);
    ck_assert_uint_eq(graph.n_nodes, 2);
    graph_fini(&graph);
}
END_TEST

START_TEST(a_concat_adds_channels_and_wants_one_size)
{
    struct gems_error err = { 0 };
    struct graph graph;
    struct node node;

    graph_init(&graph, "concat", 2);
    put(&graph, image(3, 8, 6));
    put(&graph, conv("conv", 0, 5, 1, 1, 0));
    put(&graph, windowed(OP_MAXPOOL, "pool", 0, 2, 2, 0));
    node = concat(0, 1, 3);
    node.inputs[2] = 1;
    put(&graph, node);
    ck_assert_uint_eq(graph.nodes[3].out.c, 13);
    ck_assert_uint_eq(graph.nodes[3].out.h, 8);
    ck_assert_uint_eq(graph.nodes[3].out.w, 6);
    node = concat(1, 2, 2);
    expect_text(&err, graph_add(&graph, &node, &err), GEMS_E_INVALID,
                "node x (concat): its inputs differ in size: 5x8x6 and 3x4x3");
    graph_fini(&graph);
}
END_TEST

START_TEST(a_pick_takes_one_pixel_of_each_tile)
{
    static const uint32_t sides[][3] = { { 8, 2, 4 }, { 7, 2, 4 }, { 1, 2, 1 }, { 7, 3, 3 } };
    struct graph graph;

    graph_init(&graph, "pick", 2);
    put(&graph, image(3, sides[_i][0], 5));
    put(&graph, pick(0, 1, 1, sides[_i][1]));
    ck_assert_uint_eq(graph.nodes[1].out.c, 3);
    ck_assert_uint_eq(graph.nodes[1].out.h, sides[_i][2]);
    ck_assert_uint_eq(graph.nodes[1].out.w, (5 + sides[_i][1] - 1) / sides[_i][1]);
    graph_fini(&graph);
}
END_TEST

START_TEST(layers_count_up_without_gaps)
{
    struct gems_error err = { 0 };
    struct graph graph;
    struct node node = in_layer(image(1, 1, 1), 1);

    graph_init(&graph, "layers", 2);
    expect_text(&err, graph_add(&graph, &node, &err), GEMS_E_INVALID,
                "node input (input): is in layer 1 behind a node of layer 0; layers count up in "
                "steps of 1 from 0");
    put(&graph, image(1, 1, 1));
    put(&graph, in_layer(reading(OP_RELU, "a", 0, 0), 1));
    node = in_layer(reading(OP_RELU, "b", 0, 1), 3);
    expect_text(&err, graph_add(&graph, &node, &err), GEMS_E_INVALID,
                "node b (relu): is in layer 3 behind a node of layer 1; layers count up in steps "
                "of 1 from 0");
    node.layer = 0;
    expect_text(&err, graph_add(&graph, &node, &err), GEMS_E_INVALID,
                "node b (relu): is in layer 0 behind a node of layer 1; layers count up in steps "
                "of 1 from 0");
    ck_assert_uint_eq(graph.n_layers, 2);
    graph_fini(&graph);
}
END_TEST

START_TEST(a_first_node_that_is_no_image_is_refused)
{
    static const struct shape wrong[] = {
        { 0, 1, 1, false }, { 1, 0, 1, false }, { 1, 1, 0, false }, { 1, 1, 1, true }
    };
    struct gems_error err = { 0 };
    struct graph graph;
    struct node node = reading(OP_RELU, "relu", 0, 0);

    graph_init(&graph, "first", 2);
    expect_text(&err, graph_add(&graph, &node, &err), GEMS_E_INVALID,
                "node relu (relu): the first node, and no other, must be the input");
    node = image(1, 1, 1);
    node.out = wrong[_i];
    expect_text(&err, graph_add(&graph, &node, &err), GEMS_E_INVALID,
                "node input (input): must be an image of at least 1 channel and 1x1 pixels");
    graph_fini(&graph);
}
END_TEST

/* ---- sizes that must not overflow ---- */

START_TEST(huge_sizes_are_refused_not_wrapped)
{
    static const char too_big[] = "node x (conv): a tensor of more than 2^40 values";
    const struct size_case {
        struct node input, node;
        const char *text;
    } cases[] = {
        { image(UINT32_MAX, UINT32_MAX, UINT32_MAX),
          { 0 },
          "node input (input): a tensor of more than 2^40 values" },
        { image(1, 1u << 31, 1u << 31),
          { 0 },
          "node input (input): a tensor of more than 2^40 values" },
        { image(1u << 20, 1, 1), conv("x", 0, UINT32_MAX, 1, 1, 0), too_big },
        { image(1u << 20, 1, 1), conv("x", 0, 1u << 21, 1, 1, 0), too_big },
        { image(1, 1, 1), conv("x", 0, 1, UINT32_MAX, 1, UINT32_MAX - 1), too_big },
        { image(1, UINT32_MAX, 1), conv("x", 0, 1, 2, 1, 1), too_big },
        { image(1u << 10, 1u << 10, 1u << 10), conv("x", 0, 1u << 21, 3, 1, 1), too_big },
        { image(1u << 10, 1u << 10, 1u << 10), conv("x", 0, 1u << 10, 15, 1, 7),
          "node x (conv): more than 2^47 multiplications for one sample" },
        { image(2, 1u << 16, 1u << 16), reading(OP_FLATTEN, "x", 0, 0),
          "node x (flatten): more than 2^32 values in one vector" },
    };
    const struct size_case *c = &cases[_i];
    struct gems_error err = { 0 };
    struct graph graph;
    int st;

    graph_init(&graph, "huge", 2);
    st = graph_add(&graph, &c->input, &err);
    if (st == 0) {
        st = graph_add(&graph, &c->node, &err);
    }
    expect_text(&err, st, GEMS_E_INVALID, c->text);
    graph_fini(&graph);
}
END_TEST

START_TEST(a_dense_layer_has_at_most_2_to_the_40_weights)
{
    struct gems_error err = { 0 };
    struct graph graph;
    struct node node = dense("x", 1, 1u << 21);

    graph_init(&graph, "huge", 2);
    put(&graph, image(1, 1u << 10, 1u << 10));
    put(&graph, reading(OP_FLATTEN, "flat", 0, 0));
    expect_text(&err, graph_add(&graph, &node, &err), GEMS_E_INVALID,
                "node x (dense): a tensor of more than 2^40 values");
    node.k = 1u << 20;
    put(&graph, node);
    ck_assert_uint_eq(node_macs(&graph, 2), UINT64_C(1) << 40);
    graph_fini(&graph);
}
END_TEST

START_TEST(a_graph_has_at_most_65536_nodes)
{
    struct gems_error err = { 0 };
    struct graph graph;
    struct node node = reading(OP_RELU, "last", 0, 0);

    graph_init(&graph, "long", 2);
    put(&graph, image(1, 1, 1));
    for (uint32_t i = 1; i < 65536; i++) {
        put(&graph, reading(OP_RELU, "relu", 0, i - 1));
    }
    expect_text(&err, graph_add(&graph, &node, &err), GEMS_E_INVALID,
                "model long: more than 65536 operators");
    graph_fini(&graph);
}
END_TEST

/* ---- graphs from outside ---- */

static void set_name(struct graph *g)
{
    memset(g->name, 'n', sizeof g->name);
}
static void drop_nodes(struct graph *g)
{
    g->n_nodes = 1;
}
static void too_many_nodes(struct graph *g)
{
    g->n_nodes = UINT32_MAX;
}
static void one_class(struct graph *g)
{
    g->n_classes = 1;
}
static void cycle(struct graph *g)
{
    g->nodes[1].inputs[0] = 3;
}
static void self_loop(struct graph *g)
{
    g->nodes[2].inputs[0] = 2;
}
static void wrong_shape(struct graph *g)
{
    g->nodes[1].out.c = 5;
}
static void wrong_flatness(struct graph *g)
{
    g->nodes[3].out.is_flat = false;
}
static void no_loss(struct graph *g)
{
    g->n_nodes = 4;
}
static void wrong_layers(struct graph *g)
{
    g->n_layers = 7;
}
static void twin_names(struct graph *g)
{
    strcpy(g->nodes[3].name, "conv");
}
static void layer_gap(struct graph *g)
{
    g->nodes[4].layer = 2;
}
static void bad_kind(struct graph *g)
{
    g->nodes[1].kind = (enum op_kind)1000;
}
static void bad_arity(struct graph *g)
{
    g->nodes[1].n_inputs = 1000000;
}
static void unterminated(struct graph *g)
{
    memset(g->nodes[2].name, 'z', sizeof g->nodes[2].name);
}

static const struct hostile {
    void (*break_it)(struct graph *graph);
    const char *text;
} hostiles[] = {
    { set_name, "model: its name has more than 63 characters" },
    { drop_nodes, "model small: has 1 operators instead of 2 to 65536" },
    { too_many_nodes, "model small: has 4294967295 operators instead of 2 to 65536" },
    { one_class, "model small: needs at least 2 classes, has 1" },
    { cycle, "node conv (conv): reads node 3, which does not come before it" },
    { self_loop, "node flatten (flatten): reads node 2, which does not come before it" },
    { wrong_shape, "node conv (conv): says its output is 5x8x8, but it is 4x8x8" },
    { wrong_flatness, "node dense (dense): says its output is 10x1x1, but it is 10x1x1 (flat)" },
    { no_loss, "node dense (dense): the last node, and no other, must be the loss" },
    { wrong_layers, "model small: says it has 7 layers, but has 1" },
    { twin_names, "model small: two nodes are called conv" },
    { layer_gap, "node loss (loss): is in layer 2 behind a node of layer 0; layers count up in "
                 "steps of 1 from 0" },
    { bad_kind, "node conv: unknown operator 1000" },
    { bad_arity, "node conv (conv): has 1000000 inputs instead of 1 to 2" },
    { unterminated, "node 2: its name must have 1 to 63 characters" },
};

START_TEST(a_hostile_graph_is_refused)
{
    struct gems_error err = { 0 };
    struct graph graph = small();

    ck_assert_int_eq(graph_check(&graph, &err), 0);
    hostiles[_i].break_it(&graph);
    expect_text(&err, graph_check(&graph, &err), GEMS_E_INVALID, hostiles[_i].text);
    graph_fini(&graph);
}
END_TEST

START_TEST(an_output_that_nobody_reads_is_refused)
{
    struct gems_error err = { 0 };
    struct graph graph;

    graph_init(&graph, "unread", 3);
    put(&graph, image(3, 1, 1));
    put(&graph, reading(OP_RELU, "lonely", 0, 0));
    put(&graph, reading(OP_FLATTEN, "flatten", 0, 0));
    put(&graph, reading(OP_LOSS, "loss", 0, 2));
    expect_text(&err, graph_check(&graph, &err), GEMS_E_INVALID,
                "node lonely (relu): nothing reads its output");
    graph_fini(&graph);
}
END_TEST

START_TEST(nothing_reads_the_loss)
{
    struct gems_error err = { 0 };
    struct graph graph = small();
    struct node node = reading(OP_RELU, "after", 0, 4);

    expect_text(&err, graph_add(&graph, &node, &err), GEMS_E_INVALID,
                "node after (relu): reads the loss");
    graph_fini(&graph);
}
END_TEST

/* Any bytes in a graph: an answer, not a crash (sanitizers watch). Half of the
 * damage is small, so that later checks are reached, too. */
START_TEST(random_damage_never_crashes_the_check)
{
    uint64_t state = 88172645463325252u + (uint64_t)_i;
    uint32_t n_refused = 0;

    for (int round = 0; round < 3000; round++) {
        struct graph graph = small();
        unsigned char *bytes = (unsigned char *)graph.nodes;

        for (int k = 0; k < 1 + round % 4; k++) {
            size_t at;

            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            at = (size_t)(state >> 16) % (graph.n_nodes * sizeof(struct node));
            /* A bool holds 0 or 1 whatever comes over the wire. */
            if (at % sizeof(struct node) >= offsetof(struct node, has_bias) &&
                at % sizeof(struct node) < offsetof(struct node, eps)) {
                continue;
            }
            if (at % sizeof(struct node) == offsetof(struct node, out.is_flat)) {
                continue;
            }
            bytes[at] = (unsigned char)(round % 2 ? bytes[at] ^ 1 : state);
        }
        n_refused += graph_check(&graph, NULL) < 0;
        graph_fini(&graph);
    }
    ck_assert_uint_gt(n_refused, 1000);
}
END_TEST

/* ---- the rest of the contract ---- */

START_TEST(a_copy_shares_nothing)
{
    struct gems_error err = { 0 };
    struct graph graph = small(), copy;

    ck_assert_int_eq(graph_copy(&graph, &copy, &err), 0);
    graph.nodes[1].k = 77;
    ck_assert_uint_eq(copy.nodes[1].k, 4);
    graph_fini(&graph);
    ck_assert_int_eq(graph_check(&copy, &err), 0);
    put(&copy, reading(OP_FLATTEN, "more", 0, 1));
    graph_fini(&copy);
    graph_fini(&copy);
}
END_TEST

START_TEST(names_of_operators_lead_back_to_them)
{
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        ck_assert_int_eq(op_from_name(op_name((enum op_kind)kind)), kind);
    }
    ck_assert_int_lt(op_from_name("deconv"), 0);
    ck_assert_str_eq(op_name(OP_KIND_COUNT), "unknown");
}
END_TEST

START_TEST(parameters_come_in_canonical_order)
{
    struct graph graph = small();
    struct param params[MODEL_MAX_PARAMS];

    graph.nodes[1].has_bias = true;
    ck_assert_uint_eq(node_params(&graph, 0, params), 0);
    ck_assert_uint_eq(node_params(&graph, 1, params), 2);
    ck_assert_str_eq(params[0].suffix, "weight");
    ck_assert_uint_eq(params[0].n_dims, 4);
    ck_assert_uint_eq(params[0].dims[0], 4);
    ck_assert_uint_eq(params[0].dims[1], 3);
    ck_assert_uint_eq(params[0].fan_in, 27);
    ck_assert_uint_eq(param_count(&params[0]), 108);
    ck_assert_int_eq(params[1].role, PARAM_BIAS);
    ck_assert_uint_eq(param_count(&params[1]), 4);
    ck_assert_uint_eq(node_params(&graph, 3, params), 1);
    ck_assert_uint_eq(params[0].dims[0], 10);
    ck_assert_uint_eq(params[0].dims[1], 256);
    ck_assert_uint_eq(params[0].fan_in, 256);
    ck_assert_uint_eq(graph_trainable(&graph), 108 + 4 + 2560);
    ck_assert_uint_eq(graph_statistics(&graph), 0);
    graph_fini(&graph);
}
END_TEST

START_TEST(batchnorm_has_two_trained_and_two_moving_parameters)
{
    static const char *const suffixes[] = { "weight", "bias", "running_mean", "running_var" };
    static const enum param_role roles[] = { PARAM_SCALE, PARAM_SHIFT, PARAM_MEAN, PARAM_VARIANCE };
    struct param params[MODEL_MAX_PARAMS];
    struct graph graph;

    graph_init(&graph, "norm", 2);
    put(&graph, image(7, 2, 2));
    put(&graph, batchnorm("bn", 0));
    ck_assert_uint_eq(node_params(&graph, 1, params), 4);
    for (int p = 0; p < 4; p++) {
        ck_assert_str_eq(params[p].suffix, suffixes[p]);
        ck_assert_int_eq(params[p].role, roles[p]);
        ck_assert_uint_eq(param_count(&params[p]), 7);
    }
    ck_assert_uint_eq(graph_trainable(&graph), 14);
    ck_assert_uint_eq(graph_statistics(&graph), 14);
    graph_fini(&graph);
}
END_TEST

START_TEST(multiplications_are_counted)
{
    struct graph graph = small();

    ck_assert_uint_eq(node_macs(&graph, 0), 0);
    ck_assert_uint_eq(node_macs(&graph, 1), 8 * 8 * 4 * 3 * 3 * 3);
    ck_assert_uint_eq(node_macs(&graph, 3), 2560);
    ck_assert_uint_eq(node_macs(&graph, 4), 0);
    graph_fini(&graph);
}
END_TEST

START_TEST(backward_needs_follow_the_operator)
{
    static const struct {
        enum op_kind kind;
        unsigned needs, needs_relu;
    } cases[] = {
        { OP_INPUT, 0, 0 },
        { OP_CONV, NEED_X | NEED_DY, 0 },
        { OP_BATCHNORM, NEED_X | NEED_KEPT | NEED_DY, NEED_X | NEED_KEPT | NEED_DY },
        { OP_RELU, NEED_Y | NEED_DY, 0 },
        { OP_ADD, NEED_DY, NEED_Y | NEED_DY },
        { OP_MAXPOOL, NEED_KEPT | NEED_DY, 0 },
        { OP_AVGPOOL, NEED_DY, 0 },
        { OP_FLATTEN, NEED_DY, 0 },
        { OP_DENSE, NEED_X | NEED_DY, NEED_X | NEED_Y | NEED_DY },
        { OP_LOSS, NEED_KEPT, 0 },
        { OP_DROPOUT, NEED_DY, 0 },
        { OP_CONCAT, NEED_DY, 0 },
        { OP_PICK, NEED_DY, 0 },
    };
    struct node node = { .kind = cases[_i].kind };

    ck_assert_uint_eq(node_backward_needs(&node), cases[_i].needs);
    if (cases[_i].needs_relu) {
        node.is_relu = true;
        ck_assert_uint_eq(node_backward_needs(&node), cases[_i].needs_relu);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("graph");
    TCase *shapes = tcase_create("shapes"), *outside = tcase_create("outside");
    TCase *rest = tcase_create("contract");

    tcase_set_timeout(shapes, 30);
    tcase_add_loop_test(shapes, a_window_slides_as_far_as_it_fits, 0,
                        sizeof windows / sizeof windows[0]);
    tcase_add_test(shapes, a_flat_vector_differs_from_a_1x1_image);
    tcase_add_loop_test(shapes, a_wrong_node_is_refused_by_name, 0, N_REFUSALS);
    tcase_add_test(shapes, a_concat_adds_channels_and_wants_one_size);
    tcase_add_loop_test(shapes, a_pick_takes_one_pixel_of_each_tile, 0, 4);
    tcase_add_test(shapes, layers_count_up_without_gaps);
    tcase_add_loop_test(shapes, a_first_node_that_is_no_image_is_refused, 0, 4);
    tcase_add_loop_test(shapes, huge_sizes_are_refused_not_wrapped, 0, 9);
    tcase_add_test(shapes, a_dense_layer_has_at_most_2_to_the_40_weights);
    tcase_add_test(shapes, a_graph_has_at_most_65536_nodes);
    suite_add_tcase(s, shapes);
    tcase_set_timeout(outside, 60);
    tcase_add_loop_test(outside, a_hostile_graph_is_refused, 0,
                        sizeof hostiles / sizeof hostiles[0]);
    tcase_add_test(outside, an_output_that_nobody_reads_is_refused);
    tcase_add_test(outside, nothing_reads_the_loss);
    tcase_add_loop_test(outside, random_damage_never_crashes_the_check, 0, 4);
    suite_add_tcase(s, outside);
    tcase_set_timeout(rest, 30);
    tcase_add_test(rest, a_copy_shares_nothing);
    tcase_add_test(rest, names_of_operators_lead_back_to_them);
    tcase_add_test(rest, parameters_come_in_canonical_order);
    tcase_add_test(rest, batchnorm_has_two_trained_and_two_moving_parameters);
    tcase_add_test(rest, multiplications_are_counted);
    tcase_add_loop_test(rest, backward_needs_follow_the_operator, 0, OP_KIND_COUNT);
    suite_add_tcase(s, rest);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
