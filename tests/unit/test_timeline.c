/* Steps as timelines and as drawings: what was simulated, no more and no less. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/error.h"
#include "plan/match.h"
#include "plan/schedules.h"
#include "plan/svg.h"
#include "plan/timeline.h"
#include "tests/lib/run_suite.h"

static void simulate(enum schedule_kind kind, uint32_t p, uint32_t n, struct schedules_run *ret_run,
                     struct timeline *ret_timeline)
{
    struct schedules_question question = {
        .stages = p, .microbatches = n, .forward = 1, .backward = 2
    };

    ck_assert_int_eq(schedules_run(&question, kind, ret_run, NULL), GEMS_OK);
    ck_assert_int_eq(
        timeline_simulated(&ret_run->plan.train, &ret_run->result, 1, ret_timeline, NULL), GEMS_OK);
}

/* Every instruction once; what is not a message follows what was before it, and all
 * of a rank's time is busy or a wait. */
START_TEST(timeline_is_the_program_without_gaps)
{
    enum schedule_kind kind = (enum schedule_kind)_i;
    uint32_t p = kind == SCHEDULE_SINGLE ? 1 : 4, n_ready = 0;
    struct schedules_run run;
    struct timeline timeline;

    simulate(kind, p, 8, &run, &timeline);
    ck_assert_double_eq_tol(timeline.seconds, run.result.step_seconds, 1e-12);
    for (uint32_t r = 0; r < p; r++) {
        const struct timeline_rank *rank = &timeline.ranks[r];
        double now = 0, busy = 0;
        uint32_t i = 0;

        for (uint32_t k = 0; k < rank->n; k++) {
            const struct timeline_span *span = &rank->spans[k];
            bool is_recv = instr_is_recv(&span->instr);

            ck_assert_int_eq(span->kind == TIMELINE_MESSAGE,
                             is_recv && span->kind != TIMELINE_WAIT);
            ck_assert_double_ge(span->end, span->start);
            if (span->kind != TIMELINE_MESSAGE) {
                ck_assert_double_eq_tol(span->start, now, 1e-9);
                now = span->end;
            }
            if (span->kind == TIMELINE_WAIT) {
                continue;
            }
            ck_assert_uint_eq(span->instr.op, run.plan.train.ranks[r].items[i++].op);
            busy += span->kind == TIMELINE_MESSAGE ? 0 : span->end - span->start;
        }
        ck_assert_uint_eq(i, run.plan.train.ranks[r].n);
        ck_assert_double_eq_tol(busy, run.result.busy_seconds[r], 1e-9);
        ck_assert_double_le(now, timeline.seconds + 1e-9);
        n_ready += now > timeline.seconds - 1e-9;
    }
    ck_assert_uint_ge(n_ready, 1);
    timeline_fini(&timeline);
    schedules_run_fini(&run);
}
END_TEST

