/* Convolutions of 1x1, stride 1, in blocks of 16 channels: kernels of our own,
 * for AVX-512. The library's fetch nothing ahead: on large maps, where the
 * planes of a pixel's blocks are megabytes apart, they wait for memory two
 * thirds of their time, and they take the sum of the bias in a pass of its own.
 *
 * A tile is some pixels times up to four blocks of outputs, all in registers; a
 * chunk of pixels goes through all blocks of outputs before the next one.
 *
 * Order of summation: forward and backward_input sum over input channels, one
 * fused operation each, from the bias on, and then add the residual, the bits
 * of an addition apart. Gradients of weights sum the pixels of a chunk, then
 * the chunks; with threads, the parts of all threads in their order. Tiles do
 * not matter, nor does what else is in the batch. */
#include "worker/backend/cpu/cpu.h"

#include <omp.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>

#pragma GCC optimize("O3")

#define AVX512 __attribute__((target("avx512f")))
#define UNROLL _Pragma("GCC unroll 32")

enum {
    LANES = 16,
    SQUARE = LANES * LANES, /* weights of a pair of blocks */
    CHUNK = 168,            /* pixels; a multiple of the tiles' widths */
    WEIGHT_CHUNK = 128,     /* pixels whose products stay in registers */
    AHEAD_MIN = 12,         /* pixels from the use of x back to its fetch, */
    AHEAD_MAX = 84,         /* less with more blocks: */
    AHEAD_LINES = 672,      /* cache lines under way */
    RESIDUAL_AHEAD = 24,
    STREAM_BYTES = 8 << 20, /* outputs that go past the caches */
    MAX_BLOCKS = 4,
    MAX_TILE = 24,
};

/* One sample. */
struct sample {
    const float *x, *w, *bias, *residual;
    float *y;
    uint64_t plane; /* floats of a block */
    uint32_t in_blocks;
    uint32_t ahead; /* floats from x to what is fetched, 0: nothing */
    bool is_streamed;
};

typedef void (*tile_fn)(const struct sample *s, uint64_t at, uint32_t block, bool is_first);

#define INLINE AVX512 static inline __attribute__((always_inline))

/* Fetches n pixels. */
INLINE void fetch(const float *from, const int n)
{
    UNROLL for (int k = 0; k < n; k++)
    {
        _mm_prefetch((const char *)(from + k * LANES), _MM_HINT_T0);
    }
}

/* Adds what a block of inputs gives to the sums. */
INLINE void multiply(const float *x, const float *w, uint64_t w_row, __m512 *sum,
                     const int n_blocks, const int n_pixels)
{
    for (int c = 0; c < LANES; c++) {
        __m512 row[MAX_BLOCKS];

        UNROLL for (int b = 0; b < n_blocks; b++)
        {
            row[b] = _mm512_load_ps(w + (uint64_t)b * w_row + c * LANES);
        }
        UNROLL for (int k = 0; k < n_pixels; k++)
        {
            __m512 value = _mm512_set1_ps(x[k * LANES + c]);

            UNROLL for (int b = 0; b < n_blocks; b++)
            {
                sum[b * n_pixels + k] = _mm512_fmadd_ps(value, row[b], sum[b * n_pixels + k]);
            }
        }
    }
}

/* Puts the sums of one block where they belong. */
INLINE void finish(const __m512 *sum, const float *residual, float *y, bool is_streamed,
                   const int n_pixels)
{
    UNROLL for (int k = 0; k < n_pixels; k++)
    {
        __m512 value = sum[k];

        if (residual) {
            value = _mm512_add_ps(value, _mm512_load_ps(residual + k * LANES));
        }
        if (is_streamed) {
            _mm512_stream_ps(y + k * LANES, value);
        } else {
            _mm512_store_ps(y + k * LANES, value);
        }
    }
}

