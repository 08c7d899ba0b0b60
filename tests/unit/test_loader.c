/* The loader: one order whatever the threads, restart anywhere, errors at
 * their item. The permutation and the augmentation by themselves. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/hash.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/temp_dir.h"
#include "tests/unit/data_files.h"
#include "worker/data/augment.h"
#include "worker/data/loader.h"

/* ---- permutation ---- */

START_TEST(an_epoch_holds_every_sample_once)
{
    static const uint64_t more[] = { 100, 127, 128, 129, 1000, 4095, 4096, 4097, 60000, 65537 };
    uint64_t n = _i < 70 ? (uint64_t)_i + 1 : more[_i - 70];
    uint8_t *seen = calloc(n, 1);

    for (uint64_t position = 0; position < n; position++) {
        uint64_t sample = loader_permute(3, 5, n, position);

        ck_assert_uint_lt(sample, n);
        ck_assert_uint_eq(seen[sample], 0);
        seen[sample] = 1;
    }
    free(seen);
}
END_TEST

START_TEST(seeds_and_epochs_have_orders_of_their_own)
{
    uint32_t n_same_seed = 0, n_same_epoch = 0, n_fixed = 0, n_next = 0;

    for (uint64_t position = 0; position < 1000; position++) {
        uint64_t sample = loader_permute(1, 1, 1000, position);

        n_same_seed += sample == loader_permute(2, 1, 1000, position);
        n_same_epoch += sample == loader_permute(1, 2, 1000, position);
        n_fixed += sample == position;
        n_next += (sample + 1) % 1000 == loader_permute(1, 1, 1000, (position + 1) % 1000);
    }
    /* One is expected of each; ten is beyond chance. */
    ck_assert_uint_lt(n_same_seed, 10);
    ck_assert_uint_lt(n_same_epoch, 10);
    ck_assert_uint_lt(n_fixed, 10);
    ck_assert_uint_lt(n_next, 10);
}
END_TEST

START_TEST(a_large_set_is_permuted_without_a_table)
{
    uint64_t n = UINT64_C(1) << 40;

    for (uint64_t position = 0; position < 1000; position++) {
        ck_assert_uint_lt(loader_permute(1, 0, n + 17, position), n + 17);
    }
}
END_TEST

/* The order is part of a job's numbers: it must never change. */
START_TEST(the_order_is_the_one_of_earlier_versions)
{
    static const uint64_t samples[] = { 70, 10, 20, 25, 88, 51, 80, 45 };

    for (uint64_t position = 0; position < 8; position++) {
        ck_assert_uint_eq(loader_permute(1, 0, 100, position), samples[position]);
    }
}
END_TEST

/* ---- augmentation ---- */

static const uint8_t grid[3 * 4] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }; /* 3 rows of 4 */

static void expect_grid(struct augment augment, const int *expected)
{
    struct augment_table table;
    float values[12];
    double doubles[12];

    augment_table_init(&table, 0.5, 0.25);
    augment_apply(&augment, &table, grid, 1, 3, 4, false, values);
    augment_apply(&augment, &table, grid, 1, 3, 4, true, doubles);
    for (int i = 0; i < 12; i++) {
        double value = (expected[i] / 255.0 - 0.5) / 0.25;

        ck_assert(doubles[i] == value);
        ck_assert(values[i] == (float)value);
    }
}

START_TEST(images_flip_and_move_and_repeat_their_border)
{
    static const struct {
        struct augment augment;
        int expected[12];
    } cases[] = {
        { { false, 0, 0 }, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 } },
        { { true, 0, 0 }, { 4, 3, 2, 1, 8, 7, 6, 5, 12, 11, 10, 9 } },
        { { false, 1, 0 }, { 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8 } },
        { { false, -1, 0 }, { 5, 6, 7, 8, 9, 10, 11, 12, 9, 10, 11, 12 } },
        { { false, 0, 2 }, { 1, 1, 1, 2, 5, 5, 5, 6, 9, 9, 9, 10 } },
        { { false, 0, -1 }, { 2, 3, 4, 4, 6, 7, 8, 8, 10, 11, 12, 12 } },
        { { true, 0, 1 }, { 4, 4, 3, 2, 8, 8, 7, 6, 12, 12, 11, 10 } },
        { { true, -9, 9 }, { 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12 } },
    };

    expect_grid(cases[_i].augment, cases[_i].expected);
}
END_TEST

