/* The built-in networks: parameter counts, shapes, layers, error texts. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "model/zoo.h"
#include "tests/lib/run_suite.h"

#define NAMES "resnet, resnet-imagenet, vgg, amoebanet-d, mlp, lenet"

static struct zoo_spec resnet(uint32_t version, uint32_t depth, uint32_t side)
{
    return (struct zoo_spec){ .zoo = "resnet",
                              .version = version,
                              .depth = depth,
                              .classes = 10,
                              .channels = 3,
                              .height = side,
                              .width = side };
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
    { 1, 20, 273066, 1376 }, { 1, 56, 857706, 0 },          { 1, 110, 1734666, 0 },
    { 2, 20, 570602, 3488 }, { 2, 56, 1663338, 0 },         { 2, 110, 3302442, 20768 },
    { 2, 164, 4941546, 0 },  { 2, 1001, 30347658, 191840 },
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
    expect_shape(&graph, _i == 1 ? "stack2.block2.relu2" : "stack2.block1.add", _i == 1 ? 64 : 256,
                 7, 7);
    expect_shape(&graph, "head.pool", _i == 1 ? 64 : 256, 1, 1);
    graph_fini(&graph);
}
END_TEST

/* Counts of PyTorch's models at 1000 classes; statistics 0: not stated. */
static const struct count_imagenet {
    uint32_t depth, n_blocks, channels; /* channels: of the last map */
    uint64_t trainable, statistics;
} counts_imagenet[] = {
    { 18, 8, 512, 11689512, 9600 },     { 34, 16, 512, 21797672, 0 },
    { 50, 16, 2048, 25557032, 53120 },  { 101, 33, 2048, 44549160, 0 },
    { 152, 50, 2048, 60192808, 0 },
};

START_TEST(resnet_imagenet_has_the_published_number_of_parameters)
{
    const struct count_imagenet *count = &counts_imagenet[_i];
    struct zoo_spec spec = { .zoo = "resnet-imagenet",
                             .depth = count->depth,
                             .classes = 1000,
                             .channels = 3,
                             .height = 224,
                             .width = 224 };
    struct graph graph = build(&spec);

    ck_assert_uint_eq(graph_trainable(&graph), count->trainable);
    if (count->statistics) {
        ck_assert_uint_eq(graph_statistics(&graph), count->statistics);
    }
    ck_assert_uint_eq(graph.n_layers, 1 + count->n_blocks + 1);
    expect_shape(&graph, "stem.relu", 64, 112, 112);
    expect_shape(&graph, "stem.pool", 64, 56, 56);
    expect_shape(&graph, "head.pool", count->channels, 1, 1);
    ck_assert_uint_eq(graph.nodes[find(&graph, "head.pool")].r, 7);
    graph_fini(&graph);
}
END_TEST

START_TEST(resnet_imagenet_has_its_strides_where_they_belong)
{
    struct zoo_spec spec = { .zoo = "resnet-imagenet",
                             .depth = 50,
                             .classes = 10,
                             .channels = 1,
                             .height = 100,
                             .width = 33 };
    struct graph graph = build(&spec);

    ck_assert_str_eq(graph.name, "resnet-imagenet-50");
    ck_assert_uint_eq(graph.nodes[find(&graph, "stack1.block0.conv1")].stride_h, 1);
    ck_assert_uint_eq(graph.nodes[find(&graph, "stack1.block0.conv2")].stride_h, 2);
    ck_assert_uint_eq(graph.nodes[find(&graph, "stack1.block0.shortcut")].stride_h, 2);
    ck_assert_uint_eq(graph.nodes[find(&graph, "stack0.block0.shortcut")].stride_h, 1);
    ck_assert(!graph.nodes[find(&graph, "stack0.block0.conv1")].has_bias);
    ck_assert(graph.nodes[find(&graph, "head.dense")].has_bias);
    /* Odd sides are rounded up at every step. */
    expect_shape(&graph, "stem.conv", 64, 50, 17);
    expect_shape(&graph, "stem.pool", 64, 25, 9);
    expect_shape(&graph, "stack1.block3.relu3", 512, 13, 5);
    expect_shape(&graph, "stack3.block0.shortcut", 2048, 4, 2);
    expect_shape(&graph, "head.pool", 2048, 1, 1);
    graph_fini(&graph);
}
END_TEST

