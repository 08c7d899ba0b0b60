/* Data sets: what a sample decodes to, and the words for each thing that can
 * be wrong with a user's files. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <png.h>

#include "common/error.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/temp_dir.h"
#include "tests/unit/data_files.h"
#include "worker/data/dataset.h"

static struct temp_dir dir;

static char *folder_before; /* TMPDIR, which some tests change */

static void set_up(void)
{
    const char *value = getenv("TMPDIR");

    folder_before = value ? strdup(value) : NULL;
    temp_dir_create(&dir);
}

static void tear_down(void)
{
    temp_dir_destroy(&dir);
    if (folder_before) {
        setenv("TMPDIR", folder_before, 1);
    } else {
        unsetenv("TMPDIR");
    }
    free(folder_before);
}

static struct dataset_spec spec_of(enum dataset_format format, const char *path, uint32_t channels,
                                   uint32_t side, uint32_t classes)
{
    return (struct dataset_spec){ .format = format,
                                  .path = path,
                                  .channels = channels,
                                  .height = side,
                                  .width = side,
                                  .classes = classes };
}

static struct dataset *must_open(const struct dataset_spec *spec)
{
    struct gems_error err = { 0 };
    struct dataset *set = NULL;

    ck_assert_msg(dataset_open(spec, &set, &err) == 0, "%s", err.text);
    return set;
}

static void must_read(struct dataset *set, uint64_t i, uint8_t *ret_pixels)
{
    struct gems_error err = { 0 };

    ck_assert_msg(dataset_read(set, i, ret_pixels, &err) == 0, "%s", err.text);
}

/* The error's text is FOLDER/ and what is expected, with %s for the folder. */
static void expect_text(const struct gems_error *err, int status, const char *expected)
{
    char text[1024] = "";
    const char *from = expected, *mark;

    while ((mark = strstr(from, "%s"))) {
        strncat(text, from, (size_t)(mark - from));
        strcat(text, dir.path);
        from = mark + 2;
    }
    strcat(text, from);
    ck_assert_str_eq(err->text, text);
    ck_assert_int_eq(status, err->status);
}

static void expect_refusal(const struct dataset_spec *spec, enum gems_status status,
                           const char *expected)
{
    struct gems_error err = { 0 };
    struct dataset *set = NULL;
    int st = dataset_open(spec, &set, &err);

    ck_assert_int_eq(st, status);
    ck_assert_ptr_null(set);
    expect_text(&err, st, expected);
    ck_assert_int_eq(dataset_open(spec, &set, NULL), status);
}

/* ---- synthetic ---- */

static struct dataset_spec synthetic(uint64_t samples, uint32_t classes)
{
    struct dataset_spec spec = spec_of(DATASET_SYNTHETIC, NULL, 3, 12, classes);

    spec.samples = samples;
    spec.seed = 9;
    return spec;
}

START_TEST(synthetic_images_follow_from_seed_and_number)
{
    static uint8_t one[3 * 12 * 12], two[3 * 12 * 12];
    struct dataset_spec spec = synthetic(100, 10), other = spec;
    struct dataset *a = must_open(&spec), *b = must_open(&spec), *c, *d;

    ck_assert_uint_eq(dataset_samples(a), 100);
    must_read(a, 77, one);
    must_read(b, 3, two);
    ck_assert_int_ne(memcmp(one, two, sizeof one), 0);
    must_read(b, 77, two);
    ck_assert_int_eq(memcmp(one, two, sizeof one), 0);
    other.seed = 10;
    c = must_open(&other);
    must_read(c, 77, two);
    ck_assert_int_ne(memcmp(one, two, sizeof one), 0);
    other.seed = 9;
    other.is_eval = true;
    d = must_open(&other);
    must_read(d, 77, two);
    ck_assert_int_ne(memcmp(one, two, sizeof one), 0);
    dataset_close(a);
    dataset_close(b);
    dataset_close(c);
    dataset_close(d);
}
END_TEST

enum { N_CLASSES = 10, N_PIXELS = 3 * 12 * 12 };

static uint32_t nearest(double means[N_CLASSES][N_PIXELS], const uint8_t *pixels)
{
    double best = 1e30;
    uint32_t label = 0;

    for (uint32_t c = 0; c < N_CLASSES; c++) {
        double distance = 0.0;

        for (int p = 0; p < N_PIXELS; p++) {
            double d = means[c][p] - pixels[p];

            distance += d * d;
        }
        if (distance < best) {
            best = distance;
            label = c;
        }
    }
    return label;
}

START_TEST(synthetic_classes_can_be_learned)
{
    static double means[N_CLASSES][N_PIXELS];
    static uint8_t pixels[N_PIXELS];
    struct dataset_spec spec = synthetic(1000, N_CLASSES);
    struct dataset *train = must_open(&spec), *eval;
    uint32_t counts[N_CLASSES] = { 0 }, n_correct = 0;

    for (uint64_t i = 0; i < 1000; i++) {
        uint32_t label = dataset_label(train, i);

        ck_assert_uint_lt(label, N_CLASSES);
        counts[label]++;
        must_read(train, i, pixels);
        for (int p = 0; p < N_PIXELS; p++) {
            means[label][p] += pixels[p];
        }
    }
    for (uint32_t c = 0; c < N_CLASSES; c++) {
        ck_assert_uint_gt(counts[c], 50);
        for (int p = 0; p < N_PIXELS; p++) {
            means[c][p] /= counts[c];
        }
    }
    spec.is_eval = true;
    spec.samples = 200;
    eval = must_open(&spec);
    for (uint64_t i = 0; i < 200; i++) {
        must_read(eval, i, pixels);
        n_correct += nearest(means, pixels) == dataset_label(eval, i);
    }
    ck_assert_uint_gt(n_correct, 190);
    dataset_close(train);
    dataset_close(eval);
}
END_TEST