START_TEST(augmentation_uses_its_whole_range)
{
    uint32_t n_flipped = 0, downs[9] = { 0 }, rights[5] = { 0 };

    for (uint64_t sample = 0; sample < 4000; sample++) {
        struct augment a = augment_draw(1, 2, sample, true, true, 32, 16);

        n_flipped += a.is_flipped;
        ck_assert(a.down >= -4 && a.down <= 4 && a.right >= -2 && a.right <= 2);
        downs[a.down + 4]++;
        rights[a.right + 2]++;
    }
    ck_assert(n_flipped > 1850 && n_flipped < 2150);
    for (int i = 0; i < 9; i++) {
        ck_assert(downs[i] > 360 && downs[i] < 530);
    }
    for (int i = 0; i < 5; i++) {
        ck_assert(rights[i] > 680 && rights[i] < 920);
    }
}
END_TEST

START_TEST(augmentation_does_only_what_it_is_asked)
{
    for (uint64_t sample = 0; sample < 100; sample++) {
        struct augment none = augment_draw(1, 2, sample, false, false, 32, 32);
        struct augment flip = augment_draw(1, 2, sample, true, false, 32, 32);
        struct augment both = augment_draw(1, 2, sample, true, true, 32, 32);
        struct augment tiny = augment_draw(1, 2, sample, true, true, 7, 7);

        ck_assert(!none.is_flipped && none.down == 0 && none.right == 0);
        ck_assert(flip.down == 0 && flip.right == 0 && flip.is_flipped == both.is_flipped);
        ck_assert(tiny.down == 0 && tiny.right == 0);
    }
}
END_TEST

/* ---- loader ---- */

enum { BATCH = 5, SIDE = 8, CHANNELS = 2, N_TRAIN = 23, N_EVAL = 7, MAX_ITEMS = 64 };

struct plan {
    struct loader_item items[MAX_ITEMS];
    uint64_t n;
};

static bool sequence(void *arg, uint64_t i, struct loader_item *ret_item)
{
    const struct plan *plan = arg;

    if (i >= plan->n) {
        return false;
    }
    *ret_item = plan->items[i];
    return true;
}

/* Three epochs in micro-batches of 5 with a short last one, each with an
 * evaluation behind it. */
static struct plan epochs(void)
{
    struct plan plan = { .n = 0 };

    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        for (uint64_t first = 0; first < N_TRAIN; first += BATCH) {
            uint64_t left = N_TRAIN - first;

            plan.items[plan.n++] =
                (struct loader_item){ epoch, first, left < BATCH ? (uint32_t)left : BATCH,
                                      false, true,  true };
        }
        for (uint64_t first = 0; first < N_EVAL; first += BATCH) {
            uint64_t left = N_EVAL - first;

            plan.items[plan.n++] =
                (struct loader_item){ epoch, first, left < BATCH ? (uint32_t)left : BATCH,
                                      true,  true,  true };
        }
    }
    return plan;
}

static struct dataset *open_synthetic(uint64_t samples, bool is_eval)
{
    struct dataset_spec spec = { .format = DATASET_SYNTHETIC,
                                 .is_eval = is_eval,
                                 .channels = CHANNELS,
                                 .height = SIDE,
                                 .width = SIDE,
                                 .classes = 3,
                                 .samples = samples,
                                 .seed = 4 };
    struct gems_error err = { 0 };
    struct dataset *set = NULL;

    ck_assert_msg(dataset_open(&spec, &set, &err) == 0, "%s", err.text);
    return set;
}

/* A loader with its data sets and buffers. */
struct bench {
    struct dataset *train, *eval;
    struct plan plan;
    struct loader_config config;
    struct loader *loader;
};

