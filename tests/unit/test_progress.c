/* Pure parts of gemsd: progress, retention; and the file of tokens. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "daemon/progress.h"
#include "daemon/retention.h"
#include "daemon/tokens.h"

static struct progress_report report(uint64_t step, double loss_sum, double seconds)
{
    return (struct progress_report){ .step = step,
                                     .samples = step * 32,
                                     .n_correct = 8,
                                     .n_counted = 16,
                                     .epoch = (uint32_t)((step - 1) / 10),
                                     .loss_sum = loss_sum,
                                     .seconds = seconds };
}

START_TEST(a_step_counts_when_every_rank_has_reported_it)
{
    static struct progress progress;
    struct progress_report one = report(1, 4, 0.5), two = report(1, 12, 0.25);

    progress_init(&progress);
    progress_begin(&progress, 2, 0);
    ck_assert(!progress_add(&progress, 0, &one));
    ck_assert(!progress_add(&progress, 0, &one)); /* came again */
    ck_assert(isnan(progress.loss));
    ck_assert(progress_add(&progress, 1, &two));
    ck_assert(progress.loss == 0.5);
    ck_assert(progress.accuracy == 0.5);
    ck_assert_uint_eq(progress.samples, 32);
    ck_assert(!progress_add(&progress, 0, &one));
    ck_assert(!progress_add(&progress, 1, &two)); /* both again: not counted twice */
    ck_assert_uint_eq(progress.epoch_counted, 32);
    ck_assert(!progress_add(&progress, 2, &one)); /* no such rank */
}
END_TEST

START_TEST(ranks_may_be_steps_apart)
{
    static struct progress progress;

    progress_init(&progress);
    progress_begin(&progress, 2, 0);
    for (uint64_t step = 1; step <= 5; step++) {
        struct progress_report r = report(step, 16, 1);

        ck_assert(!progress_add(&progress, 0, &r));
    }
    for (uint64_t step = 1; step <= 5; step++) {
        struct progress_report r = report(step, 16, 1);

        ck_assert(progress_add(&progress, 1, &r));
        ck_assert_uint_eq(progress.done_step, step);
    }
    ck_assert_uint_eq(progress.n_pending, 0);
}
END_TEST

/* Steps of a small network come by the hundred between two reports. */
START_TEST(ranks_may_be_more_steps_apart_than_are_kept)
{
    static struct progress progress;
    const uint64_t last = 5 * PROGRESS_PENDING;

    progress_init(&progress);
    progress_begin(&progress, 2, 0);
    for (uint32_t source = 0; source < 2; source++) {
        for (uint64_t step = 1; step <= last; step++) {
            struct progress_report r = report(step, 16, 1), eval = report(step, 32, 1);

            progress_add(&progress, source, &r);
            eval.is_eval = true;
            if (step == 10 || step == last) {
                progress_add(&progress, source, &eval);
            }
            if (source == 1 && step == 10) {
                ck_assert_uint_eq(progress.eval_step, 10);
            }
        }
    }
    ck_assert_uint_eq(progress.done_step, last);
    ck_assert_uint_eq(progress.eval_step, last);
    ck_assert(progress.loss == 1 && progress.eval_loss == 2);
    ck_assert_uint_eq(progress.n_pending, 0);
}
END_TEST

START_TEST(the_rate_leaves_the_first_two_steps_out)
{
    static struct progress progress;
    struct progress_rest rest = { .steps_total = 30,
                                  .steps_per_epoch = 10,
                                  .checkpoint_every_steps = 10 };

    progress_init(&progress);
    progress_begin(&progress, 1, 0);
    ck_assert(isnan(progress_median(&progress)));
    for (uint64_t step = 1; step <= 12; step++) {
        struct progress_report r = report(step, 16, step <= 2 ? 50 : step == 7 ? 9 : 2);

        progress_add(&progress, 0, &r);
    }
    ck_assert(progress_median(&progress) == 2);
    ck_assert(progress_eta(&progress, &rest) == 18 * 2);
    progress.checkpoint_seconds = 3; /* steps 20 and 30, and the last one */
    ck_assert(progress_eta(&progress, &rest) == 18 * 2 + 3 * 3);
    progress.eval_seconds = 5; /* after epochs 2 and 3 */
    rest.has_eval = true;
    ck_assert(progress_eta(&progress, &rest) == 18 * 2 + 3 * 3 + 2 * 5);
    progress_step(&progress, 30);
    ck_assert(progress_eta(&progress, &rest) == 0);
}
END_TEST

START_TEST(accuracy_is_of_the_running_epoch_and_evaluation_apart)
{
    static struct progress progress;
    struct progress_report r, eval = report(10, 32, 7);

    progress_init(&progress);
    progress_begin(&progress, 1, 0);
    for (uint64_t step = 1; step <= 11; step++) {
        r = report(step, 16, 1);
        r.n_correct = step == 11 ? 16 : 4;
        progress_add(&progress, 0, &r);
    }
    ck_assert(progress.accuracy == 1); /* epoch 1 has one step so far */
    eval.is_eval = true;
    ck_assert(progress_add(&progress, 0, &eval));
    ck_assert(progress.eval_loss == 2);
    ck_assert(progress.eval_accuracy == 0.5);
    ck_assert(progress.loss == 1);
}
END_TEST

START_TEST(a_restart_goes_back_and_counts_again)
{
    static struct progress progress;
    struct progress_report r = report(20, 16, 1);

    progress_init(&progress);
    progress_begin(&progress, 1, 0);
    progress_add(&progress, 0, &r);
    progress_begin(&progress, 1, 10);
    ck_assert_uint_eq(progress.step, 10);
    r = report(11, 8, 1);
    ck_assert(progress_add(&progress, 0, &r));
    ck_assert(progress.loss == 0.5);
}
END_TEST

