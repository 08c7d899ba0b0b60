/* JPEG by libjpeg-turbo. The library reports by callback and long jump; both
 * end in this file. A warning is an error here: after one, the library goes
 * on with grey or repeated blocks, and a network would train on them. */
#include "worker/data/image.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>
#include <jerror.h>

#include "common/error.h"

struct decoder {
    struct jpeg_error_mgr errors; /* first: libjpeg hands its address back */
    jmp_buf failed;
    char text[JMSG_LENGTH_MAX];
};

static void on_error(j_common_ptr info)
{
    struct decoder *decoder = (struct decoder *)info->err;

    decoder->errors.format_message(info, decoder->text);
    longjmp(decoder->failed, 1);
}

static void on_message(j_common_ptr info, int level)
{
    if (level < 0) {
        on_error(info);
    }
}

/* Header to the first row; the size is checked in between. */
static int start(struct jpeg_decompress_struct *info, const char *path, int wants_grey,
                 struct image *image, struct gems_error *err)
{
    int st;

    jpeg_read_header(info, TRUE);
    if (info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK ||
        (info->num_components != 1 && info->num_components != 3)) {
        return gems_error_set(err, GEMS_E_DATA,
                              "%s: JPEG with %d colour components (CMYK); save it as RGB or grey",
                              path, info->num_components);
    }
    info->out_color_space = wants_grey || info->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    st = image_alloc(image, path, info->image_height, info->image_width,
                     info->out_color_space == JCS_RGB ? 3 : 1, err);
    if (st == 0) {
        jpeg_start_decompress(info);
    }
    return st;
}

static void read_rows(struct jpeg_decompress_struct *info, const struct image *image)
{
    size_t row_bytes = (size_t)image->w * image->c;

    while (info->output_scanline < info->output_height) {
        JSAMPROW row = image->pixels + info->output_scanline * row_bytes;

        jpeg_read_scanlines(info, &row, 1);
    }
    jpeg_finish_decompress(info);
}

int image_decode_jpeg(const char *path, const uint8_t *bytes, size_t n, int wants_grey,
                      struct image *ret_image, struct gems_error *err)
{
    struct jpeg_decompress_struct info;
    struct decoder decoder;
    int st;

    *ret_image = (struct image){ 0 };
    info.err = jpeg_std_error(&decoder.errors);
    decoder.errors.error_exit = on_error;
    decoder.errors.emit_message = on_message;
    /* What changes after this point is reached through pointers only, so that
     * a long jump finds it as it was left. */
    if (setjmp(decoder.failed)) {
        st = gems_error_set(err, GEMS_E_DATA, "%s: damaged JPEG: %s", path, decoder.text);
    } else {
        jpeg_create_decompress(&info);
        jpeg_mem_src(&info, bytes, n);
        st = start(&info, path, wants_grey, ret_image, err);
        if (st == 0) {
            read_rows(&info, ret_image);
        }
    }
    jpeg_destroy_decompress(&info);
    if (st < 0) {
        image_fini(ret_image);
    }
    return st;
}
