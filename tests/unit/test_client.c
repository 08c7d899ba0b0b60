/* Command lines, tables, progress, JSON shapes, device lists. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/args.h"
#include "client/offline.h"
#include "client/planview.h"
#include "client/view.h"
#include "common/error.h"

static struct client client;
static struct args args;
static struct gems_error err;

static const struct command *const commands[] = { &cmd_submit, &cmd_status, &cmd_fetch, &cmd_plan,
                                                  &cmd_trace,  &cmd_logs,   NULL };

/* Splits at spaces and parses. */
static int parse(const char *line)
{
    static char copy[256];
    static char *argv[32];
    char *rest = copy;
    int argc = 0;

    snprintf(copy, sizeof copy, "gems-client %s", line);
    while (argc < 31 && (argv[argc] = strsep(&rest, " ")) != NULL) {
        argc++;
    }
    memset(&client, 0, sizeof client);
    memset(&err, 0, sizeof err);
    return args_parse(argc, argv, commands, &client, &args, &err);
}

START_TEST(global_options_stand_anywhere)
{
    static const char *const lines[] = {
        "--json --connect unix:/x submit f.yaml --set a=1 --set b=2 --wait",
        "submit --json f.yaml --set a=1 --connect unix:/x --set b=2 --wait",
        "--connect=unix:/x submit --set=a=1 --wait f.yaml -s b=2 --json",
    };
    const char *sets[4];

    ck_assert_msg(parse(lines[_i]) == GEMS_OK, "%s", err.text);
    ck_assert_ptr_eq(args.command, &cmd_submit);
    ck_assert(client.is_json);
    ck_assert_str_eq(client.connect, "unix:/x");
    ck_assert_uint_eq(args.n_operands, 1);
    ck_assert_str_eq(args.operands[0], "f.yaml");
    ck_assert_uint_eq(args_values(&args, "set", sets, 4), 2);
    ck_assert_str_eq(sets[0], "a=1");
    ck_assert_str_eq(sets[1], "b=2");
    ck_assert(args_has(&args, "wait"));
}
END_TEST

static const struct {
    const char *line, *text;
    int status;
} bad_lines[] = {
    { "submt f", "'submt' is not a command", GEMS_E_INVALID },
    { "submit", "submit: an operand is missing", GEMS_E_INVALID },
    { "submit a b", "submit: 'b' is one operand too many", GEMS_E_INVALID },
    { "submit a --frob", "--frob: unknown option", GEMS_E_INVALID },
    { "submit a -z", "-z: unknown option", GEMS_E_INVALID },
    { "submit a --set", "--set: needs a value", GEMS_E_INVALID },
    { "submit a --wait=5", "--wait: takes no value", GEMS_E_INVALID },
    { "plan a --cluster x", "--cluster: not in this version", GEMS_E_UNSUPPORTED },
};

START_TEST(a_bad_line_is_refused_in_words)
{
    ck_assert_int_eq(parse(bad_lines[_i].line), bad_lines[_i].status);
    ck_assert_str_eq(err.text, bad_lines[_i].text);
    ck_assert_int_eq(command_exit(err.status), EXIT_USAGE);
}
END_TEST

START_TEST(help_needs_no_operands)
{
    ck_assert_int_eq(parse("submit --help"), GEMS_OK);
    ck_assert(args.is_help);
    ck_assert_int_eq(parse("--help"), GEMS_OK);
    ck_assert(args.is_help && !args.command);
}
END_TEST

START_TEST(a_job_is_a_whole_number_above_zero)
{
    static const char *const bad[] = { "status 0", "status x", "status 1.5",
                                       "status 99999999999999999999" };
    uint64_t job = 0;

    ck_assert_int_eq(parse("status 17"), GEMS_OK);
    ck_assert_int_eq(args_job(&args, 0, &job, &err), GEMS_OK);
    ck_assert_uint_eq(job, 17);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(parse(bad[i]), GEMS_OK);
        ck_assert_int_eq(args_job(&args, 0, &job, &err), GEMS_E_INVALID);
    }
    ck_assert_uint_eq(job, 17);
}
END_TEST

START_TEST(exit_codes_are_those_of_the_contract)
{
    static const int wanted[][2] = {
        { GEMS_OK, 0 },        { GEMS_E_INTERNAL, 1 },    { GEMS_E_IO, 1 },
        { GEMS_E_INVALID, 2 }, { GEMS_E_UNSUPPORTED, 2 }, { GEMS_E_NOTFOUND, 3 },
        { GEMS_E_DENIED, 4 },  { GEMS_E_STATE, 5 },       { GEMS_E_PEER, 6 },
        { GEMS_E_NOFIT, 7 },   { GEMS_E_TIMEOUT, 8 },     { GEMS_E_CANCELLED, 130 },
    };

    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        ck_assert_int_eq(command_exit(wanted[i][0]), wanted[i][1]);
    }
}
END_TEST