/* Only as much is written as an image has. */
START_TEST(synthetic_images_come_in_any_size)
{
    static const uint32_t sizes[][3] = { { 1, 1, 1 }, { 2, 5, 7 }, { 4, 1, 64 }, { 3, 33, 2 } };
    struct dataset_spec spec = synthetic(3, 2);
    uint32_t n = sizes[_i][0] * sizes[_i][1] * sizes[_i][2];
    uint8_t *pixels = calloc(n + 1, 1);
    struct dataset *set;
    uint32_t sum = 0;

    spec.channels = sizes[_i][0];
    spec.height = sizes[_i][1];
    spec.width = sizes[_i][2];
    set = must_open(&spec);
    pixels[n] = 77;
    must_read(set, 2, pixels);
    ck_assert_uint_eq(pixels[n], 77);
    for (uint32_t p = 0; p < n; p++) {
        sum += pixels[p];
    }
    ck_assert_uint_gt(sum / n, 48);
    ck_assert_uint_lt(sum / n, 208);
    free(pixels);
    dataset_close(set);
}
END_TEST

START_TEST(a_set_without_samples_is_refused)
{
    struct dataset_spec spec = synthetic(0, 2);

    expect_refusal(&spec, GEMS_E_DATA,
                   "data.samples: a synthetic data set needs at least 1 sample");
}
END_TEST

START_TEST(nonsense_in_the_spec_is_refused)
{
    struct dataset_spec spec = synthetic(3, 2);

    spec.height = 0;
    expect_refusal(&spec, GEMS_E_INVALID,
                   "data set: images of 3 channels and 0x12 pixels in 2 classes");
    spec = spec_of(DATASET_IDX, dir.path, 2, 28, 10);
    expect_refusal(&spec, GEMS_E_INVALID, "data.channels: 2; idx gives 1 or 3");
    spec = spec_of(DATASET_IMAGEFOLDER, dir.path, 4, 28, 10);
    expect_refusal(&spec, GEMS_E_INVALID, "data.channels: 4; imagefolder gives 1 or 3");
    spec.format = (enum dataset_format)17;
    expect_refusal(&spec, GEMS_E_INVALID, "data.format: unknown number 17");
}
END_TEST

START_TEST(a_sample_beyond_the_end_is_our_own_mistake)
{
    struct dataset_spec spec = synthetic(3, 2);
    struct dataset *set = must_open(&spec);
    struct gems_error err = { 0 };
    static uint8_t pixels[3 * 12 * 12];

    ck_assert_int_eq(dataset_read(set, 3, pixels, &err), GEMS_E_INTERNAL);
    ck_assert_str_eq(err.text, "data set: sample 3 of 3");
    dataset_close(set);
    dataset_close(NULL);
}
END_TEST

/* ---- idx ---- */

static const char *const image_name = "train-images-idx3-ubyte";
static const char *const label_name = "train-labels-idx1-ubyte";

START_TEST(idx_gives_pixels_and_labels_packed_or_not)
{
    static uint8_t pixels[5 * 4];
    struct dataset_spec spec = spec_of(DATASET_IDX, NULL, 1, 5, 3);
    struct dataset *set;

    files_write_idx(files_path(dir.path, "train"), 7, 5, 4, 3, _i);
    spec.path = files_path(dir.path, "train");
    spec.width = 4;
    set = must_open(&spec);
    ck_assert_uint_eq(dataset_samples(set), 7);
    for (uint32_t i = 0; i < 7; i++) {
        ck_assert_uint_eq(dataset_label(set, i), i % 3);
        must_read(set, i, pixels);
        for (uint32_t p = 0; p < 20; p++) {
            ck_assert_uint_eq(pixels[p], i * 7 + p);
        }
    }
    dataset_close(set);
}
END_TEST

START_TEST(a_folder_stands_for_train_or_t10k)
{
    struct dataset_spec spec = spec_of(DATASET_IDX, dir.path, 1, 4, 2);
    struct dataset *set;

    files_write_idx(files_path(dir.path, "train"), 6, 4, 4, 2, 0);
    files_write_idx(files_path(dir.path, "t10k"), 3, 4, 4, 2, 1);
    set = must_open(&spec);
    ck_assert_uint_eq(dataset_samples(set), 6);
    dataset_close(set);
    spec.is_eval = true;
    set = must_open(&spec);
    ck_assert_uint_eq(dataset_samples(set), 3);
    dataset_close(set);
}
END_TEST

START_TEST(grey_idx_images_fill_three_channels)
{
    uint8_t pixels[3 * 16];
    struct dataset_spec spec = spec_of(DATASET_IDX, dir.path, 3, 4, 2);
    struct dataset *set;

    files_write_idx(files_path(dir.path, "train"), 2, 4, 4, 2, 0);
    set = must_open(&spec);
    must_read(set, 1, pixels);
    for (uint32_t p = 0; p < 48; p++) {
        ck_assert_uint_eq(pixels[p], 7 + p % 16);
    }
    dataset_close(set);
}
END_TEST

START_TEST(no_temporary_file_is_left_of_packed_images)
{
    struct dataset_spec spec = spec_of(DATASET_IDX, dir.path, 1, 4, 2);
    struct dataset *set;

    files_path(dir.path, "tmp/x");
    ck_assert_int_eq(setenv("TMPDIR", files_path(dir.path, "tmp"), 1), 0);
    files_write_idx(files_path(dir.path, "train"), 2, 4, 4, 2, 1);
    set = must_open(&spec);
    ck_assert_int_eq(rmdir(files_path(dir.path, "tmp")), 0);
    dataset_close(set);
}
END_TEST

START_TEST(packed_images_need_room_for_a_temporary_file)
{
    struct dataset_spec spec = spec_of(DATASET_IDX, dir.path, 1, 4, 2);
    struct gems_error err = { 0 };
    struct dataset *set = NULL;

    ck_assert_int_eq(setenv("TMPDIR", "/nonexistent", 1), 0);
    files_write_idx(files_path(dir.path, "train"), 2, 4, 4, 2, 1);
    expect_text(&err, dataset_open(&spec, &set, &err),
                "%s/train-images-idx3-ubyte.gz: no file in /nonexistent to unpack it to: No such "
                "file or directory");
}
END_TEST