/* Outputs of n_pixels from `at` (in floats), n_blocks from `block`. */
INLINE void tile(const struct sample *s, uint64_t at, uint32_t block, bool is_first,
                 const int n_blocks, const int n_pixels)
{
    uint64_t w_row = (uint64_t)s->in_blocks * SQUARE, y_at = block * s->plane + at;
    const float *x = s->x + at, *w = s->w + block * w_row;
    __m512 sum[MAX_TILE];

    UNROLL for (int b = 0; b < n_blocks; b++)
    {
        __m512 first = _mm512_setzero_ps();

        if (s->bias) {
            first = _mm512_load_ps(s->bias + (block + (uint32_t)b) * LANES);
        }
        if (s->residual) {
            fetch(s->residual + y_at + (uint64_t)b * s->plane + RESIDUAL_AHEAD * LANES, n_pixels);
        }
        UNROLL for (int k = 0; k < n_pixels; k++)
        {
            sum[b * n_pixels + k] = first;
        }
    }
    for (uint32_t i = 0; i < s->in_blocks; i++, x += s->plane, w += SQUARE) {
        if (is_first && s->ahead) {
            fetch(x + s->ahead, n_pixels);
        }
        multiply(x, w, w_row, sum, n_blocks, n_pixels);
    }
    UNROLL for (int b = 0; b < n_blocks; b++)
    {
        uint64_t y_block = y_at + (uint64_t)b * s->plane;

        finish(sum + b * n_pixels, s->residual ? s->residual + y_block : NULL, s->y + y_block,
               s->is_streamed, n_pixels);
    }
}

#define TILE(n_blocks, n_pixels)                                                                   \
    AVX512 static void tile_##n_blocks##_##n_pixels(const struct sample *s, uint64_t at,           \
                                                    uint32_t block, bool is_first)                 \
    {                                                                                              \
        tile(s, at, block, is_first, n_blocks, n_pixels);                                          \
    }

TILE(4, 6)
TILE(4, 4)
TILE(4, 1)
TILE(2, 12)
TILE(2, 8)
TILE(2, 4)
TILE(2, 1)
TILE(1, 24)
TILE(1, 16)
TILE(1, 8)
TILE(1, 4)
TILE(1, 1)

/* Widest first; the last one is a pixel wide. */
struct width {
    uint32_t pixels;
    tile_fn run;
};
static const struct width four[] = { { 6, tile_4_6 }, { 4, tile_4_4 }, { 1, tile_4_1 } };
static const struct width two[] = {
    { 12, tile_2_12 }, { 8, tile_2_8 }, { 4, tile_2_4 }, { 1, tile_2_1 }
};
static const struct width one[] = {
    { 24, tile_1_24 }, { 16, tile_1_16 }, { 8, tile_1_8 }, { 4, tile_1_4 }, { 1, tile_1_1 }
};

/* Pixels [first, end) of a sample, all blocks of outputs. */
static void run_chunk(const struct sample *s, uint32_t out_blocks, uint64_t first, uint64_t end)
{
    for (uint32_t block = 0, n; block < out_blocks; block += n) {
        uint32_t left = out_blocks - block;
        const struct width *width = left >= 4 ? four : left >= 2 ? two : one;
        uint64_t at = first;

        n = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        for (; at < end; width++) {
            for (; at + width->pixels <= end; at += width->pixels) {
                width->run(s, at * LANES, block, block == 0);
            }
        }
    }
}

/* Everything of a call. */
struct apply {
    const struct cpu_point *point;
    struct sample whole;
    uint32_t n_chunks; /* of a sample */
};

static uint32_t chunks_of(const struct cpu_point *p, uint32_t pixels)
{
    return (uint32_t)((p->pixels + pixels - 1) / pixels);
}