/* What print() writes to stdout. */
static const char *captured(void (*print)(void))
{
    static char text[4096];
    FILE *file = tmpfile();
    int saved = dup(STDOUT_FILENO);
    size_t n;

    ck_assert_ptr_nonnull(file);
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    print();
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(file);
    n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    fclose(file);
    return text;
}

static void print_table(void)
{
    static const char *const titles[] = { "JOB", "NAME", "LOSS" };
    struct table *table = table_create(titles, 3);

    table_cell(table, "%d", 7);
    table_cell(table, "evil\033[2Jname");
    table_cell(table, "-");
    table_cell(table, "%d", 12345);
    table_cell(table, "b");
    table_cell(table, "%.2f", 1.5);
    table_print(table);
    table_destroy(table);
}

START_TEST(a_table_is_aligned_and_harmless)
{
    ck_assert_str_eq(captured(print_table), "  JOB  NAME          LOSS\n"
                                            "    7  evil?[2Jname     -\n"
                                            "12345  b             1.50\n");
}
END_TEST

START_TEST(a_progress_line_says_what_is_known)
{
    struct progress p = { .state = "QUEUED",
                          .reason = "no device is free",
                          .loss = NAN,
                          .accuracy = NAN,
                          .eval_accuracy = NAN,
                          .eta_seconds = NAN };
    char line[256];

    output_progress(&p, 80, line, sizeof line);
    ck_assert_str_eq(line, "QUEUED: no device is free");
    p.state = "RUNNING";
    p.step = 30;
    p.steps_total = 60;
    output_progress(&p, 80, line, sizeof line);
    ck_assert_str_eq(line, "step 30/60 epoch 1");
    p.samples_per_second = 812.4;
    p.loss = 0.51234;
    p.accuracy = 0.8125;
    p.eval_accuracy = 0.9;
    p.eta_seconds = 75;
    output_progress(&p, 80, line, sizeof line);
    ck_assert_str_eq(line,
                     "step 30/60 epoch 1  812/s  loss 0.5123  acc 0.812  eval 0.9000  ETA 1m15s");
    output_progress(&p, 120, line, sizeof line);
    ck_assert_ptr_nonnull(strstr(line, "[============>           ] step 30/60"));
    output_progress(&p, 30, line, sizeof line);
    ck_assert_uint_eq(strlen(line), 30);
}
END_TEST

START_TEST(a_job_as_json_has_every_key_of_the_contract)
{
    static const char *const names[] = {
        "id",
        "name",
        "user",
        "state",
        "reason",
        "failure_class",
        "attempt",
        "submitted",
        "started",
        "finished",
        "epoch",
        "step",
        "steps_total",
        "samples",
        "loss",
        "accuracy",
        "eval_loss",
        "eval_accuracy",
        "samples_per_second",
        "eta_seconds",
        "schedule",
        "stages",
        "groups",
        "microbatch",
        "recompute",
        "weights_hash",
    };
    Gems__JobInfo info = GEMS__JOB_INFO__INIT;
    json_t *job;

    info.id = 3;
    info.loss = NAN;
    info.accuracy = 0.5;
    info.submitted_us = 1764597845123000;
    job = view_job_json(&info);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ck_assert_msg(json_object_get(job, names[i]) != NULL, "%s", names[i]);
    }
    ck_assert_int_eq(json_integer_value(json_object_get(job, "id")), 3);
    ck_assert(json_is_null(json_object_get(job, "loss")));
    ck_assert(json_is_null(json_object_get(job, "started")));
    ck_assert(json_is_null(json_object_get(job, "weights_hash")));
    ck_assert_double_eq(json_real_value(json_object_get(job, "accuracy")), 0.5);
    ck_assert_str_eq(json_string_value(json_object_get(job, "submitted")),
                     "2025-12-01T14:04:05.123Z");
    json_decref(job);
}
END_TEST

START_TEST(a_rank_as_json_pairs_chains_with_stages)
{
    Gems__StatusReply reply = GEMS__STATUS_REPLY__INIT;
    Gems__JobInfo info = GEMS__JOB_INFO__INIT;
    Gems__RankInfo rank = GEMS__RANK_INFO__INIT, *ranks[] = { &rank };
    uint32_t chains[] = { 0, 1 }, stages[] = { 2, 0 };
    json_t *json, *entry;
    char *text;

    rank.chains = chains;
    rank.stages = stages;
    rank.n_chains = rank.n_stages = 2;
    rank.predicted_bytes = rank.allocated_bytes = UINT64_C(5) << 32;
    reply.job = &info;
    reply.ranks = ranks;
    reply.n_ranks = 1;
    json = view_status_json(&reply);
    entry = json_array_get(json_object_get(json, "ranks"), 0);
    text = json_dumps(json_object_get(entry, "chain_stages"), JSON_COMPACT);
    ck_assert_str_eq(text, "[[0,2],[1,0]]");
    ck_assert_int_eq(json_integer_value(json_object_get(entry, "allocated_bytes")), INT64_C(5)
                                                                                        << 32);
    ck_assert(json_is_array(json_object_get(json, "checkpoints")));
    free(text);
    json_decref(json);
}
END_TEST