static struct zoo_spec vgg(uint32_t depth, uint32_t height, uint32_t width, uint32_t classes)
{
    return (struct zoo_spec){ .zoo = "vgg",
                              .depth = depth,
                              .classes = classes,
                              .channels = 3,
                              .height = height,
                              .width = width };
}

/* Counts of PyTorch's models without batch-norm at 224x224 with 1000 classes. */
static const struct count_vgg {
    uint32_t depth;
    uint64_t trainable;
} counts_vgg[] = {
    { 11, 132863336 }, { 13, 133047848 }, { 16, 138357544 }, { 19, 143667240 }
};

START_TEST(vgg_has_the_published_number_of_parameters)
{
    const struct count_vgg *count = &counts_vgg[_i];
    struct zoo_spec spec = vgg(count->depth, 224, 224, 1000);
    struct graph graph = build(&spec);

    ck_assert_uint_eq(graph_trainable(&graph), count->trainable);
    ck_assert_uint_eq(graph_statistics(&graph), 0);
    ck_assert_uint_eq(graph.n_layers, count->depth);
    expect_shape(&graph, "stack4.pool", 512, 7, 7);
    expect_shape(&graph, "head.flatten", 25088, 1, 1);
    ck_assert_int_eq(graph.nodes[find(&graph, "head.dropout1")].kind, OP_DROPOUT);
    ck_assert(graph.nodes[find(&graph, "head.dropout1")].rate == 0.5);
    ck_assert_uint_eq(graph.nodes[find(&graph, "head.dense1")].inputs[0],
                      find(&graph, "head.dropout0"));
    graph_fini(&graph);
}
END_TEST

/* 14,714,688 weights of convolutions, and a map of at most 7x7 behind them. */
START_TEST(the_dense_layers_of_vgg_do_not_grow_with_the_image)
{
    static const uint32_t sides[][6] = {
        /* image, map taken, windows */
        { 32, 32, 1, 1, 0, 0 },   { 64, 224, 2, 7, 0, 0 },    { 448, 448, 7, 7, 2, 2 },
        { 512, 256, 7, 7, 4, 2 }, { 1024, 100, 7, 3, 8, 1 },
    };
    const uint32_t *c = sides[_i];
    struct zoo_spec spec = vgg(16, c[0], c[1], 10);
    struct graph graph = build(&spec);
    uint64_t dense = 512ull * c[2] * c[3] * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 10 + 10;

    ck_assert_uint_eq(graph_trainable(&graph), 14714688 + dense);
    expect_shape(&graph, "head.flatten", 512 * c[2] * c[3], 1, 1);
    if (c[4]) {
        const struct node *pool = &graph.nodes[find(&graph, "head.pool")];

        ck_assert_uint_eq(pool->r, c[4]);
        ck_assert_uint_eq(pool->s, c[5]);
        expect_shape(&graph, "head.pool", 512, c[2], c[3]);
    }
    graph_fini(&graph);
}
END_TEST

static struct zoo_spec amoebanet(uint32_t layers, uint32_t filters, uint32_t classes,
                                 uint32_t side)
{
    return (struct zoo_spec){ .zoo = "amoebanet-d",
                              .layers = layers,
                              .filters = filters,
                              .classes = classes,
                              .channels = 3,
                              .height = side,
                              .width = side };
}

static const struct count_amoebanet {
    uint32_t layers, filters, classes;
    uint64_t trainable;
} counts_amoebanet[] = {
    { 3, 16, 10, 100886 },           { 3, 32, 10, 391354 },
    { 6, 64, 10, 2686346 },          { 18, 208, 1000, 81505540 },
    { 18, 256, 1000, 122470120 },    { 18, 416, 1000, 319024120 },
    { 18, 544, 1000, 542734840 },    { 36, 544, 1000, 1055832376 },
    { 72, 512, 1000, 1844858344 },
};

