#include "worker/data/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

void image_fini(struct image *image)
{
    free(image->pixels);
    *image = (struct image){ 0 };
}

int image_alloc(struct image *image, const char *path, uint64_t h, uint64_t w, uint32_t c,
                struct gems_error *err)
{
    uint8_t *pixels;

    if (h == 0 || w == 0 || h > IMAGE_MAX_PIXELS || w > IMAGE_MAX_PIXELS ||
        h * w > IMAGE_MAX_PIXELS) {
        return gems_error_set(
            err, GEMS_E_DATA, "%s: image of %llux%llu pixels; 1 to %llu pixels are supported", path,
            (unsigned long long)w, (unsigned long long)h, (unsigned long long)IMAGE_MAX_PIXELS);
    }
    pixels = malloc(h * w * c);
    if (!pixels) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory for an image of %llux%llu pixels",
                              path, (unsigned long long)w, (unsigned long long)h);
    }
    *image = (struct image){ .h = (uint32_t)h, .w = (uint32_t)w, .c = c, .pixels = pixels };
    return 0;
}

/* One output coordinate: the source pixels under it and their weights. */
struct tap {
    uint32_t first, n;
    const float *weights;
};

/* One axis: taps for outputs [0, n) of a source side scaled to `scaled`, of
 * which the centre is kept. */
struct axis {
    struct tap *taps;
    float *weights;
};

static void axis_fini(struct axis *axis)
{
    free(axis->taps);
    free(axis->weights);
}

