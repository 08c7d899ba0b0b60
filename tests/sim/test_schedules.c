/* Schedules on uniform stages: the simulator against the closed formulas that the
 * generators' files state. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/error.h"
#include "plan/check.h"
#include "plan/gantt.h"
#include "plan/sched.h"
#include "plan/schedules.h"
#include "plan/sim.h"

static bool gradients_everywhere[SPEC_MAX_STAGES];

static int uniform_plan(enum schedule_kind kind, uint32_t p, uint32_t n, uint32_t n_blocks,
                        struct plan *ret_plan, struct gems_error *err)
{
    struct schedules_layout layout = {
        .kind = kind, .width = p, .microbatches = n, .blocks = n_blocks
    };

    return schedules_uniform_plan(&layout, ret_plan, err);
}

static void measure(enum schedule_kind kind, uint32_t p, uint32_t n, double forward,
                    double backward, struct sim_result *ret_result)
{
    double f[SPEC_MAX_STAGES], b[SPEC_MAX_STAGES];
    struct sim_costs costs = { .forward = f, .backward = b };
    struct gems_error err = { 0 };
    struct plan plan;

    for (uint32_t s = 0; s < SPEC_MAX_STAGES; s++) {
        f[s] = forward;
        b[s] = backward;
    }
    ck_assert_int_eq(uniform_plan(kind, p, n, 2, &plan, &err), GEMS_OK);
    ck_assert_msg(program_check(&plan, gradients_everywhere, &plan.train, NULL, &err) == GEMS_OK,
                  "%s", err.text);
    ck_assert_int_eq(sim_run(&plan, &plan.train, &costs, ret_result, &err), GEMS_OK);
    plan_fini(&plan);
}

/* Step time by the formula of the generator's file. */
static double formula(enum schedule_kind kind, uint32_t p, uint32_t n, double f, double b)
{
    uint32_t m = n / 2;

    switch (kind) {
    case SCHEDULE_LAYER:
        return n * p * (f + b);
    case SCHEDULE_1F1B_INTERLEAVED: /* costs are those of a chunk */
        return 2 * n * (f + b) + (p - 1) * (f + b);
    case SCHEDULE_ZB_H1:
        return n * (f + b) + (p - 1) * f;
    case SCHEDULE_GPIPE:
    case SCHEDULE_1F1B:
        return (n + p - 1) * (f + b);
    default:
        return (p - 1 + 2 * m) * f + 2 * (p - 1 + m) * b;
    }
}

static const enum schedule_kind kinds[] = { SCHEDULE_LAYER,      SCHEDULE_GPIPE,
                                            SCHEDULE_1F1B,       SCHEDULE_1F1B_INTERLEAVED,
                                            SCHEDULE_ZB_H1,      SCHEDULE_GEMS_MAST,
                                            SCHEDULE_GEMS_MASTER };
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };
static const double ratios[] = { 1, 1.5, 2, 3 };

START_TEST(step_time_and_idle_share_are_the_formulas)
{
    enum schedule_kind kind = kinds[_i];

    for (uint32_t p = 1; p <= 9; p++) {
        for (uint32_t n = 1; n <= 16; n++) {
            for (size_t r = 0; r < sizeof ratios / sizeof ratios[0]; r++) {
                double time = formula(kind, p, n, 1, ratios[r]);
                struct sim_result result;

                if ((schedule_find(kind)->n_chains > 1 && n % 2) ||
                    (kind == SCHEDULE_1F1B_INTERLEAVED && n % p) ||
                    (kind == SCHEDULE_ZB_H1 && (n < p || ratios[r] > 2))) {
                    continue;
                }
                measure(kind, p, n, 1, ratios[r], &result);
                ck_assert_double_eq_tol(result.step_seconds, time, 1e-9);
                ck_assert_double_eq_tol(
                    result.idle_fraction,
                    1 - (schedule_find(kind)->chunks ? 1 : 2) * n * (1 + ratios[r]) / time, 1e-9);
                sim_result_fini(&result);
            }
        }
    }
}
END_TEST

/* Of one schedule for given passes; the table asks for uniform stages. */
static void ask(enum schedule_kind kind, struct schedules_question question,
                struct schedules_row *ret_row)
{
    struct schedules_row rows[SCHEDULE_COUNT];
    uint32_t n = 0;