START_TEST(amoebanet_has_the_published_number_of_parameters)
{
    const struct count_amoebanet *count = &counts_amoebanet[_i];
    struct zoo_spec spec = amoebanet(count->layers, count->filters, count->classes, 224);
    struct graph graph = build(&spec);

    ck_assert_uint_eq(graph_trainable(&graph), count->trainable);
    ck_assert_uint_eq(graph.n_layers, count->layers + 6);
    graph_fini(&graph);
}
END_TEST

START_TEST(amoebanet_maps_shrink_by_cell)
{
    struct zoo_spec spec = amoebanet(6, 64, 10, 224);
    struct graph graph;

    spec.width = 96;
    graph = build(&spec);
    ck_assert_str_eq(graph.name, "amoebanet-d-6-64");
    graph_fini(&graph);
    /* a quarter of the filters, and of the channels inside, is rounded down */
    spec.filters = 214;
    graph = build(&spec);
    expect_shape(&graph, "stem.bn", 53, 112, 48);
    expect_shape(&graph, "cell0.step2.a.conv0", 26, 56, 24);
    graph_fini(&graph);
    spec.filters = 64;
    graph = build(&spec);
    expect_shape(&graph, "stem.bn", 16, 112, 48);
    /* reductions join three times the channels, normal cells four times */
    expect_shape(&graph, "cell0.concat", 96, 56, 24);
    expect_shape(&graph, "cell1.concat", 192, 28, 12);
    expect_shape(&graph, "cell2.farther.pick", 96, 28, 12);
    expect_shape(&graph, "cell2.concat", 256, 28, 12);
    expect_shape(&graph, "cell3.concat", 256, 28, 12);
    expect_shape(&graph, "cell4.concat", 384, 14, 6);
    expect_shape(&graph, "cell9.concat", 1024, 7, 3);
    expect_shape(&graph, "head.pool", 1024, 1, 1);
    graph_fini(&graph);
}
END_TEST

START_TEST(cells_of_amoebanet_have_their_parts)
{
    struct zoo_spec spec = amoebanet(3, 16, 10, 64);
    struct graph graph = build(&spec);
    const struct node *joined = &graph.nodes[find(&graph, "cell2.concat")];
    const struct node *line = &graph.nodes[find(&graph, "cell2.step1.b.conv1")];

    ck_assert_uint_eq(joined->n_inputs, 4);
    ck_assert_uint_eq(joined->inputs[0], find(&graph, "cell2.nearer.bn"));
    ck_assert_uint_eq(joined->inputs[1], find(&graph, "cell2.step1.add"));
    ck_assert_uint_eq(joined->inputs[3], find(&graph, "cell2.step4.add"));
    ck_assert_uint_eq(graph.nodes[find(&graph, "cell1.concat")].n_inputs, 3);
    /* 1x7 and 7x1 keep the map, in a quarter of the channels */
    ck_assert(line->r == 1 && line->s == 7 && line->pad_h == 0 && line->pad_w == 3);
    expect_shape(&graph, "cell2.step1.b.conv1", 4, 8, 8);
    line = &graph.nodes[find(&graph, "cell2.step1.b.conv2")];
    ck_assert(line->r == 7 && line->s == 1 && line->pad_h == 3 && line->pad_w == 0);
    /* two operators read the ReLU of one state */
    ck_assert_uint_eq(graph.nodes[find(&graph, "cell2.step2.a.conv")].inputs[0],
                      graph.nodes[find(&graph, "cell2.step1.b.conv0")].inputs[0]);
    /* reductions: stride 2 on the two inputs of the cell alone */
    ck_assert_uint_eq(graph.nodes[find(&graph, "cell1.step0.b.average")].stride_h, 2);
    ck_assert_uint_eq(graph.nodes[find(&graph, "cell1.step2.b.average")].stride_h, 1);
    ck_assert_uint_eq(graph.nodes[find(&graph, "cell1.step1.b.conv1")].stride_h, 2);
    ck_assert_uint_eq(graph.nodes[find(&graph, "cell1.step1.b.conv0")].stride_h, 1);
    ck_assert_int_eq(graph.nodes[find(&graph, "cell1.step3.b.maximum")].kind, OP_MAXPOOL);
    /* no other convolution but that of the classifier has a bias */
    for (uint32_t i = 0; i < graph.n_nodes; i++) {
        ck_assert_int_eq(graph.nodes[i].has_bias, graph.nodes[i].kind == OP_DENSE);
    }
    graph_fini(&graph);
}
END_TEST

