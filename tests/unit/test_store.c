/* gems.db: what it promises to gemsd, also on a full disk. */
#include <check.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fsutil.h"
#include "daemon/store.h"

static char dir[256];
static struct gems_error err;

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "test_store.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    memset(&err, 0, sizeof err);
}

static void remove_dir(void)
{
    fs_remove_tree(".", dir, NULL);
}

static struct store *open_store(void)
{
    struct store *store = NULL;

    ck_assert_msg(store_open(dir, 0, &store, &err) == GEMS_OK, "%s", err.text);
    return store;
}

static uint64_t submit(struct store *store, const char *user, const char *key, bool *ret_is_new)
{
    struct store_job job = { .submitted_us = 1000 };
    uint8_t spec[] = { 1, 2, 0, 4 };
    uint64_t id = 0;

    job_core_init(&job.core);
    snprintf(job.name, sizeof job.name, "tiles");
    snprintf(job.user, sizeof job.user, "%s", user);
    snprintf(job.key, sizeof job.key, "%s", key);
    job.spec.data = spec;
    job.spec.n = sizeof spec;
    ck_assert_msg(store_submit(store, &job, &id, ret_is_new, &err) == GEMS_OK, "%s", err.text);
    return id;
}

START_TEST(a_job_comes_back_as_it_was)
{
    struct store *store = open_store();
    struct store_job job;
    bool is_new;
    uint64_t id = submit(store, "ann", "", &is_new);

    ck_assert(is_new);
    store_close(store);
    store = open_store();
    ck_assert_int_eq(store_job(store, id, &job, &err), GEMS_OK);
    ck_assert_str_eq(job.name, "tiles");
    ck_assert_int_eq(job.core.state, JOB_QUEUED);
    ck_assert_uint_eq(job.core.attempt, 1);
    ck_assert_uint_eq(job.spec.n, 4);
    ck_assert_mem_eq(job.spec.data, "\1\2\0\4", 4);
    store_job_fini(&job);
    ck_assert_int_eq(store_job(store, id + 1, &job, &err), GEMS_E_NOTFOUND);
    store_close(store);
}
END_TEST

START_TEST(one_key_makes_one_job_a_user)
{
    struct store *store = open_store();
    bool is_new;
    uint64_t id = submit(store, "ann", "k", &is_new);

    ck_assert(is_new);
    ck_assert_uint_eq(submit(store, "ann", "k", &is_new), id);
    ck_assert(!is_new);
    ck_assert_uint_ne(submit(store, "bob", "k", &is_new), id);
    ck_assert(is_new);
    ck_assert_uint_ne(submit(store, "ann", "", &is_new), submit(store, "ann", "", &is_new));
    store_close(store);
}
END_TEST

static struct store_move move_of(uint64_t id, enum job_state from, enum job_event event,
                                 enum job_state to)
{
    struct store_move move = { .job = id, .event = event, .who = "test", .when_us = 5 };

    job_core_init(&move.from);
    move.to = move.from;
    move.from.state = from;
    move.to.state = to;
    return move;
}

START_TEST(a_move_compares_before_it_swaps)
{
    struct store *store = open_store();
    bool is_new;
    uint64_t id = submit(store, "ann", "", &is_new);
    struct store_move move = move_of(id, JOB_QUEUED, ON_PLACE, JOB_PLACING);
    struct store_event *events;
    size_t n;

    ck_assert_int_eq(store_move(store, &move, &err), GEMS_OK);
    ck_assert_int_eq(store_move(store, &move, &err), GEMS_E_STATE);
    move = move_of(id, JOB_PLACING, ON_UNPLACE, JOB_QUEUED);
    move.from.attempt = 2;
    ck_assert_int_eq(store_move(store, &move, &err), GEMS_E_STATE);
    ck_assert_int_eq(store_events(store, id, &events, &n, &err), GEMS_OK);
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(events[0].event, "submit");
    ck_assert_str_eq(events[1].event, "place");
    ck_assert_str_eq(events[1].state, "PLACING");
    ck_assert_str_eq(events[1].who, "test");
    free(events);
    store_close(store);
}
END_TEST