static void bench_init(struct bench *b, uint32_t n_threads, uint32_t depth)
{
    *b = (struct bench){ .train = open_synthetic(N_TRAIN, false),
                         .eval = open_synthetic(N_EVAL, true),
                         .plan = epochs() };
    b->config = (struct loader_config){
        .train = b->train,
        .eval = b->eval,
        .has_images = true,
        .has_labels = true,
        .is_flip = true,
        .is_shift = true,
        .mean = 0.5,
        .std = 0.25,
        .seed = 6,
        .max_batch = BATCH,
        .n_threads = n_threads,
        .sequence = sequence,
        .depth = depth,
    };
}

static void bench_start(struct bench *b)
{
    struct gems_error err = { 0 };
    uint64_t bytes = loader_buffer_bytes(BATCH, CHANNELS, SIDE, SIDE, b->config.is_f64,
                                         b->config.has_images, b->config.has_labels);

    b->config.sequence_arg = &b->plan;
    b->config.buffers = aligned_alloc(64, bytes * b->config.depth);
    ck_assert_msg(loader_create(&b->config, &b->loader, &err) == 0, "%s", err.text);
}

static void bench_fini(struct bench *b)
{
    loader_destroy(b->loader);
    dataset_close(b->train);
    dataset_close(b->eval);
    free(b->config.buffers);
}

/* Hash of everything items [0, n) hold. */
static void hash_items(struct bench *b, uint64_t n, uint8_t ret_hash[HASH_BYTES])
{
    struct hash_stream *hash = hash_create(NULL);
    size_t image = (size_t)CHANNELS * SIDE * SIDE * (b->config.is_f64 ? 8 : 4);

    for (uint64_t i = 0; i < n; i++) {
        struct gems_error err = { 0 };
        const uint32_t *labels;
        const void *images;

        ck_assert_msg(loader_next(b->loader, i, &images, &labels, &err) == 0, "%s", err.text);
        hash_add(hash, images, b->plan.items[i].n * image);
        hash_add(hash, labels, b->plan.items[i].n * sizeof *labels);
        loader_release(b->loader, i);
    }
    hash_value(hash, ret_hash);
    hash_destroy(hash);
}

START_TEST(any_number_of_threads_and_buffers_gives_the_same)
{
    static const uint32_t shapes[][2] = { { 1, 1 }, { 1, 4 }, { 2, 2 },
                                          { 3, 1 }, { 5, 3 }, { 16, 8 } };
    uint8_t expected[HASH_BYTES], hash[HASH_BYTES];
    struct bench b;

    bench_init(&b, 1, 2);
    bench_start(&b);
    hash_items(&b, b.plan.n, expected);
    bench_fini(&b);
    for (int repeat = 0; repeat < 5; repeat++) {
        bench_init(&b, shapes[_i][0], shapes[_i][1]);
        bench_start(&b);
        hash_items(&b, b.plan.n, hash);
        bench_fini(&b);
        ck_assert_int_eq(memcmp(hash, expected, sizeof hash), 0);
    }
}
END_TEST

START_TEST(values_are_normalised_pixels_in_the_order_of_the_epoch)
{
    static uint8_t pixels[CHANNELS * SIDE * SIDE];
    struct bench b;

    bench_init(&b, 2, 3);
    b.config.is_flip = b.config.is_shift = false;
    b.config.is_f64 = _i == 1;
    bench_start(&b);
    for (uint64_t i = 0; i < b.plan.n; i++) {
        const struct loader_item *item = &b.plan.items[i];
        struct dataset *set = item->is_eval ? b.eval : b.train;
        const uint32_t *labels;
        const void *images;

        ck_assert_int_eq(loader_next(b.loader, i, &images, &labels, NULL), 0);
        ck_assert_uint_eq((uintptr_t)images % 64, 0);
        ck_assert_uint_eq((uintptr_t)labels % 64, 0);
        for (uint32_t k = 0; k < item->n; k++) {
            uint64_t sample = item->is_eval
                                  ? item->first + k
                                  : loader_permute(6, item->epoch, N_TRAIN, item->first + k);

            ck_assert_uint_eq(labels[k], dataset_label(set, sample));
            ck_assert_int_eq(dataset_read(set, sample, pixels, NULL), 0);
            for (size_t p = 0; p < sizeof pixels; p++) {
                size_t at = k * sizeof pixels + p;
                double value = (pixels[p] / 255.0 - 0.5) / 0.25;

                ck_assert(b.config.is_f64 ? ((const double *)images)[at] == value
                                          : ((const float *)images)[at] == (float)value);
            }
        }
        loader_release(b.loader, i);
    }
    bench_fini(&b);
}
END_TEST

