/* PNG by libpng: any depth and colour type becomes 8-bit grey or RGB; 16 bits
 * are scaled, palettes looked up, transparency is left out. libpng's errors
 * end in this file; its warnings (about profiles and the like) are ignored,
 * since data that is damaged is an error there. */
#include "worker/data/image.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "common/error.h"

struct reader {
    const uint8_t *bytes;
    size_t n, at;
    char text[160];
    png_structp png;
    png_infop info;
    png_bytepp rows;
};

static void on_error(png_structp png, png_const_charp message)
{
    struct reader *reader = png_get_error_ptr(png);

    snprintf(reader->text, sizeof reader->text, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void on_read(png_structp png, png_bytep to, size_t n)
{
    struct reader *reader = png_get_io_ptr(png);

    if (n > reader->n - reader->at) {
        png_error(png, "file ends too early");
    }
    memcpy(to, reader->bytes + reader->at, n);
    reader->at += n;
}

/* Asks libpng for 8-bit grey or RGB; returns the number of channels. */
static uint32_t convert(const struct reader *reader)
{
    png_structp png = reader->png;
    int type = png_get_color_type(png, reader->info);

    if (png_get_bit_depth(png, reader->info) == 16) {
        png_set_scale_16(png);
    }
    if (type == PNG_COLOR_TYPE_PALETTE) {
        png_set_palette_to_rgb(png);
    } else if (type == PNG_COLOR_TYPE_GRAY) {
        png_set_expand_gray_1_2_4_to_8(png);
    }
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, reader->info);
    return type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_GRAY_ALPHA ? 1 : 3;
}

static int read_image(struct reader *reader, const char *path, struct image *image,
                      struct gems_error *err)
{
    uint32_t h, w, c;
    int st;

    png_read_info(reader->png, reader->info);
    h = png_get_image_height(reader->png, reader->info);
    w = png_get_image_width(reader->png, reader->info);
    c = convert(reader);
    st = image_alloc(image, path, h, w, c, err);
    if (st < 0) {
        return st;
    }
    if (png_get_rowbytes(reader->png, reader->info) != (size_t)w * c) {
        png_error(reader->png, "unexpected size of a row");
    }
    reader->rows = png_malloc(reader->png, h * sizeof *reader->rows);
    for (uint32_t y = 0; y < h; y++) {
        reader->rows[y] = image->pixels + (size_t)y * w * c;
    }
    png_read_image(reader->png, reader->rows);
    png_read_end(reader->png, NULL);
    return 0;
}

int image_decode_png(const char *path, const uint8_t *bytes, size_t n, struct image *ret_image,
                     struct gems_error *err)
{
    struct reader *reader = calloc(1, sizeof *reader);
    int st = 0;

    *ret_image = (struct image){ 0 };
    if (!reader) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory for a PNG decoder", path);
    }
    reader->bytes = bytes;
    reader->n = n;
    reader->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, reader, on_error, on_warning);
    reader->info = reader->png ? png_create_info_struct(reader->png) : NULL;
    if (!reader->info) {
        st = gems_error_set(err, GEMS_E_NOMEM, "%s: no memory for a PNG decoder", path);
    } else if (setjmp(png_jmpbuf(reader->png))) {
        st = gems_error_set(err, GEMS_E_DATA, "%s: damaged PNG: %s", path, reader->text);
    } else {
        png_set_read_fn(reader->png, reader, on_read);
        st = read_image(reader, path, ret_image, err);
    }
    if (reader->png) {
        png_free(reader->png, reader->rows);
        png_destroy_read_struct(&reader->png, &reader->info, NULL);
    }
    free(reader);
    if (st < 0) {
        image_fini(ret_image);
    }
    return st;
}