START_TEST(an_attempt_is_stored_with_its_move)
{
    struct store *store = open_store();
    bool is_new;
    uint64_t id = submit(store, "ann", "", &is_new);
    struct store_rank ranks[2] = { { "a", "cpu:0", "cpu", 1, 100 },
                                   { "b", "cpu:1", "cpu", 1, 200 } };
    struct store_attempt attempt = { .plan = { (uint8_t *)"plan", 4 },
                                     .has_restore = true,
                                     .restore_step = 40,
                                     .n_ranks = 2,
                                     .ranks = ranks };
    struct store_attempt back;
    struct store_move move = move_of(id, JOB_QUEUED, ON_PLACE, JOB_PLACING);
    struct store_job *jobs;
    size_t n;

    ck_assert_int_eq(store_move(store, &move, &err), GEMS_OK);
    memset(attempt.secret, 7, sizeof attempt.secret);
    snprintf(attempt.token, sizeof attempt.token, "token");
    move = move_of(id, JOB_PLACING, ON_PLACED, JOB_STARTING);
    move.attempt = &attempt;
    ck_assert_msg(store_move(store, &move, &err) == GEMS_OK, "%s", err.text);
    store_close(store);
    store = open_store();
    ck_assert_int_eq(store_attempt(store, id, 1, &back, &err), GEMS_OK);
    ck_assert_uint_eq(back.n_ranks, 2);
    ck_assert_str_eq(back.ranks[1].node, "b");
    ck_assert_uint_eq(back.ranks[1].memory_bytes, 200);
    ck_assert_mem_eq(back.secret, attempt.secret, sizeof back.secret);
    ck_assert(back.has_restore);
    ck_assert_uint_eq(back.restore_step, 40);
    store_attempt_fini(&back);
    ck_assert_int_eq(store_attempt(store, id, 2, &back, &err), GEMS_E_NOTFOUND);
    ck_assert_int_eq(store_live_jobs(store, &jobs, &n, &err), GEMS_OK);
    ck_assert_uint_eq(n, 1);
    ck_assert_int_eq(jobs[0].core.state, JOB_STARTING);
    store_job_fini(&jobs[0]);
    free(jobs);
    ck_assert_int_eq(store_list(store, 1u << JOB_FAILED, 10, &jobs, &n, &err), GEMS_OK);
    ck_assert_uint_eq(n, 0);
    free(jobs);
    store_close(store);
}
END_TEST

START_TEST(checkpoint_rows)
{
    struct store *store = open_store();
    bool is_new;
    uint64_t id = submit(store, "ann", "", &is_new);
    struct store_checkpoint row = {
        .job = id, .step = 10, .epoch = 1, .eval_accuracy = NAN, .attempt = 1
    };
    struct store_checkpoint *rows;
    size_t n;

    ck_assert_int_eq(store_checkpoint_put(store, &row, &err), GEMS_OK);
    row.step = 20;
    ck_assert_int_eq(store_checkpoint_put(store, &row, &err), GEMS_OK);
    ck_assert_int_eq(store_checkpoint_eval(store, id, 10, 0.5, &err), GEMS_OK);
    ck_assert_int_eq(store_checkpoint_trust(store, id, 20, CHECKPOINT_DAMAGED, &err), GEMS_OK);
    ck_assert_int_eq(store_checkpoints(store, id, &rows, &n, &err), GEMS_OK);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(rows[0].step, 20);
    ck_assert_int_eq(rows[0].trust, CHECKPOINT_DAMAGED);
    ck_assert(isnan(rows[0].eval_accuracy));
    ck_assert(rows[1].eval_accuracy == 0.5);
    free(rows);
    ck_assert_int_eq(store_checkpoint_remove(store, id, 20, &err), GEMS_OK);
    ck_assert_int_eq(store_checkpoints(store, id, &rows, &n, &err), GEMS_OK);
    ck_assert_uint_eq(n, 1);
    free(rows);
    store_close(store);
}
END_TEST

START_TEST(a_second_gemsd_is_refused)
{
    struct store *store = open_store(), *second = NULL;

    ck_assert_int_eq(store_open(dir, 0, &second, &err), GEMS_E_STATE);
    ck_assert_ptr_nonnull(strstr(err.text, "another gemsd"));
    store_close(store);
}
END_TEST