/* A disk that is full, in the form of a limit on the size of files. */
START_TEST(a_full_disk_is_told_apart_from_bad_data)
{
    struct dataset_spec spec = spec_of(DATASET_IDX, dir.path, 1, 4, 2);
    struct rlimit before, small;
    struct gems_error err = { 0 };
    struct dataset *set = NULL;
    char *text;
    int st;

    files_write_idx(files_path(dir.path, "train"), 9, 4, 4, 2, 1);
    ck_assert_int_eq(setenv("TMPDIR", dir.path, 1), 0);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){ .rlim_cur = 100, .rlim_max = before.rlim_max };
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    st = dataset_open(&spec, &set, &err);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_int_eq(st, GEMS_E_IO);
    text = strstr(err.text, "/train-images-idx3-ubyte.gz: ");
    ck_assert_ptr_nonnull(text);
    ck_assert_str_eq(text, "/train-images-idx3-ubyte.gz: unpacking it to a temporary file: File "
                           "too large");
    ck_assert_ptr_null(set);
}
END_TEST

START_TEST(an_index_needs_no_room_and_gives_no_pixels)
{
    struct dataset_spec spec = spec_of(DATASET_IDX, dir.path, 1, 4, 2);
    struct gems_error err = { 0 };
    struct dataset *set;
    uint8_t pixels[16];

    ck_assert_int_eq(setenv("TMPDIR", "/nonexistent", 1), 0);
    files_write_idx(files_path(dir.path, "train"), 9, 4, 4, 2, _i);
    spec.is_index_only = true;
    set = must_open(&spec);
    ck_assert_uint_eq(dataset_samples(set), 9);
    ck_assert_uint_eq(dataset_label(set, 3), 1);
    ck_assert_int_eq(dataset_read(set, 0, pixels, &err), GEMS_E_INTERNAL);
    ck_assert_str_eq(err.text, "data set: sample 0 of 9, opened for its index only");
    dataset_close(set);
}
END_TEST

/* Each case overwrites a part of a good pair of 5 images of 4x4, 3 classes. */
static void put_file(const char *name, uint32_t magic, uint32_t n, uint32_t h, uint32_t w,
                     size_t n_data, uint8_t value)
{
    uint8_t data[256], bytes[300];

    memset(data, value, sizeof data);
    files_write(files_path(dir.path, name), bytes, files_idx(bytes, magic, n, h, w, data, n_data));
}

static void no_images(void)
{
    unlink(files_path(dir.path, image_name));
}
static void no_labels(void)
{
    unlink(files_path(dir.path, label_name));
}
static void swapped_images(void)
{
    put_file(image_name, 0x801, 5, 0, 0, 80, 0);
}
static void swapped_labels(void)
{
    put_file(label_name, 0x803, 5, 1, 1, 5, 0);
}
static void few_labels(void)
{
    put_file(label_name, 0x801, 4, 0, 0, 4, 0);
}
static void label_beyond(void)
{
    put_file(label_name, 0x801, 5, 0, 0, 5, 3);
}
static void short_labels(void)
{
    put_file(label_name, 0x801, 5, 0, 0, 3, 0);
}
static void long_labels(void)
{
    put_file(label_name, 0x801, 5, 0, 0, 9, 0);
}
static void short_images(void)
{
    put_file(image_name, 0x803, 5, 4, 4, 79, 0);
}
static void long_images(void)
{
    put_file(image_name, 0x803, 5, 4, 4, 81, 0);
}
static void zero_images(void)
{
    put_file(image_name, 0x803, 0, 4, 4, 0, 0);
}
static void zero_width(void)
{
    put_file(image_name, 0x803, 5, 4, 0, 0, 0);
}
static void huge_images(void)
{
    put_file(image_name, 0x803, 5, UINT32_MAX, UINT32_MAX, 80, 0);
}
static void many_images(void)
{
    put_file(image_name, 0x803, UINT32_MAX, 8192, 8192, 80, 0);
    put_file(label_name, 0x801, UINT32_MAX, 0, 0, 5, 0);
}
static void short_header(void)
{
    files_write(files_path(dir.path, image_name), "\0\0\x08\x03\0", 5);
}
static void empty_file(void)
{
    files_write(files_path(dir.path, label_name), "", 0);
}
static void folder_for_file(void)
{
    no_labels();
    ck_assert_int_eq(mkdir(files_path(dir.path, label_name), 0700), 0);
}
static void pipe_for_file(void)
{
    no_images();
    ck_assert_int_eq(mkfifo(files_path(dir.path, image_name), 0600), 0);
}

static const struct idx_case {
    void (*break_it)(void);
    const char *text;
} idx_cases[] = {
    { no_images, "%s/train-images-idx3-ubyte: no such file, with or without .gz" },
    { no_labels, "%s/train-labels-idx1-ubyte: no such file, with or without .gz" },
    { swapped_images, "%s/train-images-idx3-ubyte: begins with 0x00000801 instead of 0x00000803, "
                      "the mark of idx images" },
    { swapped_labels, "%s/train-labels-idx1-ubyte: begins with 0x00000803 instead of 0x00000801, "
                      "the mark of idx labels" },
    { few_labels, "%s/train-labels-idx1-ubyte: has 4 labels for the 5 images in "
                  "%s/train-images-idx3-ubyte" },
    { label_beyond, "%s/train-labels-idx1-ubyte: label 3 of image 0, but the model has classes 0 "
                    "to 2" },
    { short_labels, "%s/train-labels-idx1-ubyte: its header promises 5 labels, 5 bytes, but 3 "
                    "follow" },
    { long_labels, "%s/train-labels-idx1-ubyte: its header promises 5 labels, 5 bytes, but at "
                   "least 6 follow" },
    { short_images, "%s/train-images-idx3-ubyte: its header promises 5 images, 80 bytes, but 79 "
                    "follow" },
    { long_images, "%s/train-images-idx3-ubyte: its header promises 5 images, 80 bytes, but at "
                   "least 81 follow" },
    { zero_images, "%s/train-images-idx3-ubyte: has no images" },
    { zero_width, "%s/train-images-idx3-ubyte: images of 0x4 pixels; 1 to 67108864 pixels are "
                  "supported" },
    { huge_images, "%s/train-images-idx3-ubyte: images of 4294967295x4294967295 pixels; 1 to "
                   "67108864 pixels are supported" },
    { many_images, "%s/train-labels-idx1-ubyte: its header promises 4294967295 labels; up to "
                   "2147483647 are supported" },
    { short_header, "%s/train-images-idx3-ubyte: has 5 bytes, fewer than the header of an idx "
                    "file" },
    { empty_file, "%s/train-labels-idx1-ubyte: has 0 bytes, fewer than the header of an idx "
                  "file" },
    { folder_for_file, "%s/train-labels-idx1-ubyte: is a folder, but a file is expected" },
    { pipe_for_file, "%s/train-images-idx3-ubyte: is a device or pipe, but a file is expected" },
};

