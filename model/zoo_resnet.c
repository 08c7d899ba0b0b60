/* ResNet for small images, versions 1 and 2.
 *
 * Sources: He et al., "Deep residual learning for image recognition" (2015)
 * and "Identity mappings in deep residual networks" (2016), in the form of
 * the Keras CIFAR-10 example: convolutions with bias, three stacks, a 1x1
 * convolution without batch-norm where the shape changes.
 *
 * Version 1, depth 6n+2: block = conv3x3, BN, ReLU, conv3x3, BN, + shortcut,
 * ReLU; 16, 32, 64 channels. Version 2, depth 9n+2: block = three units of
 * BN, ReLU, conv (1x1, 3x3, 1x1), + shortcut; 64, 128, 256 channels out; the
 * first unit of the first block is a convolution alone.
 *
 * Layers: stem, each block, head. A boundary between layers carries one
 * tensor. Where both summands come out of convolutions (version 2), the
 * shortcut stands first, so that the last convolution of the main path can
 * take the sum over; in version 1 it stands last, where it lives shortest.
 */
#include "model/zoo_build.h"

#include <stdio.h>

#include "common/error.h"

enum { N_STACKS = 3, STEM_CHANNELS = 16, MAX_POOL = 8, MAX_DEPTH = 10000 };

struct block {
    uint32_t channels; /* of the inner convolutions */
    uint32_t channels_out;
    uint32_t stride;
    bool has_projection;
    bool is_first; /* of the network */
};

static uint32_t conv_same(struct zoo_builder *b, const char *part, int number, uint32_t x,
                          uint32_t k, uint32_t window, uint32_t stride)
{
    return zoo_conv(b, part, number, x, k, window, stride, (window - 1) / 2, (window - 1) / 2);
}

static uint32_t stem(struct zoo_builder *b, const struct zoo_spec *spec)
{
    uint32_t x = zoo_input(b, spec);

    snprintf(b->prefix, sizeof b->prefix, "stem");
    x = conv_same(b, "conv", ZOO_NO_NUMBER, x, STEM_CHANNELS, 3, 1);
    x = zoo_batchnorm(b, "bn", ZOO_NO_NUMBER, x);
    return zoo_relu(b, "relu", ZOO_NO_NUMBER, x);
}

static uint32_t block_v1(struct zoo_builder *b, const struct block *block, uint32_t x)
{
    uint32_t y = conv_same(b, "conv", 1, x, block->channels, 3, block->stride);

    y = zoo_batchnorm(b, "bn", 1, y);
    y = zoo_relu(b, "relu", 1, y);
    y = conv_same(b, "conv", 2, y, block->channels, 3, 1);
    y = zoo_batchnorm(b, "bn", 2, y);
    if (block->has_projection) {
        x = conv_same(b, "shortcut", ZOO_NO_NUMBER, x, block->channels_out, 1, block->stride);
    }
    y = zoo_add(b, "add", x, y);
    return zoo_relu(b, "relu", 2, y);
}

/* BN, ReLU, convolution. */
static uint32_t unit_v2(struct zoo_builder *b, int number, uint32_t x, uint32_t k, uint32_t window,
                        uint32_t stride)
{
    x = zoo_batchnorm(b, "bn", number, x);
    x = zoo_relu(b, "relu", number, x);
    return conv_same(b, "conv", number, x, k, window, stride);
}

static uint32_t block_v2(struct zoo_builder *b, const struct block *block, uint32_t x)
{
    uint32_t shortcut = x, y;

    if (block->has_projection) {
        shortcut =
            conv_same(b, "shortcut", ZOO_NO_NUMBER, x, block->channels_out, 1, block->stride);
    }
    if (block->is_first) {
        y = conv_same(b, "conv", 1, x, block->channels, 1, block->stride);
    } else {
        y = unit_v2(b, 1, x, block->channels, 1, block->stride);
    }
    y = unit_v2(b, 2, y, block->channels, 3, 1);
    y = unit_v2(b, 3, y, block->channels_out, 1, 1);
    return zoo_add(b, "add", shortcut, y);
}

