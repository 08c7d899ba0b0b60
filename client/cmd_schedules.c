#include <math.h>
#include <stdio.h>

#include "client/args.h"
#include "client/draw.h"
#include "client/output.h"
#include "common/buf.h"
#include "common/error.h"
#include "plan/gantt.h"
#include "plan/schedules.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

static const struct option_entry options[] = {
    { "stages", 0, "P", "devices of one pipeline" },
    { "microbatches", 0, "N", "micro-batches of one step" },
    { "forward", 0, "TIME", "of one micro-batch on one stage; default 1" },
    { "backward", 0, "TIME", "default twice the forward" },
    { "parts", 0, "M", "micro-batches of a pass of gems-master; default N/E" },
    { "replications", 0, "E", "passes of gems-master; default 2" },
    { "schedule", 0, "NAME", "only this one" },
    { "draw", 0, NULL, "draw the step: what every rank does when" },
    { "svg", 0, "FILE", "write that drawing of one schedule to a file; - is stdout" },
    { NULL, 0, NULL, NULL },
};

const struct command cmd_schedules = {
    .name = "schedules",
    .synopsis = "--stages P --microbatches N [--forward 1 --backward 2] [--parts M] [--replications E]\n"
                "       [--schedule NAME] [--draw] [--svg FILE]",
    .summary = "compare all schedules on uniform stages",
    .details =
        "Simulates every schedule: time of a step, share of it that devices wait, and the most\n"
        "activations a device holds, counted in micro-batches of a stage. No gemsd is needed.\n"
        "In a drawing a column is as long as the shortest pass.\n\n"
        "  gems-client schedules --stages 4 --microbatches 4 --backward 1 --schedule gpipe --draw\n",
    .options = options,
    .run = run,
};

static int read_time(const struct args *args, const char *name, double *inout_time,
                     struct gems_error *err)
{
    const char *text = args_value(args, name);
    double value;
    char rest;

    if (!text) {
        return GEMS_OK;
    }
    if (sscanf(text, "%lf%c", &value, &rest) != 1 || !(value > 0 && value <= 1e9)) {
        return gems_error_set(err, GEMS_E_INVALID, "--%s: '%.40s' is not a number above 0", name,
                              text);
    }
    *inout_time = value;
    return GEMS_OK;
}

static int read_question(const struct args *args, struct schedules_question *ret_question,
                         struct gems_error *err)
{
    uint64_t stages = 0, microbatches = 0, parts = 0, replications = 0;
    struct schedules_question question = { .forward = 1 };
    int status;

    if (!args_has(args, "stages") || !args_has(args, "microbatches")) {
        gems_error_set(err, GEMS_E_INVALID, "schedules: --%s is missing",
                       args_has(args, "stages") ? "microbatches" : "stages");
        gems_error_hint(err, "usage: gems-client schedules %s", cmd_schedules.synopsis);
        return GEMS_E_INVALID;
    }
    if ((status = args_number(args, "stages", 1, SPEC_MAX_STAGES, &stages, err)) < 0 ||
        (status = args_number(args, "microbatches", 1, 4096, &microbatches, err)) < 0 ||
        (status = args_number(args, "parts", 1, 4096, &parts, err)) < 0 ||
        (status = args_number(args, "replications", 1, 4096, &replications, err)) < 0 ||
        (status = read_time(args, "forward", &question.forward, err)) < 0) {
        return status;
    }
    question.backward = 2 * question.forward;
    question.stages = (uint32_t)stages;
    question.microbatches = (uint32_t)microbatches;
    question.parts = (uint32_t)parts;
    question.replications = (uint32_t)replications;
    status = read_time(args, "backward", &question.backward, err);
    *ret_question = question;
    return status;
}

static json_t *row_json(const struct schedules_row *row)
{
    json_t *object = json_object(), *peaks = json_array();

    for (uint32_t i = 0; row->is_possible && i < row->n_devices; i++) {
        json_array_append_new(peaks, json_real(row->peak_activations[i]));
    }
    json_object_set_new(object, "schedule", json_string(schedule_name(row->kind)));
    json_object_set_new(object, "time", row->is_possible ? output_real(row->time) : json_null());
    json_object_set_new(object, "idle_fraction",
                        row->is_possible ? output_real(row->idle_fraction) : json_null());
    json_object_set_new(object, "peak_activations", peaks);
    json_object_set_new(object, "reason",
                        row->is_possible ? json_null() : json_string(row->reason));
    return object;
}

