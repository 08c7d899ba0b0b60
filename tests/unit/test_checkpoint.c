/* Checkpoint files: written as ranks send them, complete or not there, and
 * any damage is found and named. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fsutil.h"
#include "daemon/checkpoint_file.h"

enum { CHUNK = 100 << 10, ELEMENTS = 70 << 10 };

static char dir[256];
static struct gems_error err;
static float values[ELEMENTS];

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "test_checkpoint.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    memset(&err, 0, sizeof err);
    for (int i = 0; i < ELEMENTS; i++) {
        values[i] = (float)i * 0.5f;
    }
}

static void remove_dir(void)
{
    fs_remove_tree(".", dir, NULL);
}

static struct checkpoint_writer *new_writer(uint64_t step)
{
    struct checkpoint_meta meta = {
        .job = 3, .step = step, .seed = 7, .attempt = 2
    };
    struct checkpoint_writer *writer = NULL;

    ck_assert_msg(checkpoint_writer_create(dir, &meta, "spec", 4, &writer, &err) == GEMS_OK, "%s",
                  err.text);
    return writer;
}

static struct checkpoint_shard shard_at(const char *kind, const char *name, uint32_t order,
                                        uint64_t offset)
{
    struct checkpoint_shard shard = { .name = name,
                                      .kind = kind,
                                      .order = order,
                                      .n_dims = 2,
                                      .dims = { 70, 1024 },
                                      .offset = offset,
                                      .total = sizeof values };

    shard.data = (const uint8_t *)values + offset;
    shard.n = sizeof values - offset < CHUNK ? sizeof values - offset : CHUNK;
    hash_of(shard.data, shard.n, shard.hash);
    return shard;
}

static void add_tensor(struct checkpoint_writer *writer, const char *kind, const char *name,
                       uint32_t order)
{
    for (uint64_t offset = 0; offset < sizeof values; offset += CHUNK) {
        struct checkpoint_shard shard = shard_at(kind, name, order, offset);

        ck_assert_msg(checkpoint_writer_add(writer, &shard, &err) == GEMS_OK, "%s", err.text);
    }
}

static int commit(struct checkpoint_writer *writer, uint32_t n_tensors,
                  struct checkpoint_result *ret_result)
{
    const struct checkpoint_end end = {
        .samples = 320, .epoch = 1, .n_tensors = n_tensors, .is_final = true
    };

    return checkpoint_writer_commit(writer, &end, ret_result, &err);
}

/* Ranks own different tensors and send in any order. */
static struct checkpoint_result write_one(uint64_t step, bool is_reversed)
{
    struct checkpoint_writer *writer = new_writer(step);
    struct checkpoint_result result;

    add_tensor(writer, "weight", is_reversed ? "conv2.weight" : "conv1.weight", is_reversed);
    add_tensor(writer, "momentum", "conv1.weight", 0);
    add_tensor(writer, "weight", is_reversed ? "conv1.weight" : "conv2.weight", !is_reversed);
    ck_assert_msg(commit(writer, 3, &result) == GEMS_OK, "%s", err.text);
    checkpoint_writer_destroy(writer);
    return result;
}

static int count_files(void)
{
    DIR *handle = opendir(dir);
    int n = 0;

    while (readdir(handle)) {
        n++;
    }
    closedir(handle);
    return n - 2;
}