/* Outputs of both cells before it cross into a cell; ends have fewer. */
START_TEST(two_tensors_cross_a_boundary_of_amoebanet)
{
    struct zoo_spec spec = amoebanet(6, 32, 10, 64);
    struct graph graph = build(&spec);

    for (uint32_t layer = 1; layer < graph.n_layers; layer++) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < graph.n_nodes && graph.nodes[i].layer < layer; i++) {
            bool is_crossing = false;

            for (uint32_t j = i + 1; j < graph.n_nodes; j++) {
                for (uint32_t k = 0; k < graph.nodes[j].n_inputs; k++) {
                    is_crossing = is_crossing ||
                                  (graph.nodes[j].inputs[k] == i && graph.nodes[j].layer >= layer);
                }
            }
            n += is_crossing;
        }
        /* layer 1 reads the stem alone, the head the last cell alone */
        ck_assert_uint_eq(n, layer == 1 || layer + 1 == graph.n_layers ? 1 : 2);
    }
    graph_fini(&graph);
}
END_TEST

/* A boundary between two layers carries exactly one tensor, into the next layer only. */
START_TEST(a_boundary_carries_one_tensor)
{
    static const struct zoo_spec specs[] = {
        { .zoo = "resnet",
          .version = 1,
          .depth = 20,
          .classes = 10,
          .channels = 3,
          .height = 32,
          .width = 32 },
        { .zoo = "resnet",
          .version = 2,
          .depth = 110,
          .classes = 10,
          .channels = 3,
          .height = 32,
          .width = 32 },
        { .zoo = "mlp",
          .n_hidden = 3,
          .hidden = { 8, 8, 8 },
          .classes = 10,
          .channels = 3,
          .height = 32,
          .width = 32 },
        { .zoo = "lenet", .classes = 10, .channels = 1, .height = 28, .width = 28 },
        { .zoo = "resnet-imagenet",
          .depth = 18,
          .classes = 10,
          .channels = 3,
          .height = 64,
          .width = 64 },
        { .zoo = "resnet-imagenet",
          .depth = 50,
          .classes = 10,
          .channels = 3,
          .height = 64,
          .width = 64 },
        { .zoo = "vgg",
          .depth = 19,
          .classes = 10,
          .channels = 3,
          .height = 64,
          .width = 64 },
    };
    struct graph graph = build(&specs[_i]);

    for (uint32_t layer = 1; layer < graph.n_layers; layer++) {
        uint32_t tensor = UINT32_MAX;

        for (uint32_t i = 0; i < graph.n_nodes; i++) {
            for (uint32_t k = 0; k < graph.nodes[i].n_inputs; k++) {
                uint32_t read = graph.nodes[i].inputs[k];

                if (graph.nodes[i].layer >= layer && graph.nodes[read].layer < layer) {
                    ck_assert(tensor == UINT32_MAX || tensor == read);
                    ck_assert_uint_eq(graph.nodes[i].layer, layer);
                    tensor = read;
                }
            }
        }
        ck_assert_uint_ne(tensor, UINT32_MAX);
    }
    graph_fini(&graph);
}
END_TEST