START_TEST(a_wrong_idx_file_is_refused_by_name)
{
    struct dataset_spec spec = spec_of(DATASET_IDX, dir.path, 1, 4, 3);

    files_write_idx(files_path(dir.path, "train"), 5, 4, 4, 3, 0);
    idx_cases[_i].break_it();
    expect_refusal(&spec, GEMS_E_DATA, idx_cases[_i].text);
}
END_TEST

START_TEST(a_missing_prefix_tells_what_a_path_is)
{
    struct dataset_spec spec = spec_of(DATASET_IDX, "/nonexistent/mnist", 1, 4, 3);
    struct gems_error err = { 0 };
    struct dataset *set = NULL;

    ck_assert_int_eq(dataset_open(&spec, &set, &err), GEMS_E_DATA);
    ck_assert_str_eq(err.text, "/nonexistent/mnist-images-idx3-ubyte: no such file, with or "
                               "without .gz");
    ck_assert_str_eq(err.hint, "an idx path is the part of a file name before -images-idx3-ubyte, "
                               "or a folder with train-* and t10k-*");
}
END_TEST

/* Packed files: cut off, with a flipped bit, too long inside. */
START_TEST(a_damaged_packed_file_is_refused)
{
    static const char *const texts[] = {
        "%s/train-images-idx3-ubyte.gz: damaged: unexpected end of file",
        "%s/train-images-idx3-ubyte.gz: damaged: incorrect data check",
        "%s/train-images-idx3-ubyte.gz: its header promises 5 images, 80 bytes, but at least 81 "
        "follow",
        "%s/train-images-idx3-ubyte.gz: its header promises 5 images, 80 bytes, but 79 follow",
    };
    struct dataset_spec spec = spec_of(DATASET_IDX, dir.path, 1, 4, 3);
    const char *path = files_path(dir.path, "train-images-idx3-ubyte.gz");
    uint8_t data[200] = { 0 }, bytes[300], *packed;
    size_t n;

    files_write_idx(files_path(dir.path, "train"), 5, 4, 4, 3, 1);
    packed = files_read(path, &n);
    if (_i == 0) {
        files_write(path, packed, n - 9);
    } else if (_i == 1) {
        packed[n - 8] ^= 1;
        files_write(path, packed, n);
    } else {
        files_write_gz(path, bytes, files_idx(bytes, 0x803, 5, 4, 4, data, _i == 2 ? 150 : 79));
    }
    free(packed);
    expect_refusal(&spec, GEMS_E_DATA, texts[_i]);
}
END_TEST

/* ---- image folders ---- */

/* 8x8 with a smooth slope in each channel. */
static void slope(uint8_t *ret_pixels, uint32_t h, uint32_t w, uint32_t c)
{
    for (uint32_t y = 0; y < h; y++) {
        for (uint32_t x = 0; x < w; x++) {
            for (uint32_t k = 0; k < c; k++) {
                ret_pixels[(y * w + x) * c + k] = (uint8_t)(k == 0   ? 40 + 4 * x
                                                            : k == 1 ? 200 - 5 * y
                                                                     : 90 + 2 * x + y);
            }
        }
    }
}

/* One class with one file. */
static struct dataset *open_one(uint32_t channels, uint32_t h, uint32_t w)
{
    struct dataset_spec spec = spec_of(DATASET_IMAGEFOLDER, dir.path, channels, h, 1);

    spec.width = w;
    return must_open(&spec);
}

static void expect_near(unsigned a, unsigned b, unsigned tolerance)
{
    ck_assert_msg(a <= b + tolerance && b <= a + tolerance, "%u is not within %u of %u", a,
                  tolerance, b);
}

START_TEST(jpeg_pixels_are_those_that_were_saved)
{
    uint8_t saved[64 * 3], pixels[64 * 3];
    uint32_t c = _i == 0 ? 1 : 3;
    struct dataset *set;

    slope(saved, 8, 8, c);
    files_write_jpeg(files_path(dir.path, "a/x.jpg"), saved, 8, 8, c);
    set = open_one(3, 8, 8);
    must_read(set, 0, pixels);
    for (uint32_t p = 0; p < 64; p++) {
        for (uint32_t k = 0; k < 3; k++) {
            expect_near(pixels[k * 64 + p], saved[p * c + (c == 1 ? 0 : k)], 2);
        }
    }
    dataset_close(set);
}
END_TEST

START_TEST(colours_become_grey_alike_in_jpeg_and_png)
{
    uint8_t saved[64 * 3], from_jpeg[64], from_png[64];
    struct dataset *set;

    slope(saved, 8, 8, 3);
    files_write_jpeg(files_path(dir.path, "a/1.jpg"), saved, 8, 8, 3);
    files_write_png(files_path(dir.path, "a/2.png"), saved, 24, 8, 8, PNG_COLOR_TYPE_RGB, 8);
    set = open_one(1, 8, 8);
    must_read(set, 0, from_jpeg);
    must_read(set, 1, from_png);
    for (uint32_t p = 0; p < 64; p++) {
        double grey = 0.299 * saved[3 * p] + 0.587 * saved[3 * p + 1] + 0.114 * saved[3 * p + 2];

        expect_near(from_png[p], (unsigned)(grey + 0.5), 0);
        expect_near(from_jpeg[p], from_png[p], 2);
    }
    dataset_close(set);
}
END_TEST

