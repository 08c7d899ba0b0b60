/* A decoded image, and how it becomes a sample of the size a model wants.
 * Internal to worker/data. All functions may be called by several threads. */
#ifndef GEMS_WORKER_DATA_IMAGE_H
#define GEMS_WORKER_DATA_IMAGE_H

#include <stddef.h>
#include <stdint.h>

struct gems_error;

/* Pixels of a decoded image at most; larger ones are refused before decoding. */
#define IMAGE_MAX_PIXELS (UINT64_C(1) << 26)

struct image {
    uint32_t h, w, c; /* c: 1 or 3 */
    uint8_t *pixels;  /* [h][w][c]; owned */
};

void image_fini(struct image *image);

/* Takes memory for h x w x c pixels after a check of the size. */
int image_alloc(struct image *image, const char *path, uint64_t h, uint64_t w, uint32_t c,
                struct gems_error *err);

/* Decode a file's bytes. Path is for messages. On success *ret_image is the
 * caller's. wants_grey: the caller will turn colours into grey anyhow, so the
 * decoder may give c = 1. GEMS_E_DATA with path and the decoder's words. */
int image_decode_jpeg(const char *path, const uint8_t *bytes, size_t n, int wants_grey,
                      struct image *ret_image, struct gems_error *err);
int image_decode_png(const char *path, const uint8_t *bytes, size_t n, struct image *ret_image,
                     struct gems_error *err);

/* Writes the image as [channels][h][w]. Another size is reached by scaling
 * until both sides cover h x w (bilinear; over all source pixels under an
 * output pixel where it shrinks) and cutting out the centre. Colours become
 * grey by 0.299 R + 0.587 G + 0.114 B; grey is repeated for colours. */
int image_fit(const struct image *image, uint32_t channels, uint32_t h, uint32_t w,
              uint8_t *ret_pixels, struct gems_error *err);

#endif