/* Evaluation sees the images as they are, in every epoch. */
START_TEST(evaluation_is_not_augmented)
{
    static const uint64_t evals[] = { 5, 12, 19 };
    static float first[BATCH * CHANNELS * SIDE * SIDE];
    struct bench b;

    bench_init(&b, 1, 32);
    bench_start(&b);
    for (int k = 0; k < 3; k++) {
        const uint32_t *labels;
        const void *images;

        ck_assert(b.plan.items[evals[k]].is_eval);
        ck_assert_int_eq(loader_next(b.loader, evals[k], &images, &labels, NULL), 0);
        if (k == 0) {
            memcpy(first, images, sizeof first);
        }
        ck_assert_int_eq(memcmp(images, first, sizeof first), 0);
    }
    bench_fini(&b);
}
END_TEST

START_TEST(a_restart_in_the_middle_continues_the_same)
{
    size_t bytes = sizeof(float) * BATCH * CHANNELS * SIDE * SIDE;
    struct bench whole, rest;

    bench_init(&whole, 2, 32);
    bench_start(&whole);
    bench_init(&rest, 3, 2);
    rest.plan.n -= 9;
    memmove(rest.plan.items, rest.plan.items + 9, rest.plan.n * sizeof rest.plan.items[0]);
    bench_start(&rest);
    for (uint64_t i = 0; i < rest.plan.n; i++) {
        const void *a, *b;
        const uint32_t *labels_a, *labels_b;
        uint32_t n = rest.plan.items[i].n;

        ck_assert_int_eq(loader_next(whole.loader, i + 9, &a, &labels_a, NULL), 0);
        ck_assert_int_eq(loader_next(rest.loader, i, &b, &labels_b, NULL), 0);
        ck_assert_int_eq(memcmp(a, b, bytes / BATCH * n), 0);
        ck_assert_int_eq(memcmp(labels_a, labels_b, n * sizeof *labels_a), 0);
        loader_release(rest.loader, i);
    }
    bench_fini(&whole);
    bench_fini(&rest);
}
END_TEST

START_TEST(an_item_holds_only_what_it_wants)
{
    struct bench b;

    bench_init(&b, 2, 2);
    for (uint64_t i = 0; i < b.plan.n; i++) {
        b.plan.items[i].has_images = i % 3 != 0;
        b.plan.items[i].has_labels = i % 3 != 1;
    }
    bench_start(&b);
    for (uint64_t i = 0; i < b.plan.n; i++) {
        const struct loader_item *item = &b.plan.items[i];
        const uint32_t *labels;
        const void *images;

        ck_assert_int_eq(loader_next(b.loader, i, &images, &labels, NULL), 0);
        ck_assert_int_eq(images != NULL, item->has_images);
        ck_assert_int_eq(labels != NULL, item->has_labels);
        if (labels && !item->is_eval) {
            uint64_t sample = loader_permute(6, item->epoch, N_TRAIN, item->first);

            ck_assert_uint_eq(labels[0], dataset_label(b.train, sample));
        }
        loader_release(b.loader, i);
    }
    bench_fini(&b);
}
END_TEST

