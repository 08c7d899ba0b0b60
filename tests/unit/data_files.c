#include "tests/unit/data_files.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

enum { PATHS = 16, PATH_BYTES = 512 };

const char *files_path(const char *folder, const char *name)
{
    static char paths[PATHS][PATH_BYTES];
    static unsigned next;
    char *path = paths[next++ % PATHS];

    ck_assert_int_lt(snprintf(path, PATH_BYTES, "%s/%s", folder, name), PATH_BYTES);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    return path;
}

void files_write(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

void files_write_gz(const char *path, const void *bytes, size_t n)
{
    gzFile file = gzopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, bytes, (unsigned)n), (int)n);
    ck_assert_int_eq(gzclose(file), Z_OK);
}

uint8_t *files_read(const char *path, size_t *ret_n)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(1 << 22);

    ck_assert_ptr_nonnull(file);
    *ret_n = fread(bytes, 1, 1 << 22, file);
    fclose(file);
    return bytes;
}

void files_write_jpeg(const char *path, const uint8_t *pixels, uint32_t h, uint32_t w, uint32_t c)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    FILE *file = fopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_stdio_dest(&info, file);
    info.image_width = w;
    info.image_height = h;
    info.input_components = (int)c;
    info.in_color_space = c == 1 ? JCS_GRAYSCALE : c == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 100, TRUE);
    for (int i = 0; i < info.num_components; i++) {
        info.comp_info[i].h_samp_factor = info.comp_info[i].v_samp_factor = 1;
    }
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < h) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + (size_t)info.next_scanline * w * c);

        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    fclose(file);
}

void files_write_png(const char *path, const uint8_t *rows, size_t row_bytes, uint32_t h,
                     uint32_t w, int color_type, int depth)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_color palette[256];
    FILE *file = fopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    png_init_io(png, file);
    png_set_IHDR(png, info, w, h, depth, color_type, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (color_type == PNG_COLOR_TYPE_PALETTE) {
        for (int i = 0; i < 256; i++) {
            palette[i] = (png_color){ (png_byte)i, (png_byte)(255 - i), (png_byte)(i / 2) };
        }
        png_set_PLTE(png, info, palette, 256);
    }
    png_write_info(png, info);
    for (uint32_t y = 0; y < h; y++) {
        png_write_row(png, rows + y * row_bytes);
    }
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    fclose(file);
}

static void put_number(uint8_t *bytes, uint32_t number)
{
    for (int i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(number >> (24 - 8 * i));
    }
}

size_t files_idx(uint8_t *ret_bytes, uint32_t magic, uint32_t n, uint32_t h, uint32_t w,
                 const uint8_t *data, size_t n_data)
{
    size_t header = h > 0 ? 16 : 8;

    put_number(ret_bytes, magic);
    put_number(ret_bytes + 4, n);
    if (h > 0) {
        put_number(ret_bytes + 8, h);
        put_number(ret_bytes + 12, w);
    }
    memcpy(ret_bytes + header, data, n_data);
    return header + n_data;
}

static void write_part(const char *prefix, const char *suffix, const uint8_t *bytes, size_t n,
                       int is_gz)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, "%s-%s%s", prefix, suffix, is_gz ? ".gz" : "");
    if (is_gz) {
        files_write_gz(path, bytes, n);
    } else {
        files_write(path, bytes, n);
    }
}

void files_write_idx(const char *prefix, uint32_t n, uint32_t h, uint32_t w, uint32_t classes,
                     int is_gz)
{
    size_t pixels = (size_t)h * w;
    uint8_t *data = calloc(n * pixels + 1, 1), *bytes = malloc(n * pixels + 32);

    for (uint32_t i = 0; i < n; i++) {
        for (size_t p = 0; p < pixels; p++) {
            data[i * pixels + p] = (uint8_t)(i * 7 + p);
        }
    }
    write_part(prefix, "images-idx3-ubyte", bytes,
               files_idx(bytes, 0x803, n, h, w, data, n * pixels), is_gz);
    for (uint32_t i = 0; i < n; i++) {
        data[i] = (uint8_t)(i % classes);
    }
    write_part(prefix, "labels-idx1-ubyte", bytes, files_idx(bytes, 0x801, n, 0, 0, data, n),
               is_gz);
    free(data);
    free(bytes);
}