/* One row of four pixels in every kind of PNG, and what it must decode to. */
static const struct png_case {
    int type, depth;
    uint8_t row[32];
    size_t row_bytes;
    uint8_t rgb[4][3];
} pngs[] = {
    { PNG_COLOR_TYPE_GRAY,
      1,
      { 0xa0 },
      1,
      { { 255, 255, 255 }, { 0, 0, 0 }, { 255, 255, 255 }, { 0, 0, 0 } } },
    { PNG_COLOR_TYPE_GRAY,
      2,
      { 0x1b },
      1,
      { { 0, 0, 0 }, { 85, 85, 85 }, { 170, 170, 170 }, { 255, 255, 255 } } },
    { PNG_COLOR_TYPE_GRAY,
      4,
      { 0x0f, 0x35 },
      2,
      { { 0, 0, 0 }, { 255, 255, 255 }, { 51, 51, 51 }, { 85, 85, 85 } } },
    { PNG_COLOR_TYPE_GRAY,
      8,
      { 0, 77, 200, 255 },
      4,
      { { 0, 0, 0 }, { 77, 77, 77 }, { 200, 200, 200 }, { 255, 255, 255 } } },
    { PNG_COLOR_TYPE_GRAY,
      16,
      { 0, 0, 0x4d, 0x4d, 0xc8, 0x10, 0xff, 0xff },
      8,
      { { 0, 0, 0 }, { 77, 77, 77 }, { 199, 199, 199 }, { 255, 255, 255 } } },
    { PNG_COLOR_TYPE_PALETTE,
      8,
      { 0, 1, 100, 255 },
      4,
      { { 0, 255, 0 }, { 1, 254, 0 }, { 100, 155, 50 }, { 255, 0, 127 } } },
    { PNG_COLOR_TYPE_RGB,
      8,
      { 1, 2, 3, 4, 5, 6, 7, 8, 9, 250, 251, 252 },
      12,
      { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 }, { 250, 251, 252 } } },
    { PNG_COLOR_TYPE_RGB,
      16,
      { 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 250, 250, 251, 251, 252, 252 },
      24,
      { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 }, { 250, 251, 252 } } },
    { PNG_COLOR_TYPE_RGB_ALPHA,
      8,
      { 1, 2, 3, 0, 4, 5, 6, 128, 7, 8, 9, 255, 10, 11, 12, 1 },
      16,
      { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 }, { 10, 11, 12 } } },
    { PNG_COLOR_TYPE_GRAY_ALPHA,
      8,
      { 9, 0, 8, 255, 7, 128, 6, 1 },
      8,
      { { 9, 9, 9 }, { 8, 8, 8 }, { 7, 7, 7 }, { 6, 6, 6 } } },
};

START_TEST(every_kind_of_png_becomes_8_bit_colours)
{
    const struct png_case *c = &pngs[_i];
    uint8_t pixels[3 * 4];
    struct dataset *set;

    files_write_png(files_path(dir.path, "a/x.png"), c->row, c->row_bytes, 1, 4, c->type, c->depth);
    set = open_one(3, 1, 4);
    must_read(set, 0, pixels);
    for (uint32_t x = 0; x < 4; x++) {
        for (uint32_t k = 0; k < 3; k++) {
            expect_near(pixels[k * 4 + x], c->rgb[x][k], c->depth == 16 ? 1 : 0);
        }
    }
    dataset_close(set);
}
END_TEST

static void write_grey(const char *name, uint8_t value)
{
    uint8_t pixels[16];

    memset(pixels, value, sizeof pixels);
    files_write_png(files_path(dir.path, name), pixels, 4, 4, 4, PNG_COLOR_TYPE_GRAY, 8);
}

START_TEST(classes_and_files_come_in_bytewise_order)
{
    static const uint8_t values[] = { 10, 11, 12, 20, 21, 30 };
    static const uint32_t labels[] = { 0, 0, 0, 1, 1, 3 };
    struct dataset_spec spec = spec_of(DATASET_IMAGEFOLDER, dir.path, 1, 4, 4);
    uint8_t pixels[16];
    struct dataset *set;

    write_grey("b/2.png", 21);
    write_grey("b/10.PNG", 20);
    write_grey("B/a.png", 11);
    write_grey("B/Z.png", 10);
    write_grey("B/a0.png", 12);
    write_grey("\xc3\xa4/only.jpeg", 30); /* a PNG by its bytes */
    files_path(dir.path, "c/empty");
    files_write(files_path(dir.path, "b/notes.txt"), "x", 1);
    files_write(files_path(dir.path, "b/.hidden.png"), "x", 1);
    files_write(files_path(dir.path, "README"), "x", 1);
    files_path(dir.path, ".git/x");
    set = must_open(&spec);
    ck_assert_uint_eq(dataset_samples(set), 6);
    for (uint32_t i = 0; i < 6; i++) {
        must_read(set, i, pixels);
        ck_assert_uint_eq(pixels[5], values[i]);
        ck_assert_uint_eq(dataset_label(set, i), labels[i]);
    }
    dataset_close(set);
}
END_TEST

START_TEST(links_are_followed)
{
    struct dataset_spec spec = spec_of(DATASET_IMAGEFOLDER, files_path(dir.path, "links"), 1, 4, 1);
    uint8_t pixels[16];
    struct dataset *set;

    write_grey("real/x.png", 55);
    files_path(dir.path, "links/x");
    ck_assert_int_eq(symlink("../real", files_path(dir.path, "links/a")), 0);
    ck_assert_int_eq(symlink("x.png", files_path(dir.path, "real/y.png")), 0);
    set = must_open(&spec);
    ck_assert_uint_eq(dataset_samples(set), 2);
    must_read(set, 1, pixels);
    ck_assert_uint_eq(pixels[0], 55);
    dataset_close(set);
}
END_TEST