    ck_assert_int_eq(schedules_table(&question, rows, &n, NULL), GEMS_OK);
    ck_assert_uint_eq(n, SCHEDULE_COUNT - 1);
    for (uint32_t r = 0; r < n; r++) {
        ck_assert_int_eq(rows[r].kind, SCHEDULE_AUTO + 1 + (int)r);
        ck_assert_int_eq(rows[r].is_possible, rows[r].reason[0] == '\0');
        if (rows[r].kind == kind) {
            *ret_row = rows[r];
        }
    }
    ck_assert(ret_row->is_possible);
    ck_assert_uint_eq(ret_row->n_devices, question.stages);
}

/* eta passes of m micro-batches, both free. */
START_TEST(gems_master_takes_the_time_of_its_passes)
{
    for (uint32_t p = 1; p <= 6; p++) {
        for (uint32_t eta = 2; eta <= 8; eta += 2) {
            for (uint32_t m = 1; m <= 6; m++) {
                double b = ratios[(p + eta + m) % 4];
                struct schedules_row row;

                ask(SCHEDULE_GEMS_MASTER,
                    (struct schedules_question){ .stages = p,
                                                 .microbatches = eta * m,
                                                 .forward = 1,
                                                 .backward = b,
                                                 .replications = m % 2 ? eta : 0,
                                                 .parts = m % 2 ? 0 : m },
                    &row);
                ck_assert_double_eq_tol(row.time, p - 1 + eta * m + eta * (p - 1 + m) * b, 1e-9);
                for (uint32_t d = 0; d < p; d++) {
                    ck_assert_double_eq_tol(row.peak_activations[d], m, 1e-9);
                }
            }
        }
    }
}
END_TEST

START_TEST(single_is_never_idle)
{
    for (uint32_t n = 1; n <= 16; n++) {
        struct sim_result result;

        measure(SCHEDULE_SINGLE, 1, n, 1, 2, &result);
        ck_assert_double_eq_tol(result.step_seconds, 3.0 * n, 1e-9);
        ck_assert_double_eq_tol(result.idle_fraction, 0, 1e-9);
        sim_result_fini(&result);
    }
}
END_TEST