static void raw_exec(const char *sql)
{
    char path[300];
    sqlite3 *db;

    snprintf(path, sizeof path, "%s/gems.db", dir);
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

START_TEST(a_newer_schema_is_refused)
{
    struct store *store = open_store();

    store_close(store);
    raw_exec("PRAGMA user_version=99");
    ck_assert_int_eq(store_open(dir, 0, &store, &err), GEMS_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.text, "99"));
    ck_assert_str_ne(err.hint, "");
}
END_TEST

START_TEST(a_damaged_file_is_refused_and_kept)
{
    struct store *store = open_store();
    char path[300];
    struct stat before, after;
    FILE *file;
    bool is_new;

    for (int i = 0; i < 200; i++) {
        submit(store, "ann", "", &is_new);
    }
    store_close(store);
    snprintf(path, sizeof path, "%s/gems.db", dir);
    file = fopen(path, "r+");
    ck_assert_ptr_nonnull(file);
    for (long page = 1; page < 8; page++) {
        fseek(file, page * 4096, SEEK_SET);
        for (int i = 0; i < 4096; i++) {
            fputc(0xa5, file);
        }
    }
    fclose(file);
    stat(path, &before);
    ck_assert_int_eq(store_open(dir, 0, &store, &err), GEMS_E_DATA);
    ck_assert_ptr_nonnull(strstr(err.hint, "left as it is"));
    stat(path, &after);
    ck_assert_int_eq(before.st_size, after.st_size);
}
END_TEST

/* A file system of one megabyte; false where we may not mount. */
static bool mount_small(void)
{
    return geteuid() == 0 && mount("tmpfs", dir, "tmpfs", 0, "size=1m") == 0;
}

START_TEST(a_full_disk_refuses_and_recovers)
{
    struct store *store = NULL;
    struct store_job job = { .submitted_us = 1 };
    uint8_t spec[8192] = { 1 };
    char filler[300];
    uint64_t id;
    bool is_new;
    int n = 0, status;

    if (!mount_small()) {
        fprintf(stderr, "skipped: a full disk needs the right to mount\n");
        return;
    }
    ck_assert_int_eq(store_open(dir, 128 << 10, &store, &err), GEMS_OK);
    job_core_init(&job.core);
    snprintf(job.user, sizeof job.user, "ann");
    job.spec.data = spec;
    job.spec.n = sizeof spec;
    do {
        status = store_submit(store, &job, &id, &is_new, &err);
        n++;
    } while (status == GEMS_OK && n < 1000);
    ck_assert_int_eq(status, GEMS_E_DISKFULL);
    ck_assert_int_gt(n, 10);
    /* The ballast is gone by now; what was accepted is still there. */
    snprintf(filler, sizeof filler, "%s/ballast", dir);
    ck_assert_int_ne(access(filler, F_OK), 0);
    ck_assert_int_eq(mount("tmpfs", dir, "tmpfs", MS_REMOUNT, "size=4m"), 0);
    ck_assert_int_eq(store_submit(store, &job, &id, &is_new, &err), GEMS_OK);
    ck_assert_uint_eq(id, (uint64_t)n);
    store_close(store);
    ck_assert_int_eq(store_open(dir, 0, &store, &err), GEMS_OK);
    store_close(store);
    umount(dir);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *tcase = tcase_create("store");
    SRunner *runner;
    int n_failed;

    tcase_add_checked_fixture(tcase, make_dir, remove_dir);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, a_job_comes_back_as_it_was);
    tcase_add_test(tcase, one_key_makes_one_job_a_user);
    tcase_add_test(tcase, a_move_compares_before_it_swaps);
    tcase_add_test(tcase, an_attempt_is_stored_with_its_move);
    tcase_add_test(tcase, checkpoint_rows);
    tcase_add_test(tcase, a_second_gemsd_is_refused);
    tcase_add_test(tcase, a_newer_schema_is_refused);
    tcase_add_test(tcase, a_damaged_file_is_refused_and_kept);
    tcase_add_test(tcase, a_full_disk_refuses_and_recovers);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