START_TEST(a_lost_report_does_not_stop_the_others)
{
    static struct progress progress;

    progress_init(&progress);
    progress_begin(&progress, 2, 0);
    for (uint64_t step = 1; step <= 3 * PROGRESS_PENDING; step++) {
        struct progress_report r = report(step, 16, 1);

        progress_add(&progress, 0, &r);
    }
    for (uint64_t step = 3 * PROGRESS_PENDING; step <= 3 * PROGRESS_PENDING + 1; step++) {
        struct progress_report r = report(step, 16, 1);

        progress_add(&progress, 1, &r);
    }
    ck_assert_uint_eq(progress.done_step, 3 * PROGRESS_PENDING);
}
END_TEST

enum { ROWS = 6 };

static void make_rows(struct store_checkpoint *rows)
{
    static const double accuracies[ROWS] = { 0.5, 0.6, 0.9, NAN, 0.8, 0.7 };

    memset(rows, 0, ROWS * sizeof *rows);
    for (int i = 0; i < ROWS; i++) {
        rows[i].step = (uint64_t)(100 - 10 * i);
        rows[i].eval_accuracy = accuracies[i];
    }
}

START_TEST(retention_keeps_newest_and_best)
{
    struct store_checkpoint rows[ROWS];
    bool drop[ROWS];

    make_rows(rows);
    retention_pick(rows, ROWS, 2, 1, drop);
    ck_assert(!drop[0] && !drop[1] && !drop[2] && drop[3] && drop[4] && drop[5]);
    retention_pick(rows, ROWS, 1, 2, drop);
    ck_assert(!drop[0] && drop[1] && !drop[2] && drop[3] && !drop[4] && drop[5]);
}
END_TEST

START_TEST(retention_never_drops_the_last_good_one)
{
    struct store_checkpoint rows[ROWS];
    bool drop[ROWS];

    make_rows(rows);
    for (uint32_t n_bad = 0; n_bad < ROWS; n_bad++) {
        for (uint32_t keep = 0; keep < 4; keep++) {
            for (uint32_t i = 0; i < ROWS; i++) {
                rows[i].trust = i < n_bad ? CHECKPOINT_DAMAGED : CHECKPOINT_WRITTEN;
            }
            retention_pick(rows, ROWS, keep, 0, drop);
            ck_assert_msg(!drop[n_bad], "%u damaged, keep %u", n_bad, keep);
            for (uint32_t i = 0; i < n_bad; i++) {
                ck_assert(!drop[i]);
            }
        }
    }
    rows[0].trust = CHECKPOINT_WRITTEN;
    rows[2].trust = CHECKPOINT_DAMAGED;
    retention_pick(rows, ROWS, 6, 0, drop);
    ck_assert(drop[2]);
}
END_TEST

START_TEST(tokens_are_found_by_their_hash_only)
{
    char path[] = "test_tokens.XXXXXX", worker[TOKEN_BYTES], user[TOKEN_BYTES],
         name[TOKEN_NAME_BYTES], text[512];
    struct gems_error err;
    enum token_role role;
    struct stat st;
    FILE *file;
    size_t n;

    close(mkstemp(path));
    ck_assert_int_eq(tokens_add(path, "node1", TOKEN_WORKER, worker, &err), GEMS_OK);
    ck_assert_int_eq(tokens_add(path, "ann", TOKEN_USER, user, &err), GEMS_OK);
    ck_assert_str_ne(worker, user);
    ck_assert_int_eq(tokens_find(path, worker, &role, name, &err), GEMS_OK);
    ck_assert_int_eq(role, TOKEN_WORKER);
    ck_assert_str_eq(name, "node1");
    ck_assert_int_eq(tokens_find(path, user, &role, name, &err), GEMS_OK);
    ck_assert_int_eq(role, TOKEN_USER);
    user[3] = user[3] == 'a' ? 'b' : 'a';
    ck_assert_int_eq(tokens_find(path, user, &role, name, &err), GEMS_E_DENIED);
    ck_assert_int_eq(tokens_find(path, "", &role, name, &err), GEMS_E_DENIED);
    file = fopen(path, "r");
    n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    ck_assert_ptr_null(strstr(text, worker));
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 077, 0);
    ck_assert_int_eq(tokens_add(path, "bad name", TOKEN_USER, user, &err), GEMS_E_INVALID);
    ck_assert_int_lt(token_role_from_name("root"), 0);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("progress");
    TCase *tcase = tcase_create("progress");
    SRunner *runner;
    int n_failed;

    tcase_set_timeout(tcase, 20);
    tcase_add_test(tcase, a_step_counts_when_every_rank_has_reported_it);
    tcase_add_test(tcase, ranks_may_be_steps_apart);
    tcase_add_test(tcase, ranks_may_be_more_steps_apart_than_are_kept);
    tcase_add_test(tcase, the_rate_leaves_the_first_two_steps_out);
    tcase_add_test(tcase, accuracy_is_of_the_running_epoch_and_evaluation_apart);
    tcase_add_test(tcase, a_restart_goes_back_and_counts_again);
    tcase_add_test(tcase, a_lost_report_does_not_stop_the_others);
    tcase_add_test(tcase, retention_keeps_newest_and_best);
    tcase_add_test(tcase, retention_never_drops_the_last_good_one);
    tcase_add_test(tcase, tokens_are_found_by_their_hash_only);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
