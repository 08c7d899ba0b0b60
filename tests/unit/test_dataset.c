/* Data sets: what a sample decodes to, and the words for each thing that can
 * be wrong with a user's files. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <png.h>

#include "common/error.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/temp_dir.h"
#include "tests/unit/data_files.h"
#include "worker/data/dataset.h"

static struct temp_dir dir;

static void set_up(void)
{
    temp_dir_create(&dir);
}

static void tear_down(void)
{
    temp_dir_destroy(&dir);
}

static struct dataset_spec spec_of(enum dataset_format format, const char *path, uint32_t channels,
                                   uint32_t side, uint32_t classes)
{
    return (struct dataset_spec){ .format = format, .path = path, .channels = channels,
                                  .height = side, .width = side, .classes = classes };
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

#define PCAM SHARED_DATA "/pcam/val"

START_TEST(every_tile_of_a_real_set_decodes)
{
    struct dataset_spec spec = spec_of(DATASET_IMAGEFOLDER, PCAM, 3, 96, 2);
    static uint8_t pixels[3 * 96 * 96];
    struct dataset *set;
    uint64_t sum = 0, n_tumor = 0;

    if (access(PCAM, R_OK) < 0) {
        return;
    }
    set = must_open(&spec);
    ck_assert_uint_eq(dataset_samples(set), 1000);
    for (uint64_t i = 0; i < 1000; i++) {
        must_read(set, i, pixels);
        n_tumor += dataset_label(set, i);
        sum += pixels[i];
    }
    ck_assert_uint_eq(n_tumor, 500);
    ck_assert_uint_gt(sum, 1000);
    dataset_close(set);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("dataset");
    TCase *real = tcase_create("real");

    tcase_set_timeout(real, 60);
    tcase_add_checked_fixture(real, set_up, tear_down);
    tcase_add_test(real, every_tile_of_a_real_set_decodes);
    suite_add_tcase(s, real);
    (void)expect_refusal;
    return s;
}

int main(void)
{
    return run_suite(suite());
}