static void folder_missing(void)
{
    ck_assert_int_eq(rmdir(files_path(dir.path, "data")), 0);
}
static void folder_is_file(void)
{
    folder_missing();
    files_write(files_path(dir.path, "data"), "x", 1);
}
static void folder_has_no_classes(void)
{
    write_grey("data/x.png", 1);
}
static void folder_has_no_images(void)
{
    files_write(files_path(dir.path, "data/a/x.tif"), "x", 1);
    files_path(dir.path, "data/b/x");
}
static void folder_has_three_classes(void)
{
    write_grey("data/a/x.png", 1);
    write_grey("data/b/x.png", 1);
    write_grey("data/c/x.png", 1);
}
static void folder_has_one_class(void)
{
    write_grey("data/a/x.png", 1);
}
static void folder_in_class(void)
{
    write_grey("data/a/x.png", 1);
    write_grey("data/b/deeper/x.png", 1);
}
static void folder_named_like_an_image(void)
{
    write_grey("data/a/x.png", 1);
    files_path(dir.path, "data/b/x.jpg/y");
}

static const struct folder_case {
    void (*make_it)(void);
    const char *text, *hint;
} folder_cases[] = {
    { folder_missing, "%s/data: No such file or directory", "" },
    { folder_is_file, "%s/data: Not a directory", "" },
    { folder_has_no_classes,
      "%s/data: has no class folders; images are expected as CLASS/IMAGE.jpg", "" },
    { folder_has_no_images,
      "%s/data: has no images; .jpg, .jpeg and .png files are expected in "
      "its class folders",
      "" },
    { folder_has_three_classes, "%s/data: has 3 class folders, but the model has 2 classes",
      "set model.classes to 3" },
    { folder_has_one_class, "%s/data: has 1 class folder, but the model has 2 classes",
      "set model.classes to 1, or make an empty folder for each class without images" },
    { folder_in_class,
      "%s/data/b/deeper: is a folder, but an image file is expected there "
      "(DATA/CLASS/IMAGE.jpg)",
      "" },
    { folder_named_like_an_image,
      "%s/data/b/x.jpg: is a folder, but an image file is expected "
      "there (DATA/CLASS/IMAGE.jpg)",
      "" },
};

START_TEST(a_wrong_folder_is_refused_by_name)
{
    const struct folder_case *c = &folder_cases[_i];
    struct dataset_spec spec;
    struct gems_error err = { 0 };
    struct dataset *set = NULL;

    files_path(dir.path, "data/x");
    c->make_it();
    spec = spec_of(DATASET_IMAGEFOLDER, files_path(dir.path, "data"), 3, 8, 2);
    expect_refusal(&spec, GEMS_E_DATA, c->text);
    dataset_open(&spec, &set, &err);
    ck_assert_str_eq(err.hint, c->hint);
}
END_TEST

/* ---- files that cannot be decoded ---- */

static const char *make_jpeg(const char *name)
{
    uint8_t saved[16 * 16 * 3];
    const char *path = files_path(dir.path, name);

    slope(saved, 16, 16, 3);
    files_write_jpeg(path, saved, 16, 16, 3);
    return path;
}

static const char *make_png(const char *name)
{
    uint8_t saved[16 * 16 * 3];
    const char *path = files_path(dir.path, name);

    slope(saved, 16, 16, 3);
    files_write_png(path, saved, 48, 16, 16, PNG_COLOR_TYPE_RGB, 8);
    return path;
}

static void shorten(const char *path, size_t by)
{
    size_t n;
    uint8_t *bytes = files_read(path, &n);

    files_write(path, bytes, n - by);
    free(bytes);
}

static void flip(const char *path, size_t at_from_end)
{
    size_t n;
    uint8_t *bytes = files_read(path, &n);

    bytes[n - at_from_end] ^= 0x40;
    files_write(path, bytes, n);
    free(bytes);
}

static void cut_jpeg(void)
{
    shorten(make_jpeg("a/x.jpg"), 100);
}
static void jpeg_without_end(void)
{
    shorten(make_jpeg("a/x.jpg"), 2);
}
static void cmyk_jpeg(void)
{
    uint8_t saved[64 * 4] = { 0 };

    files_write_jpeg(files_path(dir.path, "a/x.jpg"), saved, 8, 8, 4);
}
static void jpeg_head_only(void)
{
    files_write(files_path(dir.path, "a/x.jpg"), "\xff\xd8\xff", 3);
}
static void cut_png(void)
{
    shorten(make_png("a/x.png"), 30);
}
static void png_with_bad_sum(void)
{
    flip(make_png("a/x.png"), 14); /* in the sum of the data */
}
static void png_head_only(void)
{
    files_write(files_path(dir.path, "a/x.png"), "\x89PNG\r\n\x1a\n", 8);
}
static void png_of_2_gigapixels(void)
{
    const char *path = make_png("a/x.png");
    size_t n;
    uint8_t *bytes = files_read(path, &n);
    static const uint8_t header[] = { 0, 0, 0xc3, 0x50, 0,    0,    0xc3, 0x50, 8,
                                      2, 0, 0,    0,    0xc4, 0xcd, 0xaa, 0x9d };

    memcpy(bytes + 16, header, sizeof header);
    files_write(path, bytes, n);
    free(bytes);
}
static void text_file(void)
{
    files_write(files_path(dir.path, "a/x.jpg"), "<html>404 not found</html>", 26);
}
static void no_bytes(void)
{
    files_write(files_path(dir.path, "a/x.jpg"), "", 0);
}
static void broken_link(void)
{
    files_path(dir.path, "a/x");
    ck_assert_int_eq(symlink("nowhere", files_path(dir.path, "a/x.jpg")), 0);
}
static void pipe_as_image(void)
{
    ck_assert_int_eq(mkfifo(files_path(dir.path, "a/x.jpg"), 0600), 0);
}