/* Times in units of Tf with Tb = 2 Tf, and peaks, as the design states them. */
START_TEST(table_has_the_published_numbers)
{
    static const struct {
        uint32_t p, n;
        double layer, master1, master2, mast, one_f_one_b, chimera;
    } cases[] = {
        { 4, 4, 48, 39, 27, 27, 21, 16 },        { 4, 8, 96, 75, 51, 39, 33, 30 },
        { 4, 16, 192, 147, 99, 63, 57, 58 },     { 8, 8, 192, 143, 87, 59, 45, 36 },
        { 8, 32, 768, 551, 327, 131, 117, 126 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t p = cases[i].p, n = cases[i].n;
        const struct {
            enum schedule_kind kind;
            uint32_t parts;
            double time, peak; /* peak 0: differs by device */
        } wanted[] = {
            { SCHEDULE_LAYER, 0, cases[i].layer, 1 },
            { SCHEDULE_GPIPE, 0, cases[i].one_f_one_b, n },
            { SCHEDULE_1F1B, 0, cases[i].one_f_one_b, 0 },
            { SCHEDULE_GEMS_MAST, 0, cases[i].mast, n / 2.0 },
            { SCHEDULE_GEMS_MASTER, 1, cases[i].master1, 1 },
            { SCHEDULE_GEMS_MASTER, 2, cases[i].master2, 2 },
            { SCHEDULE_CHIMERA, 0, cases[i].chimera, 0 },
        };

        for (size_t k = 0; k < sizeof wanted / sizeof wanted[0]; k++) {
            struct schedules_row row;

            ask(wanted[k].kind,
                (struct schedules_question){ .stages = p,
                                             .microbatches = n,
                                             .forward = 1,
                                             .backward = 2,
                                             .parts = wanted[k].parts },
                &row);
            ck_assert_double_eq_tol(row.time, wanted[k].time, 1e-9);
            for (uint32_t d = 0; d < p; d++) {
                double peak = wanted[k].peak > 0                ? wanted[k].peak
                              : wanted[k].kind == SCHEDULE_1F1B ? fmin(n, p - d)
                                                                : p / 2.0 + 1 + fmin(d, p - 1 - d);

                ck_assert_double_eq_tol(row.peak_activations[d], peak, 1e-9);
            }
        }
    }
}
END_TEST

/* N = P: the paper's time; N = K P with Tf = Tb: units one behind the other. */
START_TEST(chimera_takes_the_time_of_its_units)
{
    for (uint32_t p = 2; p <= 16; p += 2) {
        struct schedules_row row;

        for (uint32_t k = 1; k <= 5; k++) {
            ask(SCHEDULE_CHIMERA,
                (struct schedules_question){
                    .stages = p, .microbatches = k * p, .forward = 1, .backward = 1 },
                &row);
            ck_assert_double_eq_tol(row.time, 2 * k * p + p - 2, 1e-9);
        }
        ask(SCHEDULE_CHIMERA,
            (struct schedules_question){
                .stages = p, .microbatches = p, .forward = 1, .backward = 2 },
            &row);
        ck_assert_double_eq_tol(row.time, p + (2 * p - 2) * 2, 1e-9);
    }
}
END_TEST

/* One half and one third of what 1f1b holds, with the rounding of the paper, at half
 * and two thirds of its idle time. */
START_TEST(v_schedules_hold_what_they_promise)
{
    for (uint32_t p = 1; p <= 16; p++) {
        struct schedules_question question = {
            .stages = p, .microbatches = 3 * p + 2, .forward = 1, .backward = 2
        };
        double busy = 3 * question.microbatches, idle;
        struct schedules_row half, min;

        ask(SCHEDULE_V_HALF, question, &half);
        ask(SCHEDULE_V_MIN, question, &min);
        for (uint32_t d = 0; d < p; d++) {
            ck_assert_double_le(half.peak_activations[d], p / 2.0 + 1 + 1e-9);
            ck_assert_double_le(min.peak_activations[d], (p + 4) / 3.0 + 1e-9);
        }
        idle = p == 1 ? 0 : p % 2 ? 1.5 * p - 2 : 1.5 * (p - 1);
        ck_assert_double_eq_tol(half.time - busy, idle, 1e-9);
        idle = p == 1 ? 0 : p % 3 ? 2 * p - 2.5 : 2 * p - 1.5;
        ck_assert_double_eq_tol(min.time - busy, idle, 1e-9);
    }
}
END_TEST

/* What a device holds of 1f1b-interleaved and of zb-h1. */
START_TEST(peaks_are_the_formulas)
{
    for (uint32_t p = 1; p <= 6; p++) {
        for (uint32_t n = 1; n <= 12; n++) {
            struct schedules_question question = {
                .stages = p, .microbatches = n, .forward = 1, .backward = 2
            };
            struct schedules_row row;

            ask(SCHEDULE_ZB_H1, question, &row);
            for (uint32_t d = 0; d < p; d++) {
                ck_assert_double_eq_tol(row.peak_activations[d], fmin(n, p), 1e-9);
            }
            ask(SCHEDULE_1F1B_INTERLEAVED, question, &row);
            for (uint32_t d = 0; d < p; d++) {
                uint32_t most = 2 * (p - 1 - d) + p + 1;

                if (n % p == 0) {
                    ck_assert_double_eq_tol(2 * row.peak_activations[d], fmin(2 * n, most), 1e-9);
                }
                ck_assert_double_le(2 * row.peak_activations[d], fmin(2 * n, most));
            }
        }
    }
}
END_TEST

/* Every schedule on any number of devices, micro-batches, groups and chunks: what the
 * checker proves, and stages whose times and delays nobody foresaw. */
START_TEST(every_layout_is_proven)
{
    for (uint32_t p = 1; p <= 9; p++) {
        for (uint32_t n = 1; n <= 20; n++) {
            struct schedules_layout layout = {
                .kind = (enum schedule_kind)_i,
                .width = p,
                .groups = 1 + (p + n) % 3,
                .chunks = 1 + n % 4,
                .microbatches = n,
                .passes = 1 + n % 5,
                .recompute = (enum recompute)(n % 3),
            };
            const struct schedule *schedule = schedule_find(layout.kind);
            struct sim_costs costs = { .latency = 0.5, .delay = 3, .delay_seed = p * 100 + n };
            struct gems_error err = { 0 };
            struct sim_result result;
            struct plan plan;

            if ((schedule->is_one_stage && p > 1) || (schedule->is_even && p % 2)) {
                continue;
            }
            ck_assert_msg(schedules_uniform_plan(&layout, &plan, &err) == GEMS_OK, "%s", err.text);
            ck_assert_msg(program_check(&plan, gradients_everywhere, &plan.train, NULL, &err) ==
                              GEMS_OK,
                          "%s", err.text);
            ck_assert_int_eq(sim_run(&plan, &plan.train, &costs, &result, &err), GEMS_OK);
            sim_result_fini(&result);
            plan_fini(&plan);
        }
    }
}
END_TEST

/* The design's (N + P - 1) (2 Tf + Tb) is an upper bound: forwards that run again need
 * no gradient. */
START_TEST(recomputation_costs_a_forward_a_micro_batch)
{
    for (uint32_t p = 1; p <= 9; p++) {
        for (uint32_t n = 1; n <= 20; n++) {
            struct schedules_layout layout = {
                .kind = SCHEDULE_1F1B, .width = p, .microbatches = n, .recompute = RECOMPUTE_ALL
            };
            double ones[9], twos[9];
            struct sim_costs costs = { .forward = ones, .backward = twos };
            struct sim_result result;
            struct plan plan;

            for (uint32_t s = 0; s < p; s++) {
                ones[s] = 1;
                twos[s] = 2;
            }
            ck_assert_int_eq(schedules_uniform_plan(&layout, &plan, NULL), GEMS_OK);
            ck_assert_int_eq(sim_run(&plan, &plan.train, &costs, &result, NULL), GEMS_OK);
            ck_assert_double_le(result.step_seconds, (n + p - 1) * 4);
            ck_assert_double_eq_tol(result.step_seconds, n * 4 + (p - 1) * 3, 1e-9);
            sim_result_fini(&result);
            plan_fini(&plan);
        }
    }
}
END_TEST

START_TEST(odd_chimera_is_refused)
{
    struct schedules_layout layout = { .kind = SCHEDULE_CHIMERA, .width = 5, .microbatches = 4 };
    struct gems_error err = { 0 };
    struct plan plan;

    ck_assert_int_eq(schedules_uniform_plan(&layout, &plan, &err), GEMS_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "even number of stages, not on 5"));
    ck_assert_ptr_nonnull(strstr(err.hint, "4 or 6 stages"));
}
END_TEST