static void print_rows(const struct schedules_row *rows, uint32_t n)
{
    static const char *const titles[] = { "SCHEDULE", "TIME", "IDLE", "PEAK ACTIVATIONS" };
    struct table *table = table_create(titles, 4);

    for (uint32_t i = 0; i < n; i++) {
        double peak = 0;

        table_cell(table, "%s", schedule_name(rows[i].kind));
        if (!rows[i].is_possible) {
            table_cell(table, "-");
            table_cell(table, "-");
            table_cell(table, "%s", rows[i].reason);
            continue;
        }
        for (uint32_t d = 0; d < rows[i].n_devices; d++) {
            peak = rows[i].peak_activations[d] > peak ? rows[i].peak_activations[d] : peak;
        }
        table_cell(table, "%.6g", rows[i].time);
        table_cell(table, "%.1f%%", 100 * rows[i].idle_fraction);
        table_cell(table, "%.6g", peak);
    }
    table_print(table);
    table_destroy(table);
}

enum { MAX_WIDTH = 4000 };

static int draw(const struct schedules_question *question, enum schedule_kind kind,
                struct gems_error *err)
{
    struct schedules_run run;
    struct buf text = { 0 };
    double width;
    int status = schedules_run(question, kind, &run, err);

    if (status == GEMS_E_UNSUPPORTED) { /* the table says why */
        return GEMS_OK;
    }
    if (status < 0) {
        return status;
    }
    width = round(run.result.step_seconds / run.shortest);
    width = width < 1 ? 1 : width < MAX_WIDTH ? width : MAX_WIDTH;
    status = gantt_text(&run.plan.train, &run.result, (uint32_t)width, &text);
    if (status < 0) {
        gems_error_set(err, status, "schedules: out of memory");
    } else {
        printf("\n%s\n%.*s", schedule_name(kind), (int)text.n, (const char *)text.data);
    }
    buf_fini(&text);
    schedules_run_fini(&run);
    return status;
}

static int write_svg(const struct schedules_question *question, enum schedule_kind kind,
                     const char *path, struct gems_error *err)
{
    struct schedules_run run;
    struct timeline timeline;
    char title[128];
    int status = schedules_run(question, kind, &run, err);

    if (status < 0) {
        return status;
    }
    snprintf(title, sizeof title, "%s: %u stages, %u micro-batches", schedule_name(kind),
             question->stages, question->microbatches);
    status = timeline_simulated(&run.plan.train, &run.result, 1, &timeline, err);
    if (status == GEMS_OK) {
        status = draw_write_svg(&timeline, title, false, path, err);
        timeline_fini(&timeline);
    }
    schedules_run_fini(&run);
    return status;
}

/* The one that is asked for; SCHEDULE_AUTO: all. */
static int read_kind(const struct args *args, enum schedule_kind *ret_kind, struct gems_error *err)
{
    const char *name = args_value(args, "schedule");
    int kind = name ? schedule_from_name(name) : SCHEDULE_AUTO;

    if (kind < 0 || (name && kind == SCHEDULE_AUTO)) {
        gems_error_set(err, GEMS_E_INVALID, "--schedule: '%.40s' is no schedule", name);
        gems_error_hint(err, "without --schedule all are shown");
        return GEMS_E_INVALID;
    }
    if (!name && args_has(args, "svg")) {
        return gems_error_set(err, GEMS_E_INVALID, "--svg: one drawing, so --schedule is needed");
    }
    *ret_kind = (enum schedule_kind)kind;
    return GEMS_OK;
}

static void show_rows(const struct client *client, const struct schedules_row *rows, uint32_t n)
{
    json_t *list;

    if (!client->is_json) {
        print_rows(rows, n);
        return;
    }
    list = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_array_append_new(list, row_json(&rows[i]));
    }
    output_json(json_pack("{s:o}", "schedules", list));
}

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    static struct schedules_row rows[SCHEDULE_COUNT];
    struct schedules_question question;
    enum schedule_kind kind = SCHEDULE_AUTO;
    uint32_t n = 0, first = 0;
    int status = read_question(args, &question, err);

    if (status == GEMS_OK) {
        status = read_kind(args, &kind, err);
    }
    if (status == GEMS_OK) {
        status = schedules_table(&question, rows, &n, err);
    }
    if (status < 0) {
        return status;
    }
    if (kind != SCHEDULE_AUTO) {
        first = (uint32_t)kind - (SCHEDULE_AUTO + 1);
        n = first + 1;
    }
    show_rows(client, rows + first, n - first);
    for (uint32_t i = first; i < n && status == GEMS_OK && args_has(args, "draw"); i++) {
        status = client->is_json ? GEMS_OK : draw(&question, rows[i].kind, err);
    }
    if (status == GEMS_OK && args_has(args, "svg")) {
        status = write_svg(&question, kind, args_value(args, "svg"), err);
    }
    return status < 0 ? status : EXIT_OK;
}
