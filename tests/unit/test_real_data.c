/* Data sets that lie on some machines only: a set of tissue tiles, and the
 * Debian package of Fashion-MNIST. Without any of them: skipped. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/error.h"
#include "tests/lib/run_suite.h"
#include "worker/data/dataset.h"

#define TILES SHARED_DATA "/pcam/val"
#define FASHION "/usr/share/datasets/fashion-mnist"

enum { EXIT_SKIPPED = 77 };

static struct dataset *must_open(const struct dataset_spec *spec)
{
    struct gems_error err = { 0 };
    struct dataset *set = NULL;

    ck_assert_msg(dataset_open(spec, &set, &err) == 0, "%s", err.text);
    return set;
}

/* Reads all samples; counts labels and sums up all pixels. */
static uint64_t read_all(struct dataset *set, uint32_t *ret_counts, uint8_t *pixels,
                         size_t n_pixels)
{
    struct gems_error err = { 0 };
    uint64_t sum = 0;

    for (uint64_t i = 0; i < dataset_samples(set); i++) {
        ck_assert_msg(dataset_read(set, i, pixels, &err) == 0, "%s", err.text);
        ret_counts[dataset_label(set, i)]++;
        for (size_t p = 0; p < n_pixels; p++) {
            sum += pixels[p];
        }
    }
    return sum;
}

START_TEST(every_tissue_tile_decodes)
{
    struct dataset_spec spec = { .format = DATASET_IMAGEFOLDER,
                                 .path = TILES,
                                 .channels = 3,
                                 .height = 96,
                                 .width = 96,
                                 .classes = 2 };
    static uint8_t pixels[3 * 96 * 96];
    uint32_t counts[2] = { 0 };
    struct dataset *set = must_open(&spec);
    double mean;

    ck_assert_uint_eq(dataset_samples(set), 1000);
    mean = (double)read_all(set, counts, pixels, sizeof pixels) / (1000.0 * sizeof pixels);
    ck_assert_uint_eq(counts[0], 500);
    ck_assert_uint_eq(counts[1], 500);
    /* Stained tissue is bright. */
    ck_assert_double_gt(mean, 120.0);
    ck_assert_double_lt(mean, 220.0);
    dataset_close(set);
}
END_TEST

START_TEST(fashion_mnist_reads_as_packaged)
{
    struct dataset_spec spec = { .format = DATASET_IDX,
                                 .path = FASHION,
                                 .is_eval = _i == 1,
                                 .channels = 1,
                                 .height = 28,
                                 .width = 28,
                                 .classes = 10 };
    static uint8_t pixels[28 * 28];
    uint32_t counts[10] = { 0 }, n = _i == 1 ? 10000 : 60000;
    struct dataset *set = must_open(&spec);
    double mean;

    ck_assert_uint_eq(dataset_samples(set), n);
    mean = (double)read_all(set, counts, pixels, sizeof pixels) / ((double)n * sizeof pixels);
    for (int c = 0; c < 10; c++) {
        ck_assert_uint_eq(counts[c], n / 10);
    }
    /* Published mean of the training images: 0.2860. */
    ck_assert_double_eq_tol(mean / 255.0, 0.286, 0.002);
    dataset_close(set);
}
END_TEST

int main(void)
{
    bool has_tiles = access(TILES, R_OK) == 0, has_fashion = access(FASHION, R_OK) == 0;
    Suite *s = suite_create("real data");
    TCase *tc = tcase_create("real data");

    if (!has_tiles) {
        printf("skipped: no %s\n", TILES);
    }
    if (!has_fashion) {
        printf("skipped: no %s (Debian: dataset-fashion-mnist)\n", FASHION);
    }
    tcase_set_timeout(tc, 120);
    if (has_tiles) {
        tcase_add_test(tc, every_tissue_tile_decodes);
    }
    if (has_fashion) {
        tcase_add_loop_test(tc, fashion_mnist_reads_as_packaged, 0, 2);
    }
    suite_add_tcase(s, tc);
    if (run_suite(s) != EXIT_SUCCESS) {
        return EXIT_FAILURE;
    }
    return has_tiles || has_fashion ? EXIT_SUCCESS : EXIT_SKIPPED;
}