START_TEST(table_refuses_nonsense)
{
    static const struct schedules_question bad[] = {
        { 0, 4, 1, 2, 0, 0 }, { 257, 4, 1, 2, 0, 0 }, { 4, 0, 1, 2, 0, 0 },
        { 4, 4, 0, 2, 0, 0 }, { 4, 4, 1, -1, 0, 0 },
    };
    struct schedules_row rows[SCHEDULE_COUNT];
    uint32_t n;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(schedules_table(&bad[i], rows, &n, NULL), GEMS_E_INVALID);
    }
    ck_assert_int_eq(
        schedules_table(&(struct schedules_question){ 4, 4, 1, (double)NAN, 0, 0 }, rows, &n, NULL),
        GEMS_E_INVALID);
}
END_TEST

/* Any times a stage: with one micro-batch a chain, N = 2 (derived with the
 * schedule): the passes of both chains lie on one path over the slowest device. */
START_TEST(mast_with_uneven_stages_takes_the_longest_path)
{
    for (uint32_t seed = 0; seed < 300; seed++) {
        double f[9], b[9], all_f = 0, all_b = 0, gap = 0;
        uint32_t p = 1 + seed % 9;
        struct sim_costs costs = { .forward = f, .backward = b };
        struct sim_result result;
        struct plan plan;

        srand(seed);
        for (uint32_t s = 0; s < p; s++) {
            f[s] = 1 + rand() % 9;
            b[s] = f[s] * (1 + rand() % 3);
            all_f += f[s];
            all_b += b[s];
        }
        for (uint32_t d = 0; d < p; d++) {
            double path = 0;

            for (uint32_t s = d; s < p; s++) {
                path += b[s];
            }
            for (uint32_t s = p - 1 - d; s < p; s++) {
                path += f[s];
            }
            gap = fmax(gap, path);
        }
        ck_assert_int_eq(uniform_plan(SCHEDULE_GEMS_MAST, p, 2, 2, &plan, NULL), GEMS_OK);
        ck_assert_int_eq(sim_run(&plan, &plan.train, &costs, &result, NULL), GEMS_OK);
        ck_assert_double_eq_tol(result.step_seconds, all_f + all_b + gap, 1e-9);
        sim_result_fini(&result);
        plan_fini(&plan);
    }
}
END_TEST