static const struct damage_case {
    void (*make_it)(void);
    const char *text;
} damages[] = {
    { cut_jpeg, "%s/a/x.jpg: damaged JPEG: Premature end of JPEG file" },
    { jpeg_without_end, "%s/a/x.jpg: damaged JPEG: Premature end of JPEG file" },
    { jpeg_head_only, "%s/a/x.jpg: damaged JPEG: Premature end of JPEG file" },
    { cmyk_jpeg, "%s/a/x.jpg: JPEG with 4 colour components (CMYK); save it as RGB or grey" },
    { cut_png, "%s/a/x.png: damaged PNG: file ends too early" },
    { png_with_bad_sum, "%s/a/x.png: damaged PNG: IDAT: CRC error" },
    { png_head_only, "%s/a/x.png: damaged PNG: file ends too early" },
    { png_of_2_gigapixels,
      "%s/a/x.png: image of 50000x50000 pixels; 1 to 67108864 pixels are supported" },
    { text_file, "%s/a/x.jpg: is neither a JPEG nor a PNG file" },
    { no_bytes, "%s/a/x.jpg: has 0 bytes; an image file has 1 to 268435456" },
    { broken_link, "%s/a/x.jpg: No such file or directory" },
    { pipe_as_image, "%s/a/x.jpg: is a device or pipe, but a file is expected" },
};

START_TEST(a_damaged_image_is_an_error_with_its_path)
{
    uint8_t pixels[3 * 16 * 16];
    struct gems_error err = { 0 };
    struct dataset *set;

    damages[_i].make_it();
    set = open_one(3, 16, 16);
    expect_text(&err, dataset_read(set, 0, pixels, &err), damages[_i].text);
    ck_assert_int_eq(err.status, GEMS_E_DATA);
    ck_assert_int_eq(dataset_read(set, 0, pixels, NULL), GEMS_E_DATA);
    dataset_close(set);
}
END_TEST

START_TEST(a_file_that_may_not_be_read_is_an_error)
{
    uint8_t pixels[16];
    struct gems_error err = { 0 };
    struct dataset *set;

    write_grey("a/x.png", 1);
    set = open_one(1, 4, 4);
    ck_assert_int_eq(chmod(files_path(dir.path, "a/x.png"), 0), 0);
    /* Root may read everything: the file is then taken away. */
    if (access(files_path(dir.path, "a/x.png"), R_OK) == 0) {
        unlink(files_path(dir.path, "a/x.png"));
        expect_text(&err, dataset_read(set, 0, pixels, &err),
                    "%s/a/x.png: No such file or directory");
    } else {
        expect_text(&err, dataset_read(set, 0, pixels, &err), "%s/a/x.png: Permission denied");
    }
    dataset_close(set);
}
END_TEST

/* Cut anywhere, a file must never decode; a flipped bit may, but not crash. */
START_TEST(no_prefix_of_an_image_decodes)
{
    const char *path = _i == 0 ? make_jpeg("a/x.jpg") : make_png("a/x.png");
    uint8_t pixels[3 * 16 * 16];
    size_t n;
    uint8_t *bytes = files_read(path, &n);
    struct dataset *set = open_one(3, 16, 16);

    must_read(set, 0, pixels);
    for (size_t k = 0; k < n; k++) {
        files_write(path, bytes, k);
        ck_assert_int_eq(dataset_read(set, 0, pixels, NULL), GEMS_E_DATA);
    }
    free(bytes);
    dataset_close(set);
}
END_TEST

START_TEST(a_flipped_bit_never_crashes_a_decoder)
{
    const char *path = _i == 0 ? make_jpeg("a/x.jpg") : make_png("a/x.png");
    uint8_t pixels[3 * 16 * 16];
    size_t n;
    uint8_t *bytes = files_read(path, &n);
    struct dataset *set = open_one(3, 16, 16);
    uint32_t n_refused = 0;

    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        files_write(path, bytes, n);
        n_refused += dataset_read(set, 0, pixels, NULL) < 0;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    ck_assert_uint_gt(n_refused, n);
    free(bytes);
    dataset_close(set);
}
END_TEST

/* The header and every byte of a small idx pair, flipped. */
START_TEST(a_flipped_bit_never_crashes_idx)
{
    const char *name = _i == 0 ? image_name : label_name;
    struct dataset_spec spec = spec_of(DATASET_IDX, dir.path, 1, 4, 3);
    uint8_t pixels[16], *bytes;
    uint32_t n_refused = 0;
    size_t n;

    files_write_idx(files_path(dir.path, "train"), 2, 4, 4, 3, 0);
    bytes = files_read(files_path(dir.path, name), &n);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        struct dataset *set;

        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        files_write(files_path(dir.path, name), bytes, n);
        if (dataset_open(&spec, &set, NULL) == 0) {
            must_read(set, dataset_samples(set) - 1, pixels);
            dataset_close(set);
        } else {
            n_refused++;
        }
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* All of the header, except a height and width that swap places. */
    ck_assert_uint_ge(n_refused, _i == 0 ? 8 * 16 - 4 : 8 * 8);
    free(bytes);
}
END_TEST

/* ---- other sizes ---- */

START_TEST(the_centre_of_a_wide_image_is_cut_out)
{
    uint8_t saved[8 * 16], pixels[64];
    struct dataset *set;

    for (uint32_t p = 0; p < sizeof saved; p++) {
        saved[p] = (uint8_t)(p % 16 * 10 + p / 16);
    }
    files_write_png(files_path(dir.path, "a/x.png"), saved, 16, 8, 16, PNG_COLOR_TYPE_GRAY, 8);
    set = open_one(1, 8, 8);
    must_read(set, 0, pixels);
    for (uint32_t p = 0; p < 64; p++) {
        ck_assert_uint_eq(pixels[p], (p % 8 + 4) * 10 + p / 8);
    }
    dataset_close(set);
}
END_TEST