START_TEST(resnet_has_its_parts_in_their_layers)
{
    struct zoo_spec spec = resnet(2, 110, 32);
    struct graph graph = build(&spec);

    ck_assert_str_eq(graph.name, "resnet-110-v2");
    ck_assert_uint_eq(graph.n_layers, 38);
    ck_assert_uint_eq(graph.nodes[find(&graph, "stem.relu")].layer, 0);
    ck_assert_uint_eq(graph.nodes[find(&graph, "stack0.block0.conv1")].layer, 1);
    ck_assert_uint_eq(graph.nodes[find(&graph, "stack2.block11.add")].layer, 36);
    ck_assert_uint_eq(graph.nodes[find(&graph, "head.bn")].layer, 37);
    ck_assert_uint_eq(graph.nodes[find(&graph, "loss")].layer, 37);
    /* No batch-norm in front of the very first unit; the projection comes first. */
    ck_assert_uint_eq(graph.nodes[find(&graph, "stack0.block0.conv1")].inputs[0],
                      find(&graph, "stem.relu"));
    ck_assert_uint_lt(find(&graph, "stack1.block0.shortcut"), find(&graph, "stack1.block0.bn1"));
    ck_assert_uint_eq(graph.nodes[find(&graph, "stack1.block0.shortcut")].inputs[0],
                      find(&graph, "stack0.block11.add"));
    ck_assert_uint_eq(graph.nodes[find(&graph, "stack1.block0.conv1")].stride_h, 2);
    ck_assert_uint_eq(graph.nodes[find(&graph, "stack1.block0.shortcut")].stride_h, 2);
    ck_assert(graph.nodes[find(&graph, "stem.conv")].has_bias);
    ck_assert(graph.nodes[find(&graph, "stem.bn")].eps == 1e-5);
    ck_assert(graph.nodes[find(&graph, "stem.bn")].decay == 0.9);
    graph_fini(&graph);
}
END_TEST

/* Window and stride min(8, side), remainder ignored. */
START_TEST(the_head_pools_8x8_or_what_there_is)
{
    static const uint32_t sides[][3] = {
        /* image, window, pooled */
        { 8, 2, 1 }, { 28, 7, 1 }, { 32, 8, 1 }, { 60, 8, 1 }, { 96, 8, 3 }, { 1, 1, 1 },
    };
    struct zoo_spec spec = resnet(1, 8, sides[_i][0]);
    struct graph graph = build(&spec);
    const struct node *pool = &graph.nodes[find(&graph, "head.pool")];

    ck_assert_int_eq(pool->kind, OP_AVGPOOL);
    ck_assert_uint_eq(pool->r, sides[_i][1]);
    ck_assert_uint_eq(pool->stride_w, sides[_i][1]);
    ck_assert_uint_eq(pool->pad_h, 0);
    ck_assert_uint_eq(pool->out.h, sides[_i][2]);
    graph_fini(&graph);
}
END_TEST

START_TEST(images_need_not_be_square)
{
    struct zoo_spec spec = resnet(2, 11, 0);
    struct graph graph;

    spec.height = 20;
    spec.width = 96;
    graph = build(&spec);
    expect_shape(&graph, "head.relu", 256, 5, 24);
    expect_shape(&graph, "head.pool", 256, 1, 3);
    graph_fini(&graph);
}
END_TEST

START_TEST(mlp_has_a_layer_for_each_dense)
{
    struct zoo_spec spec = { .zoo = "mlp",
                             .n_hidden = 2,
                             .hidden = { 512, 256 },
                             .classes = 10,
                             .channels = 1,
                             .height = 28,
                             .width = 28 };
    struct graph graph = build(&spec);

    ck_assert_uint_eq(graph.n_layers, 3);
    ck_assert_uint_eq(graph_trainable(&graph), 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10);
    ck_assert_uint_eq(graph.nodes[find(&graph, "flatten")].layer, 0);
    ck_assert_uint_eq(graph.nodes[find(&graph, "hidden1.relu")].layer, 1);
    ck_assert_uint_eq(graph.nodes[find(&graph, "output.dense")].layer, 2);
    graph_fini(&graph);
    spec.n_hidden = 0;
    graph = build(&spec);
    ck_assert_uint_eq(graph.n_layers, 1);
    ck_assert_uint_eq(graph_trainable(&graph), 7850);
    graph_fini(&graph);
}
END_TEST