static void apply_unit(const struct apply *a, uint64_t unit)
{
    const struct cpu_point *p = a->point;
    uint64_t n = unit / a->n_chunks, first = unit % a->n_chunks * CHUNK, end = first + CHUNK;
    uint64_t y_at = n * p->out_blocks * a->whole.plane;
    struct sample s = a->whole;

    s.x += n * p->in_blocks * s.plane;
    s.y += y_at;
    s.residual = s.residual ? s.residual + y_at : NULL;
    run_chunk(&s, p->out_blocks, first, end < p->pixels ? end : p->pixels);
}

static uint32_t ahead_of(const struct cpu_point *p)
{
    uint32_t pixels = AHEAD_LINES / p->in_blocks;

    if (p->pixels <= CHUNK) {
        return 0;
    }
    pixels = pixels > AHEAD_MAX ? AHEAD_MAX : pixels < AHEAD_MIN ? AHEAD_MIN : pixels;
    return pixels * LANES;
}

static void point_apply(const struct be_device *dev, const struct cpu_point *p, const float *x,
                        const float *w, const float *bias, const float *residual, float *y)
{
    struct apply a = { .point = p, .n_chunks = chunks_of(p, CHUNK) };
    uint64_t units = (uint64_t)p->batch * a.n_chunks;
    uint64_t plane = p->pixels * LANES;

    a.whole = (struct sample){ .x = x,
                               .w = w,
                               .bias = bias,
                               .residual = residual,
                               .y = y,
                               .plane = plane,
                               .in_blocks = p->in_blocks,
                               .ahead = ahead_of(p),
                               .is_streamed =
                                   p->batch * p->out_blocks * plane * sizeof *y >= STREAM_BYTES };
    if (dev->threads == 1) {
        for (uint64_t u = 0; u < units; u++) {
            apply_unit(&a, u);
        }
        _mm_sfence();
        return;
    }
    cpu_enter(dev);
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (uint64_t u = 0; u < units; u++) {
            apply_unit(&a, u);
        }
        /* Streamed values are seen by other threads only behind this. */
        _mm_sfence();
    }
}

/* Gradients of a pair of blocks from n pixels: products are summed in registers
 * and then added to dw. The sum of dy goes to dbias unless that is NULL. What
 * lies a chunk behind is fetched. */
INLINE void pair(const float *x, const float *dy, uint64_t n, float *dw, float *dbias,
                 const bool has_bias)
{
    __m512 sum[LANES], bias = _mm512_setzero_ps();

    UNROLL for (int c = 0; c < LANES; c++)
    {
        sum[c] = _mm512_setzero_ps();
    }
    for (uint64_t k = 0; k < n; k++, x += LANES, dy += LANES) {
        __m512 d = _mm512_load_ps(dy);

        _mm_prefetch((const char *)(x + WEIGHT_CHUNK * LANES), _MM_HINT_T1);
        _mm_prefetch((const char *)(dy + WEIGHT_CHUNK * LANES), _MM_HINT_T1);
        if (has_bias) {
            bias = _mm512_add_ps(bias, d);
        }
        UNROLL for (int c = 0; c < LANES; c++)
        {
            sum[c] = _mm512_fmadd_ps(_mm512_set1_ps(x[c]), d, sum[c]);
        }
    }
    UNROLL for (int c = 0; c < LANES; c++)
    {
        float *row = dw + c * LANES;

        _mm512_store_ps(row, _mm512_add_ps(_mm512_load_ps(row), sum[c]));
    }
    if (has_bias) {
        _mm512_store_ps(dbias, _mm512_add_ps(_mm512_load_ps(dbias), bias));
    }
}

AVX512 static void pair_alone(const float *x, const float *dy, uint64_t n, float *dw)
{
    pair(x, dy, n, dw, NULL, false);
}

AVX512 static void pair_and_bias(const float *x, const float *dy, uint64_t n, float *dw,
                                 float *dbias)
{
    pair(x, dy, n, dw, dbias, true);
}

struct weights {
    const struct cpu_point *point;
    const float *x, *dy;
    float *parts;      /* of threads behind the first */
    uint64_t part;     /* floats of one: weights, bias */
    float *dw, *dbias; /* of the first, and of all in the end */
    uint32_t n_chunks;
};

