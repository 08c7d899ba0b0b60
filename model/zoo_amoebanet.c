/* AmoebaNet-D with a number of normal cells and of filters.
 *
 * Source: Real et al., "Regularized evolution for image classifier architecture
 * search" (2018), in the form that the GPipe paper measures (its table of
 * parameters is met): the outputs of a normal cell that are joined are 0, 3, 4, 6.
 *
 * Stem (ReLU, conv 3x3 stride 2, BN), two reductions, then three times a third of
 * the normal cells, with a reduction between: a map of 1/32 of the image. Each
 * reduction doubles the channels. Head: mean of the map, dense.
 *
 * A cell reads the outputs of the two cells before it. Both are brought to the
 * cell's channels; these are states 0 (from the nearer one) and 1. Each of five
 * steps adds a state, the sum of two operators on earlier ones; the last states
 * are joined:
 *
 *     cell i-1 --- ReLU, conv 1x1, BN ------> state 0 --.
 *     cell i-2 --- nothing, the same, or ---> state 1 --+--> 2, 3, 4, 5, 6 --> concat
 *                  halved, after a reduction
 *
 * The first channels are a quarter of the filters; quarters are rounded down.
 * Several operators that want the ReLU of one state share it.
 *
 * Layers: stem, each cell, head. As cell i reads cell i-2, two tensors cross each
 * boundary but the first and the last.
 *
 * The pool that the published lists call max_pool_3x3 is an average there, padding
 * not counted; it is the average here.
 */
#include "model/zoo_build.h"

#include <stdio.h>

#include "common/error.h"

enum {
    N_STEPS = 5,
    N_STATES = 2 + N_STEPS,
    N_REDUCTIONS = 4,
    SIDE_UNIT = 2 << N_REDUCTIONS,
    MAX_LAYERS = 999,
    MIN_FILTERS = 8, /* leave one channel inside the first cell's bottlenecks */
    MAX_FILTERS = 1 << 14
};

enum cell_op { IDENTITY, AVERAGE, MAXIMUM, CONV_1X1, CONV_3X3, CONV_1X7_7X1 };

/* Operators of a step: which, and on which state. */
struct half_step {
    enum cell_op op;
    uint32_t state;
};

struct genotype {
    struct half_step steps[N_STEPS][2];
    uint32_t n_joined, joined[MODEL_MAX_INPUTS];
};

static const struct genotype normal = {
    .steps = { { { CONV_1X1, 1 }, { AVERAGE, 1 } },
               { { IDENTITY, 1 }, { CONV_1X7_7X1, 0 } },
               { { CONV_1X1, 0 }, { CONV_1X7_7X1, 0 } },
               { { AVERAGE, 2 }, { IDENTITY, 2 } },
               { { AVERAGE, 1 }, { CONV_1X1, 5 } } },
    .n_joined = 4,
    .joined = { 0, 3, 4, 6 },
};

static const struct genotype reduction = {
    .steps = { { { MAXIMUM, 0 }, { AVERAGE, 0 } },
               { { IDENTITY, 2 }, { CONV_3X3, 1 } },
               { { CONV_1X7_7X1, 2 }, { AVERAGE, 2 } },
               { { IDENTITY, 3 }, { MAXIMUM, 1 } },
               { { AVERAGE, 2 }, { CONV_1X1, 3 } } },
    .n_joined = 3,
    .joined = { 4, 5, 6 },
};

/* The network so far. */
struct trunk {
    struct zoo_builder *b;
    uint32_t n_cells;
    uint32_t channels;        /* of the next normal cell */
    uint32_t nearer, farther; /* outputs of the last two cells */
    bool is_nearer_reduced;   /* the last cell was a reduction */
};

/* A cell under construction. */
struct cell {
    struct zoo_builder *b;
    uint32_t number, channels;
    bool is_reduction;
    uint32_t states[N_STATES];
    uint32_t relus[N_STATES]; /* of a state, once made; 0: not yet */
};

static const struct zoo_window one = { 1, 1, 1, 0, 0 };

static uint32_t conv_bn(struct zoo_builder *b, int number, uint32_t x, uint32_t k,
                        const struct zoo_window *window)
{
    return zoo_batchnorm(b, "bn", number, zoo_conv_window(b, "conv", number, x, k, window, false));
}

