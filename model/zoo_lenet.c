/* LeNet-5 (LeCun et al., "Gradient-based learning applied to document
 * recognition", 1998) with ReLU and max pools: conv 5x5 of 6, pool, conv 5x5
 * of 16, pool, dense 120, 84, classes.
 *
 * The original takes 32x32 without padding. A side below 32 is padded by 2 on
 * both ends (28 becomes 32); a longer side is taken as it is and makes the
 * first dense layer larger. Layers of the cut: five, one a layer with
 * weights; pools belong to the convolution before them.
 */
#include "model/zoo_build.h"

#include <stdio.h>

#include "common/error.h"

enum { NATIVE_SIDE = 32, MIN_SIDE = 12, N_DENSE = 2 };

static uint32_t padding(uint32_t side)
{
    return side < NATIVE_SIDE ? 2 : 0;
}

static uint32_t conv_pool(struct zoo_builder *b, int number, uint32_t x, uint32_t k, uint32_t pad_h,
                          uint32_t pad_w)
{
    x = zoo_conv(b, "conv", number, x, k, 5, 1, pad_h, pad_w);
    x = zoo_relu(b, "relu", number, x);
    x = zoo_pool(b, OP_MAXPOOL, "pool", number, x, 2, 2);
    b->layer++;
    return x;
}

int zoo_lenet(struct zoo_builder *b, const struct zoo_spec *spec)
{
    static const uint32_t units[N_DENSE] = { 120, 84 };
    uint32_t x;

    if (spec->height < MIN_SIDE || spec->width < MIN_SIDE) {
        return gems_error_set(b->err, GEMS_E_INVALID,
                              "data.size: %ux%u; lenet needs at least %dx%d", spec->height,
                              spec->width, MIN_SIDE, MIN_SIDE);
    }
    snprintf(b->graph->name, sizeof b->graph->name, "lenet-5");
    x = conv_pool(b, 1, zoo_input(b, spec), 6, padding(spec->height), padding(spec->width));
    x = conv_pool(b, 2, x, 16, 0, 0);
    x = zoo_flatten(b, "flatten", x);
    for (int i = 0; i < N_DENSE; i++) {
        x = zoo_dense(b, "dense", i + 1, x, units[i]);
        x = zoo_relu(b, "relu", i + 3, x);
        b->layer++;
    }
    zoo_loss(b, zoo_dense(b, "dense", N_DENSE + 1, x, spec->classes));
    return b->status;
}
