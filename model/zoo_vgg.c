/* VGG with 11, 13, 16 or 19 layers of weights, without batch-norm.
 *
 * Source: Simonyan and Zisserman, "Very deep convolutional networks for
 * large-scale image recognition" (2014), table 1, columns A, B, D and E. Five
 * stacks of conv 3x3 and ReLU, a max pool 2x2 behind each; then dense 4096, 4096
 * and classes, with ReLU and a dropout of one half behind the first two.
 *
 * The paper takes 224x224, where the last map is 7x7. A longer side is averaged
 * to 7, so that the dense layers, which hold most of the weights, do not grow; a
 * shorter one is taken as it is.
 *
 * Layers: one a layer with weights; a pool belongs to the convolution before it.
 * One tensor crosses each boundary.
 */
#include "model/zoo_build.h"

#include <stdio.h>

#include "common/error.h"

enum { N_STACKS = 5, MIN_SIDE = 1 << N_STACKS, MAX_MAP = 7, N_HIDDEN = 2, HIDDEN = 4096 };

static const double dropout_rate = 0.5;

struct variant {
    uint32_t depth;
    uint32_t convs[N_STACKS];
};

static const struct variant variants[] = {
    { 11, { 1, 1, 2, 2, 2 } },
    { 13, { 2, 2, 2, 2, 2 } },
    { 16, { 2, 2, 3, 3, 3 } },
    { 19, { 2, 2, 4, 4, 4 } },
};

enum { N_VARIANTS = sizeof variants / sizeof variants[0] };

static uint32_t stacks(struct zoo_builder *b, const struct variant *variant, uint32_t x)
{
    static const uint32_t channels[N_STACKS] = { 64, 128, 256, 512, 512 };

    for (uint32_t s = 0; s < N_STACKS; s++) {
        for (uint32_t i = 0; i < variant->convs[s]; i++) {
            snprintf(b->prefix, sizeof b->prefix, "stack%u", s);
            x = zoo_conv(b, "conv", (int)i, x, channels[s], 3, 1, 1, 1);
            x = zoo_relu(b, "relu", (int)i, x);
            if (i + 1 == variant->convs[s]) {
                x = zoo_pool(b, OP_MAXPOOL, "pool", ZOO_NO_NUMBER, x, 2, 2);
            }
            b->layer++;
        }
    }
    return x;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void head(struct zoo_builder *b, const struct zoo_spec *spec, uint32_t x)
{
    struct shape map;

    if (b->status < 0) {
        return;
    }
    map = b->graph->nodes[x].out;
    snprintf(b->prefix, sizeof b->prefix, "head");
    if (map.h > MAX_MAP || map.w > MAX_MAP) {
        x = zoo_pool_to(b, "pool", x, smaller(map.h, MAX_MAP), smaller(map.w, MAX_MAP));
    }
    x = zoo_flatten(b, "flatten", x);
    for (int i = 0; i < N_HIDDEN; i++) {
        x = zoo_dense(b, "dense", i, x, HIDDEN);
        x = zoo_relu(b, "relu", i, x);
        x = zoo_dropout(b, "dropout", i, x, dropout_rate);
        b->layer++;
    }
    zoo_loss(b, zoo_dense(b, "dense", N_HIDDEN, x, spec->classes));
}

int zoo_vgg(struct zoo_builder *b, const struct zoo_spec *spec)
{
    const struct variant *variant = NULL;

    for (int i = 0; i < N_VARIANTS; i++) {
        if (variants[i].depth == spec->depth) {
            variant = &variants[i];
        }
    }
    if (!variant) {
        return gems_error_set(b->err, GEMS_E_INVALID,
                              "model.depth: %u; vgg has depths 11, 13, 16 and 19", spec->depth);
    }
    if (spec->height < MIN_SIDE || spec->width < MIN_SIDE) {
        return gems_error_set(b->err, GEMS_E_INVALID,
                              "data.size: %ux%u; vgg needs at least %dx%d", spec->height,
                              spec->width, MIN_SIDE, MIN_SIDE);
    }
    snprintf(b->graph->name, sizeof b->graph->name, "vgg-%u", spec->depth);
    head(b, spec, stacks(b, variant, zoo_input(b, spec)));
    return b->status;
}