/* To a quarter of the channels, the windows, and back, each with BN and, but for
 * the last, ReLU. */
static uint32_t bottleneck(struct zoo_builder *b, uint32_t x, uint32_t channels,
                           const struct zoo_window *windows, int n)
{
    x = conv_bn(b, 0, x, channels / 4, &one);
    for (int i = 0; i < n; i++) {
        x = zoo_relu(b, "relu", i, x);
        x = conv_bn(b, i + 1, x, channels / 4, &windows[i]);
    }
    return conv_bn(b, n + 1, zoo_relu(b, "relu", n, x), channels, &one);
}

static uint32_t relu_of(struct cell *cell, uint32_t state)
{
    struct zoo_builder *b = cell->b;

    if (!cell->relus[state]) {
        snprintf(b->prefix, sizeof b->prefix, "cell%u", cell->number);
        cell->relus[state] = zoo_relu(b, "relu", (int)state, cell->states[state]);
    }
    return cell->relus[state];
}

static uint32_t half_step(struct cell *cell, uint32_t step, uint32_t half,
                          const struct half_step *what)
{
    struct zoo_builder *b = cell->b;
    uint32_t x = cell->states[what->state], c = cell->channels;
    uint32_t stride = cell->is_reduction && what->state < 2 ? 2 : 1;
    struct zoo_window average = { 3, 3, stride, 1, 1 }, maximum = { 2, 2, stride, 0, 0 };
    struct zoo_window square = { 3, 3, stride, 1, 1 };
    static const struct zoo_window lines[] = { { 1, 7, 1, 0, 3 }, { 7, 1, 1, 3, 0 } };
    bool is_conv = what->op >= CONV_1X1;

    if (is_conv) {
        x = relu_of(cell, what->state);
    }
    snprintf(b->prefix, sizeof b->prefix, "cell%u.step%u.%c", cell->number, step, "ab"[half]);
    switch (what->op) {
    case AVERAGE:
        return zoo_pool_window(b, OP_AVGPOOL, "average", ZOO_NO_NUMBER, x, &average);
    case MAXIMUM:
        return zoo_pool_window(b, OP_MAXPOOL, "maximum", ZOO_NO_NUMBER, x, &maximum);
    case CONV_1X1:
        return conv_bn(b, ZOO_NO_NUMBER, x, c, &one);
    case CONV_3X3:
        return bottleneck(b, x, c, &square, 1);
    case CONV_1X7_7X1:
        return bottleneck(b, x, c, lines, 2);
    default:
        return x;
    }
}

/* Halves the map and keeps both halves of it: one convolution reads the pixels
 * of even row and column, one those of odd. */
static uint32_t halve(struct zoo_builder *b, uint32_t x, uint32_t channels)
{
    static const struct zoo_window second = { 1, 1, 2, 0, 0 };
    uint32_t relu = zoo_relu(b, "relu", ZOO_NO_NUMBER, x), halves[2];

    halves[0] = zoo_conv_window(b, "conv", 0, relu, channels / 2, &second, false);
    halves[1] = zoo_pick(b, "pick", relu, 2, 1, 1);
    halves[1] = zoo_conv_window(b, "conv", 1, halves[1], channels / 2, &one, false);
    return zoo_batchnorm(b, "bn", ZOO_NO_NUMBER, zoo_concat(b, "concat", halves, 2));
}

static uint32_t channels_of(const struct zoo_builder *b, uint32_t node)
{
    return b->status < 0 ? 0 : b->graph->nodes[node].out.c;
}

/* ReLU, conv 1x1, BN. */
static uint32_t project(struct zoo_builder *b, uint32_t x, uint32_t channels)
{
    return conv_bn(b, ZOO_NO_NUMBER, zoo_relu(b, "relu", ZOO_NO_NUMBER, x), channels, &one);
}

static void prepare(struct cell *cell, const struct trunk *t)
{
    struct zoo_builder *b = cell->b;

    snprintf(b->prefix, sizeof b->prefix, "cell%u.nearer", cell->number);
    cell->states[0] = project(b, t->nearer, cell->channels);
    snprintf(b->prefix, sizeof b->prefix, "cell%u.farther", cell->number);
    if (t->is_nearer_reduced) {
        cell->states[1] = halve(b, t->farther, cell->channels);
    } else if (channels_of(b, t->farther) != cell->channels) {
        cell->states[1] = project(b, t->farther, cell->channels);
    } else {
        cell->states[1] = t->farther;
    }
}

