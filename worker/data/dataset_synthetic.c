/* Made-up images that can be learned: each class has a smooth pattern of its
 * own, a coarse grid of random values spread over the image, and every sample
 * adds noise. A function of (seed, sample) alone; the samples for evaluation
 * have the patterns of those for training, but other noise. */
#include "worker/data/format.h"

#include "common/error.h"
#include "common/rng.h"

enum {
    GRID = 4, /* points of the coarse grid a side */
    MEAN = 128,
    PATTERN = 48, /* pattern spans MEAN - PATTERN to MEAN + PATTERN */
    NOISE = 64    /* noise of -NOISE/2 to NOISE/2 */
};

/* Keys of the random streams of one seed. */
enum { KEY_PATTERN = 1, KEY_LABEL, KEY_NOISE, KEY_EVAL = 16 };

static uint64_t stream(const struct dataset *set, uint64_t key, uint64_t number)
{
    uint64_t kind = key + (set->spec.is_eval && key != KEY_PATTERN ? KEY_EVAL : 0);

    return rng_stream(RNG_SYNTHETIC, kind << 48 ^ number);
}

static int open_synthetic(struct dataset *set, struct gems_error *err)
{
    if (set->spec.samples == 0) {
        return gems_error_set(err, GEMS_E_DATA,
                              "data.samples: a synthetic data set needs at "
                              "least 1 sample");
    }
    set->samples = set->spec.samples;
    return 0;
}

static void close_synthetic(struct dataset *set)
{
    (void)set;
}

static uint32_t label_synthetic(const struct dataset *set, uint64_t i)
{
    return (uint32_t)rng_below(set->spec.seed, stream(set, KEY_LABEL, 0), i, set->spec.classes);
}

/* A position on the grid: point to the left, and weight of the next in 256ths. */
struct place {
    uint32_t left;
    int weight;
};

/* Pixels a grid step apart, in 2^-40: multiplied and not divided a pixel. */
static uint64_t grid_step(uint32_t side)
{
    return side > 1 ? ((uint64_t)(GRID - 1) << 40) / (side - 1) : 0;
}

static struct place grid_place(uint32_t i, uint64_t step)
{
    uint32_t place = (uint32_t)(i * step >> 32);
    uint32_t left = place >> 8 < GRID - 2 ? place >> 8 : GRID - 2;

    return (struct place){ left, (int)(place - (left << 8)) };
}

static void make_grid(const struct dataset *set, uint32_t label, uint32_t channel,
                      int ret_grid[GRID][GRID])
{
    uint64_t pattern = stream(set, KEY_PATTERN, label);

    for (uint32_t y = 0; y < GRID; y++) {
        for (uint32_t x = 0; x < GRID; x++) {
            uint64_t index = ((uint64_t)channel * GRID + y) * GRID + x;

            ret_grid[y][x] =
                MEAN - PATTERN + (int)rng_below(set->spec.seed, pattern, index, 2 * PATTERN + 1);
        }
    }
}

/* One row: pattern between two rows of the grid, with eight pixels' noise from
 * each 64 random bits. */
static void make_row(const struct dataset *set, const int line[GRID], uint64_t noise,
                     uint64_t index, uint8_t *ret_row)
{
    uint32_t w = set->spec.width;
    uint64_t bits = 0, step = grid_step(w);

    for (uint32_t x = 0; x < w; x++) {
        struct place place = grid_place(x, step);
        int value = line[place.left] * (256 - place.weight) + line[place.left + 1] * place.weight;

        if (x % 8 == 0) {
            bits = rng_u64(set->spec.seed, noise, index + x / 8);
        }
        value = (value >> 8) + (int)(bits >> (x % 8 * 8) & 0xff) * NOISE / 256 - NOISE / 2;
        ret_row[x] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

static int read_synthetic(struct dataset *set, uint64_t i, uint8_t *ret_pixels,
                          struct gems_error *err)
{
    uint32_t label = label_synthetic(set, i), h = set->spec.height, w = set->spec.width;
    uint64_t noise = stream(set, KEY_NOISE, i), row_draws = ((uint64_t)w + 7) / 8;

    (void)err;
    for (uint32_t c = 0; c < set->spec.channels; c++) {
        int grid[GRID][GRID];

        make_grid(set, label, c, grid);
        for (uint32_t y = 0; y < h; y++) {
            uint64_t row = (uint64_t)c * h + y;
            struct place top = grid_place(y, grid_step(h));
            int line[GRID];

            for (int x = 0; x < GRID; x++) {
                line[x] =
                    (grid[top.left][x] * (256 - top.weight) + grid[top.left + 1][x] * top.weight) >>
                    8;
            }
            make_row(set, line, noise, row * row_draws, ret_pixels + row * w);
        }
    }
    return 0;
}

const struct format_ops format_synthetic = {
    .name = "synthetic",
    .open = open_synthetic,
    .close = close_synthetic,
    .label = label_synthetic,
    .read = read_synthetic,
};
