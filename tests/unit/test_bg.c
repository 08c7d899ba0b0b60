/* The background thread: order, limits, ending. Run it under the thread
 * sanitizer too. */
#include "common/bg.h"

#include <check.h>
#include <event2/event.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "common/error.h"
#include "tests/lib/loop.h"
#include "tests/lib/run_suite.h"

enum { N_JOBS = 1000 };

struct job {
    int number;
    int result;
    pthread_t worked_on;
};

static struct event_base *base;
static struct bg *bg;
static sem_t gate;
static int order[N_JOBS];
static int n_done, n_not_run;
static bool is_all_done;
static int n_expected;

static void work(void *arg)
{
    struct job *job = arg;

    job->result = job->number * 2;
    job->worked_on = pthread_self();
}

static void work_behind_gate(void *arg)
{
    sem_wait(&gate);
    work(arg);
}

static void done(void *arg, bool is_run)
{
    struct job *job = arg;

    order[n_done++] = job->number;
    if (!is_run) {
        n_not_run++;
    } else {
        ck_assert_int_eq(job->result, job->number * 2);
        ck_assert(!pthread_equal(job->worked_on, pthread_self()));
    }
    is_all_done = n_done == n_expected;
}

static void setup(void)
{
    base = event_base_new();
    bg = bg_create(base, "test", N_JOBS, NULL);
    ck_assert_ptr_nonnull(bg);
    sem_init(&gate, 0, 0);
    n_done = n_not_run = 0;
    is_all_done = false;
}

static void teardown(void)
{
    bg_destroy(bg);
    sem_destroy(&gate);
    event_base_free(base);
}

START_TEST(jobs_complete_on_the_loop_in_order)
{
    static struct job jobs[N_JOBS];

    n_expected = N_JOBS;
    for (int i = 0; i < N_JOBS; i++) {
        jobs[i].number = i;
        ck_assert_int_eq(bg_submit(bg, work, done, &jobs[i], NULL), GEMS_OK);
        ck_assert_int_eq(n_done, 0); /* only the loop completes */
    }
    ck_assert_uint_eq(bg_pending(bg), N_JOBS);
    ck_assert(loop_until(base, &is_all_done));
    for (int i = 0; i < N_JOBS; i++) {
        ck_assert_int_eq(order[i], i);
    }
    ck_assert_uint_eq(bg_pending(bg), 0);
    ck_assert_int_eq(n_not_run, 0);
}
END_TEST

START_TEST(full_queue_refuses)
{
    struct bg *small = bg_create(base, "small", 2, NULL);
    struct job jobs[3] = { { .number = 0 }, { .number = 1 }, { .number = 2 } };
    struct gems_error err = { 0 };

    n_expected = 2;
    ck_assert_int_eq(bg_submit(small, work_behind_gate, done, &jobs[0], &err), GEMS_OK);
    ck_assert_int_eq(bg_submit(small, work, done, &jobs[1], &err), GEMS_OK);
    ck_assert_int_eq(bg_submit(small, work, done, &jobs[2], &err), GEMS_E_STATE);
    ck_assert_ptr_nonnull(strstr(err.text, "2 jobs are waiting"));
    sem_post(&gate);
    ck_assert(loop_until(base, &is_all_done));
    ck_assert_int_eq(bg_submit(small, work, NULL, &jobs[2], &err), GEMS_OK);
    bg_destroy(small);
    ck_assert_int_eq(n_done, 2);
}
END_TEST

START_TEST(destroy_waits_for_the_running_job_and_completes_all)
{
    struct bg *ending = bg_create(base, "ending", 10, NULL);
    struct job jobs[4] = { { .number = 0 }, { .number = 1 }, { .number = 2 }, { .number = 3 } };

    n_expected = 4;
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(bg_submit(ending, i ? work : work_behind_gate, done, &jobs[i], NULL), GEMS_OK);
    }
    sem_post(&gate);
    bg_destroy(ending);
    ck_assert_int_eq(n_done, 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(order[i], i);
    }
}
END_TEST

START_TEST(destroy_of_an_idle_one_and_of_none)
{
    bg_destroy(bg_create(base, "a name that is too long", 1, NULL));
    bg_destroy(NULL);
}
END_TEST

static void chained_done(void *arg, bool is_run)
{
    struct job *job = arg;

    done(job, is_run);
    if (job->number < 9) {
        ck_assert_int_eq(bg_submit(bg, work, chained_done, job + 1, NULL), GEMS_OK);
    }
}

START_TEST(completion_may_submit_the_next_job)
{
    struct job jobs[10];

    n_expected = 10;
    for (int i = 0; i < 10; i++) {
        jobs[i].number = i;
    }
    ck_assert_int_eq(bg_submit(bg, work, chained_done, &jobs[0], NULL), GEMS_OK);
    ck_assert(loop_until(base, &is_all_done));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bg");
    TCase *tcase = tcase_create("threads");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, jobs_complete_on_the_loop_in_order);
    tcase_add_test(tcase, full_queue_refuses);
    tcase_add_test(tcase, destroy_waits_for_the_running_job_and_completes_all);
    tcase_add_test(tcase, destroy_of_an_idle_one_and_of_none);
    tcase_add_test(tcase, completion_may_submit_the_next_job);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
