/* Random changes of a training image, keyed by (seed, epoch, sample), and the
 * way from bytes to numbers. Internal to worker/data. Thread-safe. */
#ifndef GEMS_WORKER_DATA_AUGMENT_H
#define GEMS_WORKER_DATA_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

/* What happens to one image: mirrored left to right, then moved; what comes
 * in at a border repeats the border's pixels. */
struct augment {
    bool is_flipped;
    int32_t down, right;
};

/* A shift is up to an eighth of each side in both directions. */
struct augment augment_draw(uint64_t seed, uint64_t epoch, uint64_t sample, bool is_flip,
                            bool is_shift, uint32_t h, uint32_t w);

/* Value of every byte: (byte / 255 - mean) / std. */
struct augment_table {
    double f64[256];
    float f32[256];
};
void augment_table_init(struct augment_table *table, double mean, double std);

/* pixels [c][h][w] to ret_values [c][h][w], float or double. */
void augment_apply(const struct augment *augment, const struct augment_table *table,
                   const uint8_t *pixels, uint32_t c, uint32_t h, uint32_t w, bool is_f64,
                   void *ret_values);

#endif