START_TEST(tensors_come_back_in_canonical_order)
{
    struct checkpoint_result result = write_one(40, true);
    struct checkpoint_reader *reader;
    char path[300];
    uint8_t *data;
    size_t n;
    uint64_t offset = 0, chunk_i = 0;

    checkpoint_path(dir, 40, path, sizeof path);
    ck_assert_msg(checkpoint_reader_open(path, &reader, &err) == GEMS_OK, "%s", err.text);
    ck_assert_uint_eq(checkpoint_reader_meta(reader)->step, 40);
    ck_assert_uint_eq(checkpoint_reader_meta(reader)->end.samples, 320);
    ck_assert_uint_eq(checkpoint_reader_meta(reader)->end.epoch, 1);
    ck_assert(checkpoint_reader_meta(reader)->end.is_final);
    ck_assert_str_eq(checkpoint_reader_weights_hash(reader), result.weights_hash);
    ck_assert_str_eq(checkpoint_reader_tensor(reader, 0)->kind, "momentum");
    ck_assert_str_eq(checkpoint_reader_tensor(reader, 1)->name, "conv1.weight");
    ck_assert_str_eq(checkpoint_reader_tensor(reader, 2)->name, "conv2.weight");
    ck_assert_uint_eq(checkpoint_reader_tensor(reader, 2)->dims[1], 1024);
    ck_assert_ptr_null(checkpoint_reader_tensor(reader, 3));
    ck_assert_int_eq(checkpoint_reader_find(reader, "weight", "conv2.weight"), 2);
    ck_assert_int_lt(checkpoint_reader_find(reader, "adam_m", "conv2.weight"), 0);
    while (offset < sizeof values) {
        ck_assert_int_eq(checkpoint_reader_chunk(reader, 2, chunk_i++, offset, &data, &n, &err),
                         GEMS_OK);
        ck_assert_mem_eq(data, (const uint8_t *)values + offset, n);
        offset += n;
        free(data);
    }
    ck_assert_int_eq(checkpoint_reader_chunk(reader, 2, 0, 5, &data, &n, &err), GEMS_E_DATA);
    ck_assert_int_eq(checkpoint_reader_chunk(reader, 2, 3, offset, &data, &n, &err),
                     GEMS_E_INVALID);
    checkpoint_reader_close(reader);
    ck_assert_int_eq(checkpoint_verify(path, &err), GEMS_OK);
    ck_assert_int_eq(count_files(), 1);
}
END_TEST

START_TEST(weights_hash_knows_weights_only_and_no_order_of_arrival)
{
    struct checkpoint_result a = write_one(1, false), b = write_one(2, true), c;

    ck_assert_str_eq(a.weights_hash, b.weights_hash);
    values[0] += 1;
    c = write_one(3, false);
    ck_assert_str_ne(a.weights_hash, c.weights_hash);
}
END_TEST

START_TEST(a_rank_may_send_a_tensor_again)
{
    struct checkpoint_writer *writer = new_writer(1);
    struct checkpoint_shard shard = shard_at("weight", "a", 0, 0);
    struct checkpoint_result result;
    char path[300];

    ck_assert_int_eq(checkpoint_writer_add(writer, &shard, &err), GEMS_OK);
    add_tensor(writer, "weight", "a", 0);
    add_tensor(writer, "weight", "b", 1);
    add_tensor(writer, "weight", "a", 0);
    ck_assert_int_eq(commit(writer, 2, &result), GEMS_OK);
    checkpoint_writer_destroy(writer);
    checkpoint_path(dir, 1, path, sizeof path);
    ck_assert_int_eq(checkpoint_verify(path, &err), GEMS_OK);
}
END_TEST

START_TEST(incomplete_is_not_committed)
{
    struct checkpoint_writer *writer = new_writer(1);
    struct checkpoint_shard shard = shard_at("weight", "a", 0, 0), bad;
    struct checkpoint_result result;

    ck_assert_int_eq(checkpoint_writer_add(writer, &shard, &err), GEMS_OK);
    ck_assert_int_eq(commit(writer, 1, &result), GEMS_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "weight a has"));
    ck_assert_int_eq(commit(writer, 2, &result), GEMS_E_INVALID);
    bad = shard_at("weight", "a", 0, 2 * CHUNK);
    ck_assert_int_eq(checkpoint_writer_add(writer, &bad, &err), GEMS_E_INVALID);
    bad = shard_at("weight", "a", 0, CHUNK);
    bad.hash[3] ^= 1;
    ck_assert_int_eq(checkpoint_writer_add(writer, &bad, &err), GEMS_E_DATA);
    bad = shard_at("weight", "b", 1, 0);
    bad.dims[0] = 71;
    ck_assert_int_eq(checkpoint_writer_add(writer, &bad, &err), GEMS_E_INVALID);
    bad = shard_at("weight", "b", 1, 0);
    bad.dims[0] = UINT64_MAX;
    ck_assert_int_eq(checkpoint_writer_add(writer, &bad, &err), GEMS_E_INVALID);
    checkpoint_writer_destroy(writer);
    ck_assert_int_eq(count_files(), 0);
}
END_TEST