START_TEST(an_item_must_fit_the_buffers)
{
    struct gems_error err = { 0 };
    struct bench b;
    const void *images;
    const uint32_t *labels;

    bench_init(&b, 1, 2);
    b.config.has_images = _i == 0;
    b.config.has_labels = _i == 1;
    bench_start(&b);
    ck_assert_int_eq(loader_next(b.loader, 0, &images, &labels, &err), GEMS_E_INTERNAL);
    ck_assert_str_eq(err.text, "loader: item 0 wants more than the buffers have room for");
    bench_fini(&b);
}
END_TEST

START_TEST(buffers_are_as_large_as_stated)
{
    ck_assert_uint_eq(loader_buffer_bytes(5, 2, 8, 8, false, true, true), 2560 + 64);
    ck_assert_uint_eq(loader_buffer_bytes(5, 2, 8, 8, true, true, true), 5120 + 64);
    ck_assert_uint_eq(loader_buffer_bytes(5, 2, 8, 8, false, true, false), 2560);
    ck_assert_uint_eq(loader_buffer_bytes(17, 2, 8, 8, false, false, true), 128);
    ck_assert_uint_eq(loader_buffer_bytes(5, 2, 8, 8, false, false, false), 0);
    ck_assert_uint_eq(loader_buffer_bytes(1, 3, 65536, 65536, true, true, false),
                      UINT64_C(3) * 8 << 32);
}
END_TEST

START_TEST(several_items_can_be_held_at_once)
{
    struct bench b;
    const void *images[4];
    const uint32_t *labels[4];

    bench_init(&b, 2, 4);
    bench_start(&b);
    for (uint64_t i = 0; i < 4; i++) {
        ck_assert_int_eq(loader_next(b.loader, i, &images[i], &labels[i], NULL), 0);
    }
    for (uint64_t i = 0; i < 4; i++) {
        for (uint64_t k = 0; k < i; k++) {
            ck_assert_ptr_ne(images[i], images[k]);
        }
    }
    /* Given back out of order; the next ones follow when theirs is free. */
    loader_release(b.loader, 1);
    loader_release(b.loader, 0);
    ck_assert_int_eq(loader_next(b.loader, 4, &images[0], &labels[0], NULL), 0);
    ck_assert_int_eq(loader_next(b.loader, 5, &images[1], &labels[1], NULL), 0);
    bench_fini(&b);
}
END_TEST

START_TEST(beyond_the_last_item_there_is_none)
{
    struct gems_error err = { 0 };
    struct bench b;
    uint8_t hash[HASH_BYTES];
    const void *images = NULL;
    const uint32_t *labels = NULL;

    bench_init(&b, 2, 3);
    bench_start(&b);
    hash_items(&b, b.plan.n, hash);
    ck_assert_int_eq(loader_next(b.loader, b.plan.n, &images, &labels, &err), GEMS_E_INTERNAL);
    ck_assert_str_eq(err.text, "loader: there is no item 21");
    /* One that was given back does not come again. */
    ck_assert_int_eq(loader_next(b.loader, 3, &images, &labels, &err), GEMS_E_INTERNAL);
    ck_assert_ptr_null(images);
    bench_fini(&b);
}
END_TEST

START_TEST(an_item_outside_the_set_is_our_own_mistake)
{
    static const struct loader_item wrong[] = {
        { 0, N_TRAIN - 1, 2, false, true, true }, { 0, 0, 0, false, true, true },
        { 0, 0, BATCH + 1, false, true, true },   { 0, UINT64_MAX, 2, false, true, true },
        { 0, N_EVAL, 1, true, true, true },
    };
    static const char *const texts[] = {
        "loader: item 1 asks for samples 22 to 24 of 23, 5 at once",
        "loader: item 1 asks for samples 0 to 0 of 23, 5 at once",
        "loader: item 1 asks for samples 0 to 6 of 23, 5 at once",
        "loader: item 1 asks for samples 18446744073709551615 to 1 of 23, 5 at once",
        "loader: item 1 asks for samples 7 to 8 of 7, 5 at once",
    };
    struct gems_error err = { 0 };
    struct bench b;
    const void *images;
    const uint32_t *labels;

    bench_init(&b, 2, 3);
    b.plan.items[1] = wrong[_i];
    bench_start(&b);
    ck_assert_int_eq(loader_next(b.loader, 0, &images, &labels, &err), 0);
    ck_assert_int_eq(loader_next(b.loader, 1, &images, &labels, &err), GEMS_E_INTERNAL);
    ck_assert_str_eq(err.text, texts[_i]);
    ck_assert_int_eq(loader_next(b.loader, 2, &images, &labels, &err), 0);
    bench_fini(&b);
}
END_TEST