START_TEST(a_plan_as_json_has_every_key_of_the_contract)
{
    static const char *const names[] = { "fits",          "parameters",   "schedule",
                                         "stages",        "groups",       "chains",
                                         "microbatch",    "microbatches", "recompute",
                                         "balance",       "step_seconds", "samples_per_second",
                                         "idle_fraction", "devices",      "advice",
                                         "chunks" };
    static const char *const memory_names[] = { "rank",
                                                "weights_bytes",
                                                "gradients_bytes",
                                                "optimizer_bytes",
                                                "activations_bytes",
                                                "buffers_bytes",
                                                "workspace_bytes",
                                                "total_bytes",
                                                "limit_bytes" };
    struct rank_memory memory[2] = { { .weights_bytes = 5, .total_bytes = 9, .limit_bytes = 8 } };
    struct plan *plan = calloc(1, sizeof *plan);
    json_t *json, *device;

    plan->schedule = SCHEDULE_LAYER;
    plan->n_stages = plan->n_ranks = 2;
    plan->n_groups = plan->n_chains = 1;
    plan->stage_layers[0] = 4;
    plan->stage_layers[1] = 5;
    plan->memory = memory;
    json = planview_json(plan);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ck_assert_msg(json_object_get(json, names[i]) != NULL, "%s", names[i]);
    }
    ck_assert_str_eq(json_string_value(json_object_get(json, "schedule")), "layer");
    ck_assert(json_is_false(json_object_get(json, "fits")));
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(json, "balance"), 1)), 5);
    ck_assert_uint_eq(json_array_size(json_object_get(json, "devices")), 2);
    device = json_array_get(json_object_get(json, "devices"), 0);
    for (size_t i = 0; i < sizeof memory_names / sizeof memory_names[0]; i++) {
        ck_assert_msg(json_object_get(device, memory_names[i]) != NULL, "%s", memory_names[i]);
    }
    json_decref(json);
    free(plan);
}
END_TEST

START_TEST(text_that_is_not_utf8_is_still_json)
{
    json_t *text = output_text("a\xff\xfe"
                               "b",
                               4);

    ck_assert_str_eq(json_string_value(text), "a??b");
    json_decref(text);
    text = output_text("\xc3\xa4", 2);
    ck_assert_str_eq(json_string_value(text), "\xc3\xa4");
    json_decref(text);
}
END_TEST

START_TEST(a_list_of_devices_is_counted_out)
{
    static struct plan_device devices[OFFLINE_MAX_DEVICES];
    uint32_t n = 0;

    ck_assert_int_eq(offline_devices("2x16GiB,1x40GB,512MiB", DEVICE_ANY, devices, &n, &err),
                     GEMS_OK);
    ck_assert_uint_eq(n, 4);
    ck_assert_uint_eq(devices[1].memory_bytes, UINT64_C(16) << 30);
    ck_assert_uint_eq(devices[2].memory_bytes, UINT64_C(40000000000));
    ck_assert_uint_eq(devices[3].memory_bytes, UINT64_C(512) << 20);
    ck_assert_int_eq(devices[0].kind, DEVICE_CPU);
    ck_assert_uint_ge(devices[0].threads, 1);
}
END_TEST

START_TEST(a_bad_list_of_devices_names_the_group)
{
    static const char *const bad[] = { "",        "x16GiB",   "4x",       "4x16Gi",
                                       "0x16GiB", "2x16GiB,", "257x1GiB", "axb",
                                       "2",       "4x16" };
    static struct plan_device devices[OFFLINE_MAX_DEVICES];
    uint32_t n;

    ck_assert_int_eq(offline_devices(bad[_i], DEVICE_ANY, devices, &n, &err), GEMS_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "--devices: '"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client");
    TCase *tc = tcase_create("client");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 20);
    tcase_add_loop_test(tc, global_options_stand_anywhere, 0, 3);
    tcase_add_loop_test(tc, a_bad_line_is_refused_in_words, 0,
                        sizeof bad_lines / sizeof bad_lines[0]);
    tcase_add_test(tc, help_needs_no_operands);
    tcase_add_test(tc, a_job_is_a_whole_number_above_zero);
    tcase_add_test(tc, exit_codes_are_those_of_the_contract);
    tcase_add_test(tc, a_table_is_aligned_and_harmless);
    tcase_add_test(tc, a_progress_line_says_what_is_known);
    tcase_add_test(tc, a_job_as_json_has_every_key_of_the_contract);
    tcase_add_test(tc, a_rank_as_json_pairs_chains_with_stages);
    tcase_add_test(tc, a_plan_as_json_has_every_key_of_the_contract);
    tcase_add_test(tc, text_that_is_not_utf8_is_still_json);
    tcase_add_test(tc, a_list_of_devices_is_counted_out);
    tcase_add_loop_test(tc, a_bad_list_of_devices_names_the_group, 0, 10);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