static double triangle(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static void make_tap(struct tap *tap, float *weights, double centre, double radius, uint32_t side)
{
    int64_t first = (int64_t)floor(centre - radius), last = (int64_t)ceil(centre + radius);
    double sum = 0.0;

    first = first < 0 ? 0 : first;
    last = last > (int64_t)side ? (int64_t)side : last;
    for (int64_t i = first; i < last; i++) {
        sum += triangle(((double)i + 0.5 - centre) / radius);
    }
    for (int64_t i = first; i < last; i++) {
        weights[i - first] = (float)(triangle(((double)i + 0.5 - centre) / radius) / sum);
    }
    *tap = (struct tap){ (uint32_t)first, (uint32_t)(last - first), weights };
}

static int axis_init(struct axis *axis, uint32_t side, double scale, uint32_t n,
                     struct gems_error *err)
{
    double radius = scale < 1.0 ? 1.0 / scale : 1.0;
    double margin = ((double)side * scale - (double)n) / 2.0;
    size_t most = (size_t)(2.0 * radius) + 3;

    axis->taps = malloc(n * sizeof *axis->taps);
    axis->weights = malloc(n * most * sizeof *axis->weights);
    if (!axis->taps || !axis->weights) {
        return gems_error_set(err, GEMS_E_NOMEM, "data set: no memory to resize an image");
    }
    for (uint32_t i = 0; i < n; i++) {
        double centre = ((double)i + 0.5 + margin) / scale;

        make_tap(&axis->taps[i], axis->weights + i * most, centre, radius, side);
    }
    return 0;
}

/* Source row y at the output's columns: [w][c]. */
static void scale_row(const struct image *image, uint32_t y, const struct axis *x_axis, uint32_t w,
                      float *ret_row)
{
    const uint8_t *row = image->pixels + (size_t)y * image->w * image->c;

    for (uint32_t x = 0; x < w; x++) {
        const struct tap *tap = &x_axis->taps[x];
        const uint8_t *pixel = row + (size_t)tap->first * image->c;
        float sums[3] = { 0.0f };

        if (image->c == 1) {
            for (uint32_t i = 0; i < tap->n; i++) {
                sums[0] += tap->weights[i] * (float)pixel[i];
            }
            ret_row[x] = sums[0];
            continue;
        }
        for (uint32_t i = 0; i < tap->n; i++, pixel += 3) {
            for (int k = 0; k < 3; k++) {
                sums[k] += tap->weights[i] * (float)pixel[k];
            }
        }
        memcpy(ret_row + (size_t)x * 3, sums, sizeof sums);
    }
}

static uint8_t to_byte(float value)
{
    return (uint8_t)(value <= 0.0f ? 0.0f : value >= 255.0f ? 255.0f : value + 0.5f);
}

/* Source rows are scaled once each, into a ring of as many as one output row
 * can need; rows are asked for in ascending order. Behind the ring: one row of
 * sums. */
static void scale_rows(const struct image *image, const struct axis *y_axis,
                       const struct axis *x_axis, float *ring, uint32_t n_ring,
                       struct image *ret_image)
{
    size_t n = (size_t)ret_image->w * image->c;
    float *sums = ring + n_ring * n;
    uint32_t next = 0;

    for (uint32_t y = 0; y < ret_image->h; y++) {
        const struct tap *tap = &y_axis->taps[y];
        uint8_t *out = ret_image->pixels + y * n;

        next = next < tap->first ? tap->first : next;
        for (; next < tap->first + tap->n; next++) {
            scale_row(image, next, x_axis, ret_image->w, ring + next % n_ring * n);
        }
        memset(sums, 0, n * sizeof *sums);
        for (uint32_t i = 0; i < tap->n; i++) {
            const float *row = ring + (tap->first + i) % n_ring * n;

            for (size_t x = 0; x < n; x++) {
                sums[x] += tap->weights[i] * row[x];
            }
        }
        for (size_t x = 0; x < n; x++) {
            out[x] = to_byte(sums[x]);
        }
    }
}

static uint32_t most_taps(const struct axis *axis, uint32_t n)
{
    uint32_t most = 1;

    for (uint32_t i = 0; i < n; i++) {
        most = axis->taps[i].n > most ? axis->taps[i].n : most;
    }
    return most;
}

/* ret_image has h, w, c and memory. */
static int scale(const struct image *image, struct image *ret_image, struct gems_error *err)
{
    double scale_y = (double)ret_image->h / image->h, scale_x = (double)ret_image->w / image->w;
    double cover = scale_y > scale_x ? scale_y : scale_x;
    struct axis y_axis = { 0 }, x_axis = { 0 };
    float *ring = NULL;
    uint32_t n_ring;
    int st = axis_init(&y_axis, image->h, cover, ret_image->h, err);

    if (st == 0) {
        st = axis_init(&x_axis, image->w, cover, ret_image->w, err);
    }
    if (st < 0) {
        goto out;
    }
    n_ring = most_taps(&y_axis, ret_image->h);
    ring = malloc((n_ring + 1) * (size_t)ret_image->w * image->c * sizeof *ring);
    if (!ring) {
        st = gems_error_set(err, GEMS_E_NOMEM, "data set: no memory to resize an image");
        goto out;
    }
    scale_rows(image, &y_axis, &x_axis, ring, n_ring, ret_image);
out:
    free(ring);
    axis_fini(&y_axis);
    axis_fini(&x_axis);
    return st;
}

/* [h][w][c] to [channels][h][w]. */
static void to_planes(const struct image *image, uint32_t channels, uint8_t *ret_pixels)
{
    const uint8_t *in = image->pixels;
    size_t n = (size_t)image->h * image->w;

    if (image->c == 1) {
        for (uint32_t c = 0; c < channels; c++) {
            memcpy(ret_pixels + c * n, in, n);
        }
    } else if (channels == 1) {
        for (size_t i = 0; i < n; i++, in += 3) {
            /* 16 bits of fraction, rounded; the three weights sum up to one. */
            ret_pixels[i] =
                (uint8_t)((in[0] * 19595u + in[1] * 38470u + in[2] * 7471u + 32768u) >> 16);
        }
    } else {
        uint8_t *r = ret_pixels, *g = r + n, *b = g + n;

        for (size_t i = 0; i < n; i++, in += 3) {
            r[i] = in[0];
            g[i] = in[1];
            b[i] = in[2];
        }
    }
}

int image_fit(const struct image *image, uint32_t channels, uint32_t h, uint32_t w,
              uint8_t *ret_pixels, struct gems_error *err)
{
    struct image scaled;
    int st;

    if (image->h == h && image->w == w) {
        to_planes(image, channels, ret_pixels);
        return 0;
    }
    st = image_alloc(&scaled, "data.size", h, w, image->c, err);
    if (st < 0) {
        return st;
    }
    st = scale(image, &scaled, err);
    if (st == 0) {
        to_planes(&scaled, channels, ret_pixels);
    }
    image_fini(&scaled);
    return st;
}
