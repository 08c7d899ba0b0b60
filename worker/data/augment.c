#include "worker/data/augment.h"

#include <stddef.h>

#include "common/rng.h"

enum { DRAWS = 4, DRAW_FLIP = 0, DRAW_DOWN, DRAW_RIGHT, SHIFT_DIVISOR = 8 };

static int32_t draw_shift(uint64_t seed, uint64_t stream, uint64_t index, uint32_t side)
{
    int32_t most = (int32_t)(side / SHIFT_DIVISOR);

    return (int32_t)rng_below(seed, stream, index, 2 * (uint64_t)most + 1) - most;
}

struct augment augment_draw(uint64_t seed, uint64_t epoch, uint64_t sample, bool is_flip,
                            bool is_shift, uint32_t h, uint32_t w)
{
    uint64_t stream = rng_stream(RNG_AUGMENT, epoch), index = sample * DRAWS;
    struct augment augment = { 0 };

    if (is_flip) {
        augment.is_flipped = rng_below(seed, stream, index + DRAW_FLIP, 2) == 1;
    }
    if (is_shift) {
        augment.down = draw_shift(seed, stream, index + DRAW_DOWN, h);
        augment.right = draw_shift(seed, stream, index + DRAW_RIGHT, w);
    }
    return augment;
}

void augment_table_init(struct augment_table *table, double mean, double std)
{
    for (int i = 0; i < 256; i++) {
        table->f64[i] = (i / 255.0 - mean) / std;
        table->f32[i] = (float)table->f64[i];
    }
}

static uint32_t clamp(int64_t i, uint32_t side)
{
    return i < 0 ? 0 : i >= side ? side - 1 : (uint32_t)i;
}

/* n values from pixels that lie `step` apart: 1, -1 (mirrored) or 0 (border). */
static void map_run(const struct augment_table *table, const uint8_t *from, ptrdiff_t step,
                    size_t n, bool is_f64, void *ret_values, size_t at)
{
    if (is_f64) {
        double *values = (double *)ret_values + at;

        for (size_t i = 0; i < n; i++) {
            values[i] = table->f64[from[(ptrdiff_t)i * step]];
        }
    } else {
        float *values = (float *)ret_values + at;

        for (size_t i = 0; i < n; i++) {
            values[i] = table->f32[from[(ptrdiff_t)i * step]];
        }
    }
}

void augment_apply(const struct augment *augment, const struct augment_table *table,
                   const uint8_t *pixels, uint32_t c, uint32_t h, uint32_t w, bool is_f64,
                   void *ret_values)
{
    /* A row of the output: left border, pixels, right border. */
    uint32_t left = clamp(augment->right, w + 1), right = clamp(-(int64_t)augment->right, w + 1);
    uint32_t inner = w - left - right;
    ptrdiff_t step = augment->is_flipped ? -1 : 1;
    size_t at = 0;

    for (uint32_t k = 0; k < c; k++) {
        for (uint32_t y = 0; y < h; y++, at += w) {
            uint32_t from = clamp((int64_t)y - augment->down, h);
            const uint8_t *row = pixels + ((size_t)k * h + from) * w;
            const uint8_t *first = augment->is_flipped ? row + w - 1 : row;
            const uint8_t *last = first + step * (ptrdiff_t)(w - 1);

            map_run(table, first, 0, left, is_f64, ret_values, at);
            map_run(table, first + step * (ptrdiff_t)right, step, inner, is_f64, ret_values,
                    at + left);
            map_run(table, last, 0, right, is_f64, ret_values, at + left + inner);
        }
    }
}
