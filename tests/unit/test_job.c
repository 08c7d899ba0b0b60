/* Every cell of the tables of daemon/job.c, against a list written by hand. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "daemon/job.h"

struct edge {
    enum job_state from;
    enum job_event event;
    enum job_state to;
};

static const struct edge edges[] = {
    { JOB_QUEUED, ON_PLACE, JOB_PLACING },     { JOB_QUEUED, ON_FAIL, JOB_FAILED },
    { JOB_QUEUED, ON_CANCEL, JOB_CANCELLED },  { JOB_QUEUED, ON_PAUSE, JOB_PAUSED },
    { JOB_PLACING, ON_UNPLACE, JOB_QUEUED },   { JOB_PLACING, ON_PLACED, JOB_STARTING },
    { JOB_PLACING, ON_FAIL, JOB_FAILED },      { JOB_PLACING, ON_CANCEL, JOB_CANCELLED },
    { JOB_PLACING, ON_PAUSE, JOB_PAUSED },     { JOB_STARTING, ON_START, JOB_RUNNING },
    { JOB_STARTING, ON_FAIL, JOB_STOPPING },   { JOB_STARTING, ON_CANCEL, JOB_STOPPING },
    { JOB_STARTING, ON_PAUSE, JOB_STOPPING },  { JOB_STARTING, ON_MOVE, JOB_STOPPING },
    { JOB_RUNNING, ON_FINISH, JOB_SUCCEEDED }, { JOB_RUNNING, ON_FAIL, JOB_STOPPING },
    { JOB_RUNNING, ON_CANCEL, JOB_STOPPING },  { JOB_RUNNING, ON_PAUSE, JOB_STOPPING },
    { JOB_RUNNING, ON_MOVE, JOB_STOPPING },    { JOB_PAUSED, ON_CANCEL, JOB_CANCELLED },
    { JOB_PAUSED, ON_RESUME, JOB_QUEUED },     { JOB_STOPPING, ON_FINISH, JOB_SUCCEEDED },
    { JOB_PLACING, ON_FINISH, JOB_SUCCEEDED }, { JOB_STOPPING, ON_FAIL, JOB_STOPPING },
    { JOB_STOPPING, ON_CANCEL, JOB_STOPPING }, { JOB_STOPPING, ON_PAUSE, JOB_STOPPING },
    { JOB_STOPPING, ON_MOVE, JOB_STOPPING },
};

START_TEST(every_cell_of_the_state_table)
{
    enum job_state state = (enum job_state)(_i / JOB_EVENT_COUNT);
    enum job_event event = (enum job_event)(_i % JOB_EVENT_COUNT);
    int expected = -1;

    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        if (edges[i].from == state && edges[i].event == event) {
            expected = (int)edges[i].to;
        }
    }
    if (state == JOB_STOPPING && event == ON_GONE) {
        static const int after[ENDING_COUNT] = { -1,         JOB_QUEUED,    JOB_QUEUED,
                                                 JOB_PAUSED, JOB_CANCELLED, JOB_FAILED };

        for (int ending = 0; ending < ENDING_COUNT; ending++) {
            ck_assert_int_eq(job_next(state, event, (enum job_ending)ending), after[ending]);
        }
        return;
    }
    ck_assert_msg(job_next(state, event, ENDING_NONE) == expected, "%s %s leads to %d, expected %d",
                  job_state_name(state), job_event_name(event), job_next(state, event, ENDING_NONE),
                  expected);
}
END_TEST

START_TEST(every_cell_of_the_verb_table)
{
    enum job_verb verb = (enum job_verb)(_i / JOB_STATE_COUNT);
    enum job_state state = (enum job_state)(_i % JOB_STATE_COUNT);
    bool is_live = !job_is_ended(state);
    bool expected = verb == VERB_CANCEL   ? is_live
                    : verb == VERB_PAUSE  ? is_live && state != JOB_PAUSED
                    : verb == VERB_RESUME ? state == JOB_PAUSED
                                          : state == JOB_RUNNING;
    struct gems_error err = { 0 };
    int status = job_verb_check(17, verb, state, &err);

    ck_assert_int_eq(status, expected ? GEMS_OK : GEMS_E_STATE);
    if (!expected) {
        ck_assert_ptr_nonnull(strstr(err.text, "job 17"));
        ck_assert_ptr_nonnull(strstr(err.text, job_verb_name(verb)));
        ck_assert_ptr_nonnull(strstr(err.text, job_state_name(state)));
    }
}
END_TEST

static struct job_core running(void)
{
    struct job_core core;

    job_core_init(&core);
    core.state = JOB_RUNNING;
    core.reason[0] = '\0';
    return core;
}

static struct job_core apply(struct job_core core, enum job_event event, enum failure_class failure,
                             const char *why)
{
    struct job_input input = { event, failure, why, 2 };
    struct job_core next;

    ck_assert(job_update(&core, &input, &next));
    return next;
}

START_TEST(failure_follows_the_rule_of_its_class)
{
    enum failure_class failure = (enum failure_class)_i;
    struct job_core core = apply(running(), ON_FAIL, failure, "rank 1: it broke");

    ck_assert_int_eq(core.state, JOB_STOPPING);
    ck_assert_str_eq(core.reason, "rank 1: it broke");
    core = apply(core, ON_GONE, CLASS_NONE, NULL);
    switch (failure) {
    case CLASS_HANG:
    case CLASS_NODE_LOST:
    case CLASS_DEVICE:
    case CLASS_TRANSPORT:
    case CLASS_INTERNAL:
        ck_assert_int_eq(core.state, JOB_QUEUED);
        ck_assert_uint_eq(core.attempt, 2);
        ck_assert_uint_eq(core.restarts, 1);
        ck_assert_ptr_nonnull(strstr(core.reason, "restart 1 of 2"));
        ck_assert_ptr_nonnull(strstr(core.reason, "it broke"));
        break;
    case CLASS_DISK_FULL:
        ck_assert_int_eq(core.state, JOB_PAUSED);
        ck_assert_int_eq(core.failure, CLASS_DISK_FULL);
        break;
    default:
        ck_assert_int_eq(core.state, JOB_FAILED);
        ck_assert_int_eq(core.failure, failure);
        ck_assert_uint_eq(core.attempt, 1);
        ck_assert_str_eq(core.reason, "rank 1: it broke");
    }
}
END_TEST

START_TEST(restarts_are_counted_and_end)
{
    struct job_core core = running();

    for (int i = 0; i < 2; i++) {
        core = apply(core, ON_FAIL, CLASS_NODE_LOST, "node a is lost");
        core = apply(core, ON_GONE, CLASS_NONE, NULL);
        ck_assert_int_eq(core.state, JOB_QUEUED);
        core.state = JOB_RUNNING;
    }
    core = apply(core, ON_FAIL, CLASS_NODE_LOST, "node a is lost");
    core = apply(core, ON_GONE, CLASS_NONE, NULL);
    ck_assert_int_eq(core.state, JOB_FAILED);
    ck_assert_int_eq(core.failure, CLASS_NODE_LOST);
    ck_assert_uint_eq(core.attempt, 3);
}
END_TEST

START_TEST(first_failure_is_what_the_user_sees)
{
    struct job_core core = apply(running(), ON_FAIL, CLASS_NAN, "rank 0: loss is not a number");

    core = apply(core, ON_FAIL, CLASS_TRANSPORT, "rank 1: peer is gone");
    core = apply(core, ON_CANCEL, CLASS_NONE, "cancelled by ann");
    ck_assert_int_eq(core.failure, CLASS_NAN);
    core = apply(core, ON_GONE, CLASS_NONE, NULL);
    ck_assert_int_eq(core.state, JOB_FAILED);
    ck_assert_str_eq(core.reason, "rank 0: loss is not a number");
}
END_TEST

START_TEST(a_wish_beats_a_retry_and_cancel_beats_pause)
{
    struct job_core core = apply(running(), ON_FAIL, CLASS_DEVICE, "rank 0: device");
    struct job_core paused = apply(core, ON_PAUSE, CLASS_NONE, "paused by ann");
    struct job_core cancelled = apply(paused, ON_CANCEL, CLASS_NONE, "cancelled by ann");

    ck_assert_int_eq(apply(core, ON_GONE, CLASS_NONE, NULL).state, JOB_QUEUED);
    paused = apply(paused, ON_GONE, CLASS_NONE, NULL);
    ck_assert_int_eq(paused.state, JOB_PAUSED);
    ck_assert_uint_eq(paused.restarts, 0);
    ck_assert_uint_eq(paused.attempt, 2);
    cancelled = apply(cancelled, ON_GONE, CLASS_NONE, NULL);
    ck_assert_int_eq(cancelled.state, JOB_CANCELLED);
    ck_assert_str_eq(cancelled.reason, "cancelled by ann");
}
END_TEST

START_TEST(a_job_that_waits_has_a_reason)
{
    struct job_core core;

    job_core_init(&core);
    ck_assert_str_ne(core.reason, "");
    core.state = JOB_PLACING;
    core = apply(core, ON_UNPLACE, CLASS_NONE, "no node is registered");
    ck_assert_int_eq(core.state, JOB_QUEUED);
    ck_assert_str_eq(core.reason, "no node is registered");
    ck_assert_uint_eq(core.attempt, 1);
}
END_TEST

START_TEST(names_go_both_ways)
{
    for (int i = 0; i < JOB_STATE_COUNT; i++) {
        ck_assert_int_eq(job_state_from_name(job_state_name((enum job_state)i)), i);
    }
    for (int i = 0; i < CLASS_COUNT; i++) {
        ck_assert_int_eq(failure_from_name(failure_name((enum failure_class)i)), i);
        ck_assert(i == CLASS_NONE || failure_advice((enum failure_class)i)[0]);
    }
    ck_assert_int_lt(job_state_from_name("RUNING"), 0);
    ck_assert_int_lt(failure_from_name("bad"), 0);
}
END_TEST

START_TEST(backoff_grows_to_a_minute)
{
    ck_assert_uint_eq(job_backoff_ms(1), 1000);
    ck_assert_uint_eq(job_backoff_ms(3), 4000);
    ck_assert_uint_eq(job_backoff_ms(1000), 60000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("job");
    TCase *tables = tcase_create("tables"), *updates = tcase_create("updates");
    SRunner *runner;
    int n_failed;

    tcase_add_loop_test(tables, every_cell_of_the_state_table, 0,
                        JOB_STATE_COUNT * JOB_EVENT_COUNT);
    tcase_add_loop_test(tables, every_cell_of_the_verb_table, 0, JOB_VERB_COUNT * JOB_STATE_COUNT);
    tcase_add_test(tables, names_go_both_ways);
    tcase_add_loop_test(updates, failure_follows_the_rule_of_its_class, CLASS_SPEC, CLASS_COUNT);
    tcase_add_test(updates, restarts_are_counted_and_end);
    tcase_add_test(updates, first_failure_is_what_the_user_sees);
    tcase_add_test(updates, a_wish_beats_a_retry_and_cancel_beats_pause);
    tcase_add_test(updates, a_job_that_waits_has_a_reason);
    tcase_add_test(updates, backoff_grows_to_a_minute);
    suite_add_tcase(suite, tables);
    suite_add_tcase(suite, updates);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
