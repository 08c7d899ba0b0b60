/* Data sets made at test time: image and idx files. */
#ifndef GEMS_TESTS_UNIT_DATA_FILES_H
#define GEMS_TESTS_UNIT_DATA_FILES_H

#include <stddef.h>
#include <stdint.h>

/* "FOLDER/name"; valid until a dozen more calls. Folders in between are made. */
const char *files_path(const char *folder, const char *name);

void files_write(const char *path, const void *bytes, size_t n);
/* Packs with gzip. */
void files_write_gz(const char *path, const void *bytes, size_t n);
uint8_t *files_read(const char *path, size_t *ret_n);

/* Pixels [h][w][c], c 1 or 3 (4: CMYK). Quality 100 without subsampling: a
 * value comes back within 2. */
void files_write_jpeg(const char *path, const uint8_t *pixels, uint32_t h, uint32_t w, uint32_t c);

/* Any colour type and depth of libpng; rows as libpng wants them. A palette
 * type gets 256 entries: entry i is (i, 255 - i, i / 2). */
void files_write_png(const char *path, const uint8_t *rows, size_t row_bytes, uint32_t h,
                     uint32_t w, int color_type, int depth);

/* Header and data of an idx file. Dimensions: n, or n h w (h > 0). */
size_t files_idx(uint8_t *ret_bytes, uint32_t magic, uint32_t n, uint32_t h, uint32_t w,
                 const uint8_t *data, size_t n_data);

/* PREFIX-images-idx3-ubyte and PREFIX-labels-idx1-ubyte: image i of h x w has
 * pixel p = i * 7 + p (mod 256) and label i % classes. */
void files_write_idx(const char *prefix, uint32_t n, uint32_t h, uint32_t w, uint32_t classes,
                     int is_gz);

#endif