START_TEST(a_missing_weight_is_seen)
{
    struct checkpoint_writer *writer = new_writer(1);
    struct checkpoint_result result;

    add_tensor(writer, "weight", "a", 0);
    add_tensor(writer, "weight", "c", 2);
    ck_assert_int_eq(commit(writer, 2, &result), GEMS_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "weight number 1"));
    checkpoint_writer_destroy(writer);
}
END_TEST

/* Loop: one flipped bit in each of many places, over the whole file. */
START_TEST(one_flipped_bit_is_found)
{
    char path[300];
    struct stat st;
    int n_found = 0, fd;

    write_one(1, false);
    checkpoint_path(dir, 1, path, sizeof path);
    ck_assert_int_eq(stat(path, &st), 0);
    fd = open(path, O_RDWR);
    for (int i = 0; i < 64; i++) {
        off_t at = st.st_size / 64 * i + 977;
        uint8_t byte;

        ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
        byte ^= 4;
        ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
        if (checkpoint_verify(path, &err) < 0) {
            ck_assert_int_eq(err.status, GEMS_E_DATA);
            ck_assert_ptr_nonnull(strstr(err.text, path));
            n_found++;
        }
        byte ^= 4;
        ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
    /* The rest of the file is the space behind the last byte of a chunk. */
    ck_assert_int_ge(n_found, (int)(64 * 3 * sizeof values / (size_t)st.st_size) - 2);
    ck_assert_int_eq(checkpoint_verify(path, &err), GEMS_OK);
}
END_TEST

START_TEST(a_cut_file_is_refused)
{
    char path[300];
    struct stat st;

    write_one(1, false);
    checkpoint_path(dir, 1, path, sizeof path);
    ck_assert_int_eq(stat(path, &st), 0);
    for (off_t n = st.st_size - 1; n >= 0; n -= 65536 + 4096 * 3) {
        ck_assert_int_eq(truncate(path, n), 0);
        ck_assert_int_lt(checkpoint_verify(path, &err), 0);
        ck_assert_int_eq(err.status, GEMS_E_DATA);
    }
    unlink(path);
    ck_assert_int_eq(checkpoint_verify(path, &err), GEMS_E_NOTFOUND);
}
END_TEST

START_TEST(a_full_disk_leaves_nothing_behind)
{
    struct checkpoint_writer *writer;
    struct checkpoint_shard shard;
    int status = GEMS_OK;

    if (geteuid() != 0 || mount("tmpfs", dir, "tmpfs", 0, "size=1m") != 0) {
        fprintf(stderr, "skipped: a full disk needs the right to mount\n");
        return;
    }
    writer = new_writer(1);
    for (uint32_t i = 0; status >= 0 && i < 100; i++) {
        char name[16];

        snprintf(name, sizeof name, "t%u", i);
        shard = shard_at("weight", name, i, 0);
        shard.total = shard.n = 64 << 10;
        shard.dims[0] = 16;
        hash_of(shard.data, shard.n, shard.hash);
        status = checkpoint_writer_add(writer, &shard, &err);
    }
    if (status >= 0) {
        struct checkpoint_result result;

        status = commit(writer, 100, &result);
    }
    ck_assert_int_eq(status, GEMS_E_DISKFULL);
    checkpoint_writer_destroy(writer);
    ck_assert_int_eq(count_files(), 0);
    umount(dir);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *tcase = tcase_create("file");
    SRunner *runner;
    int n_failed;

    tcase_add_checked_fixture(tcase, make_dir, remove_dir);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, tensors_come_back_in_canonical_order);
    tcase_add_test(tcase, weights_hash_knows_weights_only_and_no_order_of_arrival);
    tcase_add_test(tcase, a_rank_may_send_a_tensor_again);
    tcase_add_test(tcase, incomplete_is_not_committed);
    tcase_add_test(tcase, a_missing_weight_is_seen);
    tcase_add_test(tcase, one_flipped_bit_is_found);
    tcase_add_test(tcase, a_cut_file_is_refused);
    tcase_add_test(tcase, a_full_disk_leaves_nothing_behind);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