START_TEST(an_incomplete_configuration_is_refused)
{
    struct gems_error err = { 0 };
    struct loader *loader = NULL;
    struct bench b;
    char memory[64];

    bench_init(&b, 1, 1);
    ck_assert_int_eq(loader_create(&b.config, &loader, &err), GEMS_E_INTERNAL);
    ck_assert_str_eq(err.text, "loader: incomplete configuration");
    b.config.buffers = memory;
    b.config.std = 0.0;
    ck_assert_int_eq(loader_create(&b.config, &loader, NULL), GEMS_E_INTERNAL);
    ck_assert_ptr_null(loader);
    dataset_close(b.train);
    dataset_close(b.eval);
}
END_TEST

/* Destroyed at any moment: nothing hangs, nothing leaks. */
START_TEST(a_loader_can_be_destroyed_at_any_time)
{
    for (uint64_t n = 0; n < 12; n++) {
        uint8_t hash[HASH_BYTES];
        struct bench b;

        bench_init(&b, 1 + (uint32_t)n % 4, 2);
        bench_start(&b);
        hash_items(&b, n, hash);
        bench_fini(&b);
    }
    loader_destroy(NULL);
}
END_TEST

/* ---- errors of samples ---- */

/* Ten grey images in one class; those in `damaged` are text files. */
static struct dataset *open_damaged(const struct temp_dir *dir, const uint32_t *damaged, size_t n)
{
    struct dataset_spec spec = { .format = DATASET_IMAGEFOLDER,
                                 .path = dir->path,
                                 .channels = 1,
                                 .height = 4,
                                 .width = 4,
                                 .classes = 1 };
    struct gems_error err = { 0 };
    struct dataset *set = NULL;
    char name[] = "a/0.png";
    uint8_t pixels[16] = { 0 };

    for (uint32_t i = 0; i < 10; i++) {
        name[2] = (char)('0' + i);
        files_write_png(files_path(dir->path, name), pixels, 4, 4, 4, 0, 8);
    }
    for (size_t i = 0; i < n; i++) {
        name[2] = (char)('0' + damaged[i]);
        files_write(files_path(dir->path, name), "text", 4);
    }
    ck_assert_msg(dataset_open(&spec, &set, &err) == 0, "%s", err.text);
    return set;
}

START_TEST(a_damaged_sample_fails_its_item_alone)
{
    static const uint32_t damaged[] = { 6, 5, 8 };
    struct temp_dir dir;
    struct plan plan = { { { 0, 0, 5, true, true, true },
                           { 0, 5, 5, true, true, true },
                           { 0, 0, 5, true, true, true } },
                         3 };
    struct loader_config config = {
        .has_images = true,
        .has_labels = true,
        .mean = 0.0,
        .std = 1.0,
        .max_batch = 5,
        .n_threads = (uint32_t)_i,
        .sequence = sequence,
        .sequence_arg = &plan,
        .depth = 3,
    };
    char text[200];
    struct gems_error err = { 0 };
    struct loader *loader;
    const void *images;
    const uint32_t *labels;

    temp_dir_create(&dir);
    config.train = config.eval = open_damaged(&dir, damaged, 3);
    config.buffers = aligned_alloc(64, 3 * loader_buffer_bytes(5, 1, 4, 4, false, true, true));
    ck_assert_int_eq(loader_create(&config, &loader, NULL), 0);
    ck_assert_int_eq(loader_next(loader, 0, &images, &labels, &err), 0);
    ck_assert_int_eq(loader_next(loader, 1, &images, &labels, &err), GEMS_E_DATA);
    /* The first by place, whichever thread was first. */
    snprintf(text, sizeof text, "%s/a/5.png: is neither a JPEG nor a PNG file", dir.path);
    ck_assert_str_eq(err.text, text);
    ck_assert_int_eq(loader_next(loader, 1, &images, &labels, NULL), GEMS_E_DATA);
    ck_assert_int_eq(loader_next(loader, 2, &images, &labels, &err), 0);
    loader_destroy(loader);
    free(config.buffers);
    dataset_close(config.train);
    temp_dir_destroy(&dir);
}
END_TEST

