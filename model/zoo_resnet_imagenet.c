/* ResNet for large images (ImageNet), depths 18, 34, 50, 101 and 152.
 *
 * Source: He et al., "Deep residual learning for image recognition" (2015),
 * table 1, with the stride of a bottleneck in its 3x3 convolution, as most
 * frameworks have it since ("version 1.5"). Convolutions have no bias.
 *
 * Stem: conv 7x7 of 64, stride 2, BN, ReLU, max pool 3x3, stride 2. Four stacks
 * of blocks; from the second on the first block halves the map. Plain block (18,
 * 34): two conv 3x3. Bottleneck (50 and more): conv 1x1, 3x3, 1x1 with four times
 * the channels out. Where the shape changes the shortcut is a conv 1x1 with BN.
 * Head: mean of the map, dense. Any size of image will do.
 *
 * Layers: stem, each block, head; one tensor crosses each boundary.
 */
#include "model/zoo_build.h"

#include <stdio.h>

#include "common/error.h"

enum { N_STACKS = 4, STEM_CHANNELS = 64, EXPANSION = 4 };

struct variant {
    uint32_t depth;
    bool is_bottleneck;
    uint32_t blocks[N_STACKS];
};

static const struct variant variants[] = {
    { 18, false, { 2, 2, 2, 2 } },  { 34, false, { 3, 4, 6, 3 } },  { 50, true, { 3, 4, 6, 3 } },
    { 101, true, { 3, 4, 23, 3 } }, { 152, true, { 3, 8, 36, 3 } },
};

enum { N_VARIANTS = sizeof variants / sizeof variants[0] };

struct block {
    uint32_t channels; /* of the inner convolutions */
    uint32_t stride;
    bool has_projection;
};

/* Convolution that keeps the map's size but for its stride, and BN. */
static uint32_t conv_bn(struct zoo_builder *b, const char *conv, const char *bn, int number,
                        uint32_t x, uint32_t k, uint32_t side, uint32_t stride)
{
    struct zoo_window window = { side, side, stride, side / 2, side / 2 };

    return zoo_batchnorm(b, bn, number, zoo_conv_window(b, conv, number, x, k, &window, false));
}

static uint32_t unit(struct zoo_builder *b, int number, uint32_t x, uint32_t k, uint32_t side,
                     uint32_t stride)
{
    x = conv_bn(b, "conv", "bn", number, x, k, side, stride);
    return zoo_relu(b, "relu", number, x);
}

static uint32_t stem(struct zoo_builder *b, const struct zoo_spec *spec)
{
    uint32_t x = zoo_input(b, spec);

    snprintf(b->prefix, sizeof b->prefix, "stem");
    x = conv_bn(b, "conv", "bn", ZOO_NO_NUMBER, x, STEM_CHANNELS, 7, 2);
    x = zoo_relu(b, "relu", ZOO_NO_NUMBER, x);
    return zoo_pool_window(b, OP_MAXPOOL, "pool", ZOO_NO_NUMBER, x,
                           &(struct zoo_window){ 3, 3, 2, 1, 1 });
}

static uint32_t residual_block(struct zoo_builder *b, const struct block *block,
                               bool is_bottleneck, uint32_t x)
{
    uint32_t channels_out = block->channels * (is_bottleneck ? EXPANSION : 1);
    uint32_t y;
    int last;

    if (is_bottleneck) {
        y = unit(b, 1, x, block->channels, 1, 1);
        y = unit(b, 2, y, block->channels, 3, block->stride);
        last = 3;
        y = conv_bn(b, "conv", "bn", last, y, channels_out, 1, 1);
    } else {
        y = unit(b, 1, x, block->channels, 3, block->stride);
        last = 2;
        y = conv_bn(b, "conv", "bn", last, y, channels_out, 3, 1);
    }
    if (block->has_projection) {
        x = conv_bn(b, "shortcut", "shortcut_bn", ZOO_NO_NUMBER, x, channels_out, 1,
                    block->stride);
    }
    return zoo_relu(b, "relu", last, zoo_add(b, "add", x, y));
}

static uint32_t stacks(struct zoo_builder *b, const struct variant *variant, uint32_t x)
{
    for (uint32_t s = 0; s < N_STACKS; s++) {
        for (uint32_t i = 0; i < variant->blocks[s]; i++) {
            struct block block = {
                .channels = STEM_CHANNELS << s,
                .stride = s > 0 && i == 0 ? 2 : 1,
                .has_projection = i == 0 && (s > 0 || variant->is_bottleneck),
            };

            b->layer++;
            snprintf(b->prefix, sizeof b->prefix, "stack%u.block%u", s, i);
            x = residual_block(b, &block, variant->is_bottleneck, x);
        }
    }
    return x;
}

int zoo_resnet_imagenet(struct zoo_builder *b, const struct zoo_spec *spec)
{
    const struct variant *variant = NULL;
    uint32_t x;

    for (int i = 0; i < N_VARIANTS; i++) {
        if (variants[i].depth == spec->depth) {
            variant = &variants[i];
        }
    }
    if (!variant) {
        return gems_error_set(b->err, GEMS_E_INVALID,
                              "model.depth: %u; resnet-imagenet has depths 18, 34, 50, 101 and 152",
                              spec->depth);
    }
    snprintf(b->graph->name, sizeof b->graph->name, "resnet-imagenet-%u", spec->depth);
    x = stacks(b, variant, stem(b, spec));
    b->layer++;
    snprintf(b->prefix, sizeof b->prefix, "head");
    x = zoo_pool_to(b, "pool", x, 1, 1);
    x = zoo_flatten(b, "flatten", x);
    zoo_loss(b, zoo_dense(b, "dense", ZOO_NO_NUMBER, x, spec->classes));
    return b->status;
}