static uint32_t stacks(struct zoo_builder *b, uint32_t version, uint32_t blocks, uint32_t x)
{
    static const uint32_t channels_v2[N_STACKS] = { 16, 64, 128 };
    static const uint32_t channels_out_v2[N_STACKS] = { 64, 128, 256 };

    for (uint32_t s = 0; s < N_STACKS; s++) {
        for (uint32_t i = 0; i < blocks; i++) {
            struct block block = {
                .channels = version == 1 ? 16u << s : channels_v2[s],
                .channels_out = version == 1 ? 16u << s : channels_out_v2[s],
                .stride = s > 0 && i == 0 ? 2 : 1,
                .has_projection = i == 0 && (s > 0 || version == 2),
                .is_first = s == 0 && i == 0,
            };

            b->layer++;
            snprintf(b->prefix, sizeof b->prefix, "stack%u.block%u", s, i);
            x = version == 1 ? block_v1(b, &block, x) : block_v2(b, &block, x);
        }
    }
    return x;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Average pool of 8x8 or, on smaller maps, of all; a remainder is ignored. */
static void head(struct zoo_builder *b, const struct zoo_spec *spec, uint32_t x)
{
    struct shape map;

    b->layer++;
    snprintf(b->prefix, sizeof b->prefix, "head");
    if (spec->version == 2) {
        x = zoo_batchnorm(b, "bn", ZOO_NO_NUMBER, x);
        x = zoo_relu(b, "relu", ZOO_NO_NUMBER, x);
    }
    if (b->status < 0) {
        return;
    }
    map = b->graph->nodes[x].out;
    x = zoo_pool(b, OP_AVGPOOL, "pool", ZOO_NO_NUMBER, x, smaller(map.h, MAX_POOL),
                 smaller(map.w, MAX_POOL));
    x = zoo_flatten(b, "flatten", x);
    x = zoo_dense(b, "dense", ZOO_NO_NUMBER, x, spec->classes);
    zoo_loss(b, x);
}

/* Layers with weights in a block count once a block in each stack. */
static int check_depth(const struct zoo_spec *spec, uint32_t unit, struct gems_error *err)
{
    uint32_t below = spec->depth < 2 ? 0 : (spec->depth - 2) / unit;
    char right[48];

    if (spec->depth > MAX_DEPTH) {
        return gems_error_set(err, GEMS_E_INVALID, "model.depth: %u is above %d", spec->depth,
                              MAX_DEPTH);
    }
    if (below > 0 && spec->depth == below * unit + 2) {
        return 0;
    }
    if (below == 0) {
        snprintf(right, sizeof right, "at least %u", unit + 2);
    } else {
        snprintf(right, sizeof right, "%u or %u", below * unit + 2, (below + 1) * unit + 2);
    }
    return gems_error_set(err, GEMS_E_INVALID,
                          "model.depth: %u; resnet version %u has depth %un+2: %s", spec->depth,
                          spec->version, unit, right);
}

int zoo_resnet(struct zoo_builder *b, const struct zoo_spec *spec)
{
    uint32_t unit = spec->version == 1 ? 6 : 9;
    uint32_t x;
    int st;

    if (spec->version == 0) {
        return gems_error_set(b->err, GEMS_E_INVALID,
                              "model.version: is missing; resnet has versions 1 and 2");
    }
    if (spec->version != 1 && spec->version != 2) {
        return gems_error_set(b->err, GEMS_E_INVALID,
                              "model.version: %u; resnet has versions 1 and 2", spec->version);
    }
    st = check_depth(spec, unit, b->err);
    if (st < 0) {
        return st;
    }
    snprintf(b->graph->name, sizeof b->graph->name, "resnet-%u-v%u", spec->depth, spec->version);
    x = stem(b, spec);
    x = stacks(b, spec->version, (spec->depth - 2) / unit, x);
    head(b, spec, x);
    return b->status;
}