START_TEST(names_say_stage_and_micro_batch)
{
    static const struct {
        enum instr_op op;
        enum timeline_kind kind;
        const char *name;
    } cases[] = {
        { INSTR_FORWARD, TIMELINE_COMPUTE, "FORWARD s3 m7" },
        { INSTR_BACKWARD_WEIGHT, TIMELINE_COMPUTE, "BACKWARD_WEIGHT s3 m7" },
        { INSTR_LOAD, TIMELINE_COPY, "LOAD s3 m7" },
        { INSTR_SEND_ACT, TIMELINE_COPY, "SEND_ACT e2 m7" },
        { INSTR_RECV_ACT, TIMELINE_MESSAGE, "ACT e2 m7" },
        { INSTR_RECV_GRAD, TIMELINE_MESSAGE, "GRAD e2 m7" },
        { INSTR_UPDATE, TIMELINE_COMPUTE, "UPDATE s3" },
        { INSTR_REDUCE, TIMELINE_REDUCE, "REDUCE s3" },
        { INSTR_FORWARD, TIMELINE_WAIT, "wait" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct timeline_span span = {
            .kind = cases[i].kind,
            .instr = { .op = (uint8_t)cases[i].op, .stage = 3, .microbatch = 7, .edge = 2 }
        };
        char name[TIMELINE_NAME_BYTES];

        ck_assert_str_eq(timeline_name(&span, name), cases[i].name);
        if (cases[i].kind < TIMELINE_MESSAGE && cases[i].kind != TIMELINE_WAIT) {
            ck_assert_int_eq(timeline_kind_of(cases[i].op), cases[i].kind);
        }
    }
}
END_TEST

START_TEST(span_that_goes_on_is_one)
{
    struct timeline timeline;
    struct timeline_span span = { .start = 0, .end = 1, .instr = { .op = INSTR_UPDATE } };

    ck_assert_int_eq(timeline_init(&timeline, 1, NULL), GEMS_OK);
    ck_assert_int_eq(timeline_add(&timeline, 0, &span, NULL), GEMS_OK);
    span.start = 1;
    span.end = 2;
    ck_assert_int_eq(timeline_add(&timeline, 0, &span, NULL), GEMS_OK);
    ck_assert_uint_eq(timeline.ranks[0].n, 1);
    ck_assert_double_eq(timeline.ranks[0].spans[0].end, 2);
    span.instr.stage = 1;
    ck_assert_int_eq(timeline_add(&timeline, 0, &span, NULL), GEMS_OK);
    ck_assert_uint_eq(timeline.ranks[0].n, 2);
    timeline_fini(&timeline);
}
END_TEST

/* ---- drawings ---- */

static uint32_t count(const char *text, const char *what)
{
    uint32_t n = 0;

    for (; (text = strstr(text, what)); text++) {
        n++;
    }
    return n;
}

/* Elements are closed in the order in which they were opened, attributes are quoted,
 * and nothing that is not markup begins like it. */
static void check_xml(const char *text)
{
    char open[16][32];
    uint32_t depth = 0, n_roots = 0;

    ck_assert_int_eq(strncmp(text, "<?xml ", 6), 0);
    text = strstr(text, "?>") + 2;
    for (text = strchr(text, '<'); text; text = strchr(text + 1, '<')) {
        const char *end = strchr(text, '>');
        size_t n = strcspn(text + 1, " />");

        ck_assert_ptr_nonnull(end);
        if (text[1] == '/') {
            n = strcspn(text + 2, ">");
            ck_assert_uint_gt(depth, 0);
            depth--;
            ck_assert_uint_eq(n, strlen(open[depth]));
            ck_assert_int_eq(strncmp(open[depth], text + 2, n), 0);
            continue;
        }
        n_roots += depth == 0;
        ck_assert_uint_eq(count(text, "\"") % 2, count(end, "\"") % 2);
        if (end[-1] != '/') {
            ck_assert_uint_lt(depth, 16);
            snprintf(open[depth++], sizeof open[0], "%.*s", (int)n, text + 1);
        }
    }
    ck_assert_uint_eq(depth, 0);
    ck_assert_uint_eq(n_roots, 1);
}

static char *draw(const struct timeline *timeline, const char *title)
{
    struct buf text = { 0 };

    ck_assert_int_eq(svg_write(timeline, title, true, &text), GEMS_OK);
    return buf_take(&text);
}

START_TEST(drawing_has_every_pass_in_its_place)
{
    enum schedule_kind kind = (enum schedule_kind)_i;
    uint32_t p = kind == SCHEDULE_SINGLE ? 1 : 4, n_spans = 0;
    struct schedules_run run;
    struct timeline timeline;
    char *text, name[32];

    simulate(kind, p, 8, &run, &timeline);
    text = draw(&timeline, "a step");
    check_xml(text);
    for (uint32_t r = 0; r < p; r++) {
        snprintf(name, sizeof name, ">rank %u</text>", r);
        ck_assert_uint_eq(count(text, name), 1);
        for (uint32_t i = 0; i < timeline.ranks[r].n; i++) {
            const struct timeline_span *span = &timeline.ranks[r].spans[i];

            n_spans += span->kind != TIMELINE_MESSAGE && span->end > span->start;
        }
    }
    ck_assert_uint_eq(count(text, "<g><title>"), n_spans);
    ck_assert_uint_eq(count(text, "<title>FORWARD s0 m0: "), 1);
    ck_assert_uint_eq(count(text, ">forward</text>"), 1);
    ck_assert_uint_eq(count(text, ">wait</text>"), p > 1);
    ck_assert_uint_eq(count(text, ">forward, chain 1</text>"), run.plan.n_chains > 1);
    free(text);
    timeline_fini(&timeline);
    schedules_run_fini(&run);
}
END_TEST

START_TEST(title_cannot_break_the_drawing)
{
    struct timeline timeline;
    char *text;

    ck_assert_int_eq(timeline_init(&timeline, 0, NULL), GEMS_OK);
    text = draw(&timeline, "</svg><script>&\x01\x1b\"'");
    check_xml(text);
    ck_assert_uint_eq(count(text, "&lt;/svg&gt;&lt;script&gt;&amp;\"'"), 2);
    ck_assert_ptr_null(strpbrk(text, "\x01\x1b"));
    free(text);
    timeline_fini(&timeline);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("timeline");
    TCase *tcase = tcase_create("timeline");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, timeline_is_the_program_without_gaps, SCHEDULE_AUTO + 1,
                        SCHEDULE_COUNT);
    tcase_add_test(tcase, names_say_stage_and_micro_batch);
    tcase_add_test(tcase, span_that_goes_on_is_one);
    tcase_add_loop_test(tcase, drawing_has_every_pass_in_its_place, SCHEDULE_AUTO + 1,
                        SCHEDULE_COUNT);
    tcase_add_test(tcase, title_cannot_break_the_drawing);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