START_TEST(a_rank_that_needs_labels_only_decodes_nothing)
{
    static const uint32_t damaged[] = { 0, 1, 2, 3, 4 };
    struct temp_dir dir;
    struct plan plan = { { { 0, 0, 5, true, false, true } }, 1 };
    struct loader_config config = {
        .has_labels = true,
        .std = 1.0,
        .max_batch = 5,
        .n_threads = 2,
        .sequence = sequence,
        .sequence_arg = &plan,
        .depth = 1,
    };
    struct loader *loader;
    const void *images;
    const uint32_t *labels;

    temp_dir_create(&dir);
    config.train = config.eval = open_damaged(&dir, damaged, 5);
    config.buffers = aligned_alloc(64, 64);
    ck_assert_int_eq(loader_create(&config, &loader, NULL), 0);
    ck_assert_int_eq(loader_next(loader, 0, &images, &labels, NULL), 0);
    loader_destroy(loader);
    free(config.buffers);
    dataset_close(config.train);
    temp_dir_destroy(&dir);
}
END_TEST

static TCase *new_case(Suite *s, const char *name)
{
    TCase *tc = tcase_create(name);

    tcase_set_timeout(tc, 120);
    suite_add_tcase(s, tc);
    return tc;
}

static Suite *suite(void)
{
    Suite *s = suite_create("loader");
    TCase *tc = new_case(s, "permutation");

    tcase_add_loop_test(tc, an_epoch_holds_every_sample_once, 0, 80);
    tcase_add_test(tc, seeds_and_epochs_have_orders_of_their_own);
    tcase_add_test(tc, a_large_set_is_permuted_without_a_table);
    tcase_add_test(tc, the_order_is_the_one_of_earlier_versions);
    tc = new_case(s, "augmentation");
    tcase_add_loop_test(tc, images_flip_and_move_and_repeat_their_border, 0, 8);
    tcase_add_test(tc, augmentation_uses_its_whole_range);
    tcase_add_test(tc, augmentation_does_only_what_it_is_asked);
    tc = new_case(s, "loader");
    tcase_add_loop_test(tc, any_number_of_threads_and_buffers_gives_the_same, 0, 6);
    tcase_add_loop_test(tc, values_are_normalised_pixels_in_the_order_of_the_epoch, 0, 2);
    tcase_add_test(tc, evaluation_is_not_augmented);
    tcase_add_test(tc, a_restart_in_the_middle_continues_the_same);
    tcase_add_test(tc, an_item_holds_only_what_it_wants);
    tcase_add_loop_test(tc, an_item_must_fit_the_buffers, 0, 2);
    tcase_add_test(tc, buffers_are_as_large_as_stated);
    tcase_add_test(tc, several_items_can_be_held_at_once);
    tcase_add_test(tc, beyond_the_last_item_there_is_none);
    tcase_add_loop_test(tc, an_item_outside_the_set_is_our_own_mistake, 0, 5);
    tcase_add_test(tc, an_incomplete_configuration_is_refused);
    tcase_add_test(tc, a_loader_can_be_destroyed_at_any_time);
    tc = new_case(s, "errors");
    tcase_add_loop_test(tc, a_damaged_sample_fails_its_item_alone, 1, 5);
    tcase_add_test(tc, a_rank_that_needs_labels_only_decodes_nothing);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