static void add_cell(struct trunk *t, const struct genotype *genotype)
{
    struct zoo_builder *b = t->b;
    bool is_reduction = genotype == &reduction;
    struct cell cell = { .b = b, .number = t->n_cells, .is_reduction = is_reduction };
    uint32_t joined[MODEL_MAX_INPUTS];

    t->channels *= is_reduction ? 2 : 1;
    cell.channels = t->channels;
    b->layer++;
    prepare(&cell, t);
    for (uint32_t i = 0; i < N_STEPS; i++) {
        uint32_t x0 = half_step(&cell, i, 0, &genotype->steps[i][0]);
        uint32_t x1 = half_step(&cell, i, 1, &genotype->steps[i][1]);

        snprintf(b->prefix, sizeof b->prefix, "cell%u.step%u", cell.number, i);
        cell.states[2 + i] = zoo_add(b, "add", x0, x1);
    }
    for (uint32_t i = 0; i < genotype->n_joined; i++) {
        joined[i] = cell.states[genotype->joined[i]];
    }
    snprintf(b->prefix, sizeof b->prefix, "cell%u", cell.number);
    t->farther = t->nearer;
    t->nearer = zoo_concat(b, "concat", joined, genotype->n_joined);
    t->is_nearer_reduced = is_reduction;
    t->n_cells++;
}

static uint32_t stem(struct zoo_builder *b, const struct zoo_spec *spec, uint32_t channels)
{
    uint32_t x = zoo_input(b, spec);

    snprintf(b->prefix, sizeof b->prefix, "stem");
    x = zoo_relu(b, "relu", ZOO_NO_NUMBER, x);
    return conv_bn(b, ZOO_NO_NUMBER, x, channels, &(struct zoo_window){ 3, 3, 2, 1, 1 });
}

static int check_layers(uint32_t layers, struct gems_error *err)
{
    uint32_t below = layers / 3 * 3;

    if (layers >= 3 && layers <= MAX_LAYERS && layers == below) {
        return 0;
    }
    if (layers < 3 || layers > MAX_LAYERS) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "model.layers: %u; amoebanet-d has a multiple of 3 from 3 to %d",
                              layers, MAX_LAYERS);
    }
    return gems_error_set(err, GEMS_E_INVALID,
                          "model.layers: %u; amoebanet-d has a multiple of 3: %u or %u", layers,
                          below, below + 3);
}

static int check_spec(const struct zoo_spec *spec, struct gems_error *err)
{
    int st = check_layers(spec->layers, err);

    if (st < 0) {
        return st;
    }
    if (spec->filters < MIN_FILTERS || spec->filters > MAX_FILTERS) {
        return gems_error_set(err, GEMS_E_INVALID, "model.filters: %u is not in %d to %d",
                              spec->filters, MIN_FILTERS, MAX_FILTERS);
    }
    if (spec->height % SIDE_UNIT || spec->width % SIDE_UNIT) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "data.size: %ux%u; amoebanet-d needs sides that are multiples of %d",
                              spec->height, spec->width, SIDE_UNIT);
    }
    return 0;
}

int zoo_amoebanet(struct zoo_builder *b, const struct zoo_spec *spec)
{
    struct trunk t = { .b = b, .channels = spec->filters / 4 };
    uint32_t x;
    int st = check_spec(spec, b->err);

    if (st < 0) {
        return st;
    }
    snprintf(b->graph->name, sizeof b->graph->name, "amoebanet-d-%u-%u", spec->layers,
             spec->filters);
    t.nearer = t.farther = stem(b, spec, t.channels);
    add_cell(&t, &reduction);
    for (uint32_t third = 0; third < 3; third++) {
        add_cell(&t, &reduction);
        for (uint32_t i = 0; i < spec->layers / 3; i++) {
            add_cell(&t, &normal);
        }
    }
    b->layer++;
    snprintf(b->prefix, sizeof b->prefix, "head");
    x = zoo_pool_to(b, "pool", t.nearer, 1, 1);
    x = zoo_flatten(b, "flatten", x);
    zoo_loss(b, zoo_dense(b, "dense", ZOO_NO_NUMBER, x, spec->classes));
    return b->status;
}