START_TEST(lenet_is_the_classic_at_28_and_at_32)
{
    struct zoo_spec spec = {
        .zoo = "lenet", .classes = 10, .channels = 1, .height = (uint32_t)_i, .width = (uint32_t)_i
    };
    struct graph graph = build(&spec);

    ck_assert_str_eq(graph.name, "lenet-5");
    ck_assert_uint_eq(graph.n_layers, 5);
    ck_assert_uint_eq(graph_trainable(&graph), 61706);
    expect_shape(&graph, "pool2", 16, 5, 5);
    graph_fini(&graph);
}
END_TEST

/* ---- refusals ---- */

static const struct refusal {
    struct zoo_spec spec;
    enum gems_status status;
    const char *text;
} refusals[] = {
#define IMAGES .channels = 3, .height = 32, .width = 32
    { { .zoo = "resnext", .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.zoo: no model is called \"resnext\"; there are " NAMES },
    { { .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.zoo: no model is called \"\"; there are " NAMES },
    { { .zoo = "vgg", .depth = 12, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.depth: 12; vgg has depths 11, 13, 16 and 19" },
    { { .zoo = "vgg", .depth = 16, .classes = 10, .channels = 3, .height = 31, .width = 32 },
      GEMS_E_INVALID,
      "data.size: 31x32; vgg needs at least 32x32" },
    { { .zoo = "unet", .classes = 10, IMAGES },
      GEMS_E_UNSUPPORTED,
      "model.zoo: unet is not in this version" },
    { { .zoo = "amoebanet-d", .filters = 16, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.layers: 0; amoebanet-d has a multiple of 3 from 3 to 999" },
    { { .zoo = "amoebanet-d", .layers = 4, .filters = 16, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.layers: 4; amoebanet-d has a multiple of 3: 3 or 6" },
    { { .zoo = "amoebanet-d", .layers = 1002, .filters = 16, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.layers: 1002; amoebanet-d has a multiple of 3 from 3 to 999" },
    { { .zoo = "amoebanet-d", .layers = 3, .filters = 7, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.filters: 7 is not in 8 to 16384" },
    { { .zoo = "amoebanet-d",
        .layers = 3,
        .filters = 16,
        .classes = 10,
        .channels = 3,
        .height = 64,
        .width = 80 },
      GEMS_E_INVALID,
      "data.size: 64x80; amoebanet-d needs sides that are multiples of 32" },
    { { .zoo = "resnet-imagenet", .depth = 20, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.depth: 20; resnet-imagenet has depths 18, 34, 50, 101 and 152" },
    { { .zoo = "resnet", .version = 1, .depth = 21, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.depth: 21; resnet version 1 has depth 6n+2: 20 or 26" },
    { { .zoo = "resnet", .version = 1, .depth = 7, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.depth: 7; resnet version 1 has depth 6n+2: at least 8" },
    { { .zoo = "resnet", .version = 2, .depth = 2, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.depth: 2; resnet version 2 has depth 9n+2: at least 11" },
    { { .zoo = "resnet", .version = 2, .depth = 0, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.depth: 0; resnet version 2 has depth 9n+2: at least 11" },
    { { .zoo = "resnet", .version = 2, .depth = 111, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.depth: 111; resnet version 2 has depth 9n+2: 110 or 119" },
    { { .zoo = "resnet", .version = 2, .depth = UINT32_MAX, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.depth: 4294967295 is above 10000" },
    { { .zoo = "resnet", .version = 3, .depth = 20, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.version: 3; resnet has versions 1 and 2" },
    { { .zoo = "resnet", .version = 1, .depth = 20, .classes = 1, IMAGES },
      GEMS_E_INVALID,
      "model.classes: 1 is not in 2 to 1048576" },
    { { .zoo = "lenet", .classes = 10, .channels = 0, .height = 32, .width = 32 },
      GEMS_E_INVALID,
      "data.channels: 0 is not in 1 to 4096" },
    { { .zoo = "lenet", .classes = 10, .channels = 1, .height = 0, .width = 32 },
      GEMS_E_INVALID,
      "data.size: height: 0 is not in 1 to 65536" },
    { { .zoo = "lenet", .classes = 10, .channels = 1, .height = 32, .width = 70000 },
      GEMS_E_INVALID,
      "data.size: width: 70000 is not in 1 to 65536" },
    { { .zoo = "lenet", .classes = 10, .channels = 1, .height = 8, .width = 28 },
      GEMS_E_INVALID,
      "data.size: 8x28; lenet needs at least 12x12" },
    { { .zoo = "mlp", .n_hidden = 17, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.hidden: has 17 entries; an mlp has up to 16 hidden layers" },
    { { .zoo = "mlp", .n_hidden = 2, .hidden = { 10, 0 }, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "model.hidden: entry 2 is 0; a hidden layer has at least 1 unit" },
    { { .zoo = "mlp", .n_hidden = 1, .hidden = { UINT32_MAX }, .classes = 10, IMAGES },
      GEMS_E_INVALID,
      "node hidden0.dense (dense): a tensor of more than 2^40 values" },
#undef IMAGES
};

START_TEST(a_wrong_spec_is_refused_with_the_key)
{
    struct gems_error err = { 0 };
    struct graph graph;

    ck_assert_int_eq(zoo_build(&refusals[_i].spec, &graph, &err), refusals[_i].status);
    ck_assert_str_eq(err.text, refusals[_i].text);
    if (refusals[_i].status == GEMS_E_UNSUPPORTED) {
        ck_assert_str_eq(err.hint, "this version has " NAMES);
    }
    ck_assert_int_eq(zoo_build(&refusals[_i].spec, &graph, NULL), refusals[_i].status);
}
END_TEST

START_TEST(a_name_without_end_is_refused)
{
    struct zoo_spec spec = resnet(1, 20, 32);
    struct gems_error err = { 0 };
    struct graph graph;

    memset(spec.zoo, 'r', sizeof spec.zoo);
    ck_assert_int_eq(zoo_build(&spec, &graph, &err), GEMS_E_INVALID);
    ck_assert_str_eq(err.text, "model.zoo: no model is called \"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr\";"
                               " there are " NAMES);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("zoo");
    TCase *tc = tcase_create("resnet"), *others = tcase_create("others");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, resnet_has_the_published_number_of_parameters, 0,
                        sizeof counts / sizeof counts[0]);
    tcase_add_test(tc, resnet_maps_shrink_by_stack);
    tcase_add_loop_test(tc, resnet_takes_28x28_grey_images, 1, 3);
    tcase_add_loop_test(tc, a_boundary_carries_one_tensor, 0, 7);
    tcase_add_loop_test(tc, resnet_imagenet_has_the_published_number_of_parameters, 0,
                        sizeof counts_imagenet / sizeof counts_imagenet[0]);
    tcase_add_test(tc, resnet_imagenet_has_its_strides_where_they_belong);
    tcase_add_test(tc, resnet_has_its_parts_in_their_layers);
    tcase_add_loop_test(tc, the_head_pools_8x8_or_what_there_is, 0, 6);
    tcase_add_test(tc, images_need_not_be_square);
    suite_add_tcase(s, tc);
    tcase_set_timeout(others, 30);
    tcase_add_test(others, mlp_has_a_layer_for_each_dense);
    tcase_add_loop_test(others, amoebanet_has_the_published_number_of_parameters, 0,
                        sizeof counts_amoebanet / sizeof counts_amoebanet[0]);
    tcase_add_test(others, amoebanet_maps_shrink_by_cell);
    tcase_add_test(others, cells_of_amoebanet_have_their_parts);
    tcase_add_test(others, two_tensors_cross_a_boundary_of_amoebanet);
    tcase_add_loop_test(others, vgg_has_the_published_number_of_parameters, 0,
                        sizeof counts_vgg / sizeof counts_vgg[0]);
    tcase_add_loop_test(others, the_dense_layers_of_vgg_do_not_grow_with_the_image, 0, 5);
    tcase_add_loop_test(others, lenet_is_the_classic_at_28_and_at_32, 28, 29);
    tcase_add_loop_test(others, lenet_is_the_classic_at_28_and_at_32, 32, 33);
    tcase_add_loop_test(others, a_wrong_spec_is_refused_with_the_key, 0,
                        sizeof refusals / sizeof refusals[0]);
    tcase_add_test(others, a_name_without_end_is_refused);
    suite_add_tcase(s, others);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