/* The drawings at the head of the generators' files. */
START_TEST(drawings_show_what_is_simulated)
{
    static const struct {
        enum schedule_kind kind;
        uint32_t p, n, width, passes;
        const char *rows;
    } cases[] = {
        { SCHEDULE_SINGLE, 1, 4, 8, 0, "rank 0   |0a1b2c3d|\n" },
        { SCHEDULE_LAYER, 4, 2, 16, 0,
          "rank 0   |0......a1......b|\n"
          "rank 1   |.0....a..1....b.|\n"
          "rank 2   |..0..a....1..b..|\n"
          "rank 3   |...0a......1b...|\n" },
        { SCHEDULE_GPIPE, 4, 4, 14, 0,
          "rank 0   |0123......abcd|\n"
          "rank 1   |.0123....abcd.|\n"
          "rank 2   |..0123..abcd..|\n"
          "rank 3   |...0123abcd...|\n" },
        { SCHEDULE_GEMS_MAST, 4, 2, 13, 0,
          "rank 0   |0......a1b...|\n"
          "rank 1   |.0....a1..b..|\n"
          "rank 2   |..0..a1....b.|\n"
          "rank 3   |...0a1......b|\n" },
        { SCHEDULE_GEMS_MAST, 4, 4, 17, 0,
          "rank 0   |01......ab23cd...|\n"
          "rank 1   |.01....ab23..cd..|\n"
          "rank 2   |..01..ab23....cd.|\n"
          "rank 3   |...01ab23......cd|\n" },
        { SCHEDULE_1F1B, 4, 4, 14, 0,
          "rank 0   |0123...a.b.c.d|\n"
          "rank 1   |.012..a3b.c.d.|\n"
          "rank 2   |..01.a2b3c.d..|\n"
          "rank 3   |...0a1b2c3d...|\n" },
        { SCHEDULE_GEMS_MASTER, 4, 4, 23, 4,
          "rank 0   |0......a2c1......b3d...|\n"
          "rank 1   |.0....a2..c1....b3..d..|\n"
          "rank 2   |..0..a2....c1..b3....d.|\n"
          "rank 3   |...0a2......c1b3......d|\n" },
        { SCHEDULE_CHIMERA, 4, 4, 10, 0,
          "rank 0   |01.2c3da.b|\n"
          "rank 1   |.0213cadb.|\n"
          "rank 2   |.2031acbd.|\n"
          "rank 3   |23.0a1bc.d|\n" },
        { SCHEDULE_1F1B_INTERLEAVED, 4, 4, 22, 0,
          "rank 0   |01230123...a.b.c.dabcd|\n"
          "rank 1   |.01230123.a.b.c.dabcd.|\n"
          "rank 2   |..0123012a3b.c.dabcd..|\n"
          "rank 3   |...01230a1b2c3dabcd...|\n" },
        { SCHEDULE_ZB_H1, 4, 4, 15, 0,
          "rank 0   |0123...akblcmdn|\n"
          "rank 1   |.012..a3bkcldmn|\n"
          "rank 2   |..01.a2b3ckdlmn|\n"
          "rank 3   |...0a1b2c3dklmn|\n" },
        { SCHEDULE_V_HALF, 4, 4, 33, 0,
          "rank 0   |01.....02ak13bl2..ack3mbdlncm..dn|\n"
          "rank 1   |.01...0..21ak32blak.3cbmldcnm.dn.|\n"
          "rank 2   |..0..01..12.a2k3abk3lbclmcdmndn..|\n"
          "rank 3   |...00..11..22aak3k3bbllccmmddnn..|\n" },
        { SCHEDULE_V_MIN, 4, 4, 35, 0,
          "rank 0   |01.....0a2k..1bal3k2cbml.3dcnm...dn|\n"
          "rank 1   |.0....01.ak.12abkl23bclm3.cdmn..dn.|\n"
          "rank 2   |..0..0..1.a1ka2kb2lb3lc3mcm.dn.dn..|\n"
          "rank 3   |...00....11aakk22bbll33ccmm..ddnn..|\n" },
    };
    static const double ones[] = { 1, 1, 1, 1, 1, 1, 1, 1 }, twos[] = { 2, 2, 2, 2, 2, 2, 2, 2 };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sim_costs costs = { .forward = ones,
                                   .backward =
                                       schedule_find(cases[i].kind)->is_split ? twos : ones };
        struct sim_result result;
        struct schedules_layout layout;
        struct buf text = { 0 };
        struct plan plan;
        char *drawing;

        layout = (struct schedules_layout){ .kind = cases[i].kind,
                                            .width = cases[i].p,
                                            .microbatches = cases[i].n,
                                            .passes = cases[i].passes };
        ck_assert_int_eq(schedules_uniform_plan(&layout, &plan, NULL), GEMS_OK);
        ck_assert_int_eq(sim_run(&plan, &plan.train, &costs, &result, NULL), GEMS_OK);
        ck_assert_int_eq(gantt_text(&plan.train, &result, cases[i].width, &text), GEMS_OK);
        drawing = buf_take(&text);
        ck_assert_str_eq(drawing, cases[i].rows);
        free(drawing);
        sim_result_fini(&result);
        plan_fini(&plan);
    }
}
END_TEST