static void weights_unit(const struct weights *a, uint64_t unit, float *dw, float *dbias)
{
    const struct cpu_point *p = a->point;
    uint64_t n = unit / a->n_chunks, first = unit % a->n_chunks * WEIGHT_CHUNK;
    uint64_t left = p->pixels - first, n_pixels = left < WEIGHT_CHUNK ? left : WEIGHT_CHUNK;
    uint64_t plane = p->pixels * LANES;
    const float *x = a->x + n * p->in_blocks * plane + first * LANES;

    for (uint32_t i = 0; i < p->in_blocks; i++, x += plane) {
        const float *dy = a->dy + n * p->out_blocks * plane + first * LANES;

        for (uint32_t o = 0; o < p->out_blocks; o++, dy += plane) {
            float *square = dw + ((uint64_t)o * p->in_blocks + i) * SQUARE;

            if (i == 0 && dbias) {
                pair_and_bias(x, dy, n_pixels, square, dbias + o * LANES);
            } else {
                pair_alone(x, dy, n_pixels, square);
            }
        }
    }
}

/* Units [first, end) into one part. */
static void weights_part(const struct weights *a, uint64_t first, uint64_t end, float *dw,
                         float *dbias)
{
    const struct cpu_point *p = a->point;

    memset(dw, 0, (uint64_t)p->in_blocks * p->out_blocks * SQUARE * sizeof *dw);
    if (dbias) {
        memset(dbias, 0, p->out_blocks * LANES * sizeof *dbias);
    }
    for (uint64_t u = first; u < end; u++) {
        weights_unit(a, u, dw, dbias);
    }
}

static uint64_t part_floats(const struct cpu_point *p)
{
    return (uint64_t)p->in_blocks * p->out_blocks * SQUARE + p->out_blocks * LANES;
}

static uint64_t point_parts_bytes(const struct be_device *dev, const struct cpu_point *p)
{
    return (dev->threads - 1) * part_floats(p) * sizeof(float);
}

static void point_weights(const struct be_device *dev, const struct cpu_point *p, const float *x,
                          const float *dy, float *parts, float *dw, float *dbias)
{
    struct weights a = { .point = p,
                         .x = x,
                         .dy = dy,
                         .parts = parts,
                         .part = part_floats(p),
                         .dw = dw,
                         .dbias = dbias,
                         .n_chunks = chunks_of(p, WEIGHT_CHUNK) };
    uint64_t units = (uint64_t)p->batch * a.n_chunks, n_weights = a.part - p->out_blocks * LANES;

    if (dev->threads == 1) {
        weights_part(&a, 0, units, dw, dbias);
        return;
    }
    cpu_enter(dev);
#pragma omp parallel for schedule(static)
    for (uint32_t t = 0; t < dev->threads; t++) {
        float *own = t == 0 ? dw : parts + (t - 1) * a.part;
        float *own_bias = t == 0 ? dbias : own + n_weights;

        weights_part(&a, units * t / dev->threads, units * (t + 1) / dev->threads, own,
                     dbias ? own_bias : NULL);
    }
    for (uint32_t t = 1; t < dev->threads; t++) {
        const float *own = parts + (t - 1) * a.part;

        cpu_loop_add(dev, dw, own, dw, n_weights);
        if (dbias) {
            cpu_loop_add(dev, dbias, own + n_weights, dbias, p->out_blocks * LANES);
        }
    }
}

static const struct cpu_point_kernels avx512 = { .apply = point_apply,
                                                 .parts_bytes = point_parts_bytes,
                                                 .weights = point_weights };
#endif

const struct cpu_point_kernels *cpu_point_kernels(const struct be_device *dev)
{
#ifdef __x86_64__
    return dev->blocked == dnnl_nChw16c ? &avx512 : NULL;
#else
    (void)dev;
    return NULL;
#endif
}