/* A slope stays a slope: value at an output's centre, away from the border. */
START_TEST(resizing_keeps_a_slope)
{
    static const struct {
        uint32_t from, to;
    } sizes[] = { { 32, 16 }, { 32, 8 }, { 30, 20 }, { 16, 32 }, { 8, 32 }, { 20, 21 } };
    uint32_t from = sizes[_i].from, to = sizes[_i].to;
    uint8_t saved[32 * 32], pixels[32 * 32];
    double scale = (double)to / from;
    uint32_t border = (uint32_t)(scale < 1.0 ? 2 : 1.5 * scale + 1);
    struct dataset *set;

    for (uint32_t p = 0; p < from * from; p++) {
        saved[p] = (uint8_t)(20 + p % from * 4 + p / from * 2);
    }
    files_write_png(files_path(dir.path, "a/x.png"), saved, from, from, from, PNG_COLOR_TYPE_GRAY,
                    8);
    set = open_one(1, to, to);
    must_read(set, 0, pixels);
    for (uint32_t y = border; y < to - border; y++) {
        for (uint32_t x = border; x < to - border; x++) {
            double sx = (x + 0.5) / scale - 0.5, sy = (y + 0.5) / scale - 0.5;

            expect_near(pixels[y * to + x], (unsigned)(20 + sx * 4 + sy * 2 + 0.5), 1);
        }
    }
    dataset_close(set);
}
END_TEST

START_TEST(shrinking_looks_at_every_pixel)
{
    uint8_t saved[64 * 64], pixels[64];
    struct dataset *set;

    for (uint32_t p = 0; p < sizeof saved; p++) {
        saved[p] = (p % 64 + p / 64) % 2 ? 255 : 0;
    }
    files_write_png(files_path(dir.path, "a/x.png"), saved, 64, 64, 64, PNG_COLOR_TYPE_GRAY, 8);
    set = open_one(1, 8, 8);
    must_read(set, 0, pixels);
    for (uint32_t p = 0; p < 64; p++) {
        expect_near(pixels[p], 128, 1);
    }
    dataset_close(set);
}
END_TEST

START_TEST(one_colour_stays_at_any_size)
{
    static const uint32_t sizes[][2] = { { 1, 1 }, { 3, 7 }, { 50, 2 }, { 1, 64 }, { 5, 5 } };
    uint8_t saved[4 * 4 * 3], pixels[3 * 128];
    uint32_t n = sizes[_i][0] * sizes[_i][1];
    struct dataset *set;

    for (uint32_t p = 0; p < sizeof saved; p++) {
        saved[p] = (uint8_t)(100 + p % 3);
    }
    files_write_png(files_path(dir.path, "a/x.png"), saved, 12, 4, 4, PNG_COLOR_TYPE_RGB, 8);
    set = open_one(3, sizes[_i][0], sizes[_i][1]);
    must_read(set, 0, pixels);
    for (uint32_t p = 0; p < 3 * n; p++) {
        ck_assert_uint_eq(pixels[p], 100 + p / n);
    }
    dataset_close(set);
}
END_TEST

static TCase *new_case(Suite *s, const char *name)
{
    TCase *tc = tcase_create(name);

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    suite_add_tcase(s, tc);
    return tc;
}

#define N(array) (int)(sizeof(array) / sizeof(array)[0])

static Suite *suite(void)
{
    Suite *s = suite_create("dataset");
    TCase *tc = new_case(s, "synthetic");

    tcase_add_test(tc, synthetic_images_follow_from_seed_and_number);
    tcase_add_test(tc, synthetic_classes_can_be_learned);
    tcase_add_loop_test(tc, synthetic_images_come_in_any_size, 0, 4);
    tcase_add_test(tc, a_set_without_samples_is_refused);
    tcase_add_test(tc, nonsense_in_the_spec_is_refused);
    tcase_add_test(tc, a_sample_beyond_the_end_is_our_own_mistake);
    tc = new_case(s, "idx");
    tcase_add_loop_test(tc, idx_gives_pixels_and_labels_packed_or_not, 0, 2);
    tcase_add_test(tc, a_folder_stands_for_train_or_t10k);
    tcase_add_test(tc, grey_idx_images_fill_three_channels);
    tcase_add_test(tc, no_temporary_file_is_left_of_packed_images);
    tcase_add_test(tc, packed_images_need_room_for_a_temporary_file);
    tcase_add_test(tc, a_full_disk_is_told_apart_from_bad_data);
    tcase_add_loop_test(tc, an_index_needs_no_room_and_gives_no_pixels, 0, 2);
    tcase_add_loop_test(tc, a_wrong_idx_file_is_refused_by_name, 0, N(idx_cases));
    tcase_add_test(tc, a_missing_prefix_tells_what_a_path_is);
    tcase_add_loop_test(tc, a_damaged_packed_file_is_refused, 0, 4);
    tcase_add_loop_test(tc, a_flipped_bit_never_crashes_idx, 0, 2);
    tc = new_case(s, "imagefolder");
    tcase_add_loop_test(tc, jpeg_pixels_are_those_that_were_saved, 0, 2);
    tcase_add_test(tc, colours_become_grey_alike_in_jpeg_and_png);
    tcase_add_loop_test(tc, every_kind_of_png_becomes_8_bit_colours, 0, N(pngs));
    tcase_add_test(tc, classes_and_files_come_in_bytewise_order);
    tcase_add_test(tc, links_are_followed);
    tcase_add_loop_test(tc, a_wrong_folder_is_refused_by_name, 0, N(folder_cases));
    tcase_add_loop_test(tc, a_damaged_image_is_an_error_with_its_path, 0, N(damages));
    tcase_add_test(tc, a_file_that_may_not_be_read_is_an_error);
    tcase_add_loop_test(tc, no_prefix_of_an_image_decodes, 0, 2);
    tcase_add_loop_test(tc, a_flipped_bit_never_crashes_a_decoder, 0, 2);
    tc = new_case(s, "sizes");
    tcase_add_test(tc, the_centre_of_a_wide_image_is_cut_out);
    tcase_add_loop_test(tc, resizing_keeps_a_slope, 0, 6);
    tcase_add_test(tc, shrinking_looks_at_every_pixel);
    tcase_add_loop_test(tc, one_colour_stays_at_any_size, 0, 5);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