/* Two chains evaluate at once, in both directions. */
START_TEST(evaluation_keeps_both_chains_busy)
{
    static const char *const rows = "rank 0   |02.14365.7|\n"
                                    "rank 1   |.01234567.|\n"
                                    "rank 2   |.10325476.|\n"
                                    "rank 3   |13.05274.6|\n";
    double ones[] = { 1, 1, 1, 1 };
    struct sim_costs costs = { .forward = ones };
    struct sched_input input = { .has_gradient = gradients_everywhere,
                                 .is_eval = true,
                                 .n_microbatches = 8,
                                 .microbatch = 1,
                                 .last_microbatch = 1 };
    struct program program;
    struct sim_result result;
    struct buf text = { 0 };
    struct plan plan;
    char *drawing;

    ck_assert_int_eq(uniform_plan(SCHEDULE_GEMS_MAST, 4, 8, 2, &plan, NULL), GEMS_OK);
    input.plan = &plan;
    ck_assert_int_eq(sched_make(&input, &program, NULL), GEMS_OK);
    ck_assert_int_eq(sim_run(&plan, &program, &costs, &result, NULL), GEMS_OK);
    ck_assert_double_eq_tol(result.step_seconds, 10, 1e-9);
    ck_assert_int_eq(gantt_text(&program, &result, 10, &text), GEMS_OK);
    drawing = buf_take(&text);
    ck_assert_str_eq(drawing, rows);
    free(drawing);
    sim_result_fini(&result);
    program_fini(&program);
    plan_fini(&plan);
}
END_TEST

int main(void)
{
    memset(gradients_everywhere, true, sizeof gradients_everywhere);
    Suite *suite = suite_create("schedules");
    TCase *tcase = tcase_create("formulas");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, step_time_and_idle_share_are_the_formulas, 0, N_KINDS);
    tcase_add_test(tcase, gems_master_takes_the_time_of_its_passes);
    tcase_add_test(tcase, single_is_never_idle);
    tcase_add_test(tcase, table_has_the_published_numbers);
    tcase_add_test(tcase, chimera_takes_the_time_of_its_units);
    tcase_add_test(tcase, v_schedules_hold_what_they_promise);
    tcase_add_test(tcase, peaks_are_the_formulas);
    tcase_add_loop_test(tcase, every_layout_is_proven, SCHEDULE_AUTO + 1, SCHEDULE_COUNT);
    tcase_add_test(tcase, recomputation_costs_a_forward_a_micro_batch);
    tcase_add_test(tcase, odd_chimera_is_refused);
    tcase_add_test(tcase, table_refuses_nonsense);
    tcase_add_test(tcase, drawings_show_what_is_simulated);
    tcase_add_test(tcase, evaluation_keeps_both_chains_busy);
    tcase_add_test(tcase, mast_with_uneven_stages_takes_the_longest_path);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
