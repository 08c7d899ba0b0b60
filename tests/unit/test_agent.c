/* gems-worker against a gemsd that is this test. */
#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/error.h"
#include "common/fsutil.h"
#include "proto/codec.h"
#include "tests/unit/agent_world.h"
#include "worker/agent/devices.h"
#include "worker/agent/logs.h"
#include "worker/agent/roots.h"

/* Says who it is and stays. */
static const char staying[] = "echo $$ >$DIR/pid.new; mv $DIR/pid.new $DIR/pid\n"
                              "while :; do sleep 0.05; done";

static char *slurp(struct agent_world *world, const char *name, size_t *ret_n)
{
    struct buf buf = { 0 };
    struct gems_error err;
    char path[160];

    snprintf(path, sizeof path, "%s/%s", world->dir, name);
    ck_assert_msg(fs_read(path, 1 << 20, &buf, &err) == 0, "%s", err.text);
    *ret_n = buf.n;
    return buf_take(&buf);
}

/* Takes the report of an exit and acknowledges it. */
static Gems__RankExit *take_exit(struct agent_world *world, struct agent_frame *ret_frame,
                                 char *log, size_t room)
{
    *ret_frame = agent_world_expect(world, MSG_RANK_EXIT, log, room);
    agent_world_reply(world, ret_frame->call, MSG_OK, NULL);
    return (Gems__RankExit *)ret_frame->message;
}

START_TEST(registers_its_devices)
{
    struct agent_world world;
    struct agent_frame frame;
    const Gems__Register *message;

    agent_world_start(&world, "exit 0", NULL);
    frame = agent_world_accept(&world);
    message = (const Gems__Register *)frame.message;
    ck_assert_str_eq(message->node, "node1");
    ck_assert_uint_eq(message->n_devices, 2);
    ck_assert_str_eq(message->devices[1]->id, "cpu:1");
    ck_assert_str_eq(message->devices[1]->kind, "cpu");
    ck_assert_uint_eq(message->devices[1]->threads, 1);
    ck_assert_uint_eq(message->devices[1]->memory_bytes, 64 << 20);
    ck_assert_uint_eq(message->n_running, 0);
    ck_assert_uint_eq(message->uid, getuid());
    ck_assert_uint_gt(message->cores, 0);
    ck_assert_uint_gt(strlen(message->boot_id), 30);
    ck_assert_msg(message->kind_cpu[0] != '\0', "the kind of the devices is not known");
    frame_free(&frame);
    agent_world_stop(&world);
}
END_TEST

START_TEST(rank_inherits_what_it_needs_and_nothing_leaks)
{
    struct agent_world world;
    struct agent_frame frame;
    Gems__LaunchInfo *info;
    Gems__RankExit *report;
    char log[4096] = "", *text;
    size_t n;

    agent_world_start(&world,
                      "eval \"cat <&$GEMS_LAUNCH_FD\" >$DIR/info\n"
                      "tr '\\0' '\\n' </proc/$$/environ >$DIR/env\n"
                      "tr '\\0' ' ' </proc/$$/cmdline >$DIR/args\n"
                      "echo out; echo err >&2; exit 7",
                      NULL);
    agent_world_register(&world);
    ck_assert_int_eq(agent_world_launch(&world, 41, 3, "cpu:1"), MSG_OK);
    report = take_exit(&world, &frame, log, sizeof log);
    ck_assert_uint_eq(report->ref->job, 41);
    ck_assert_uint_eq(report->ref->attempt, 3);
    ck_assert(!report->signaled && !report->oom);
    ck_assert_int_eq(report->code, 7);
    ck_assert_str_eq(report->tail, "out\nerr\n");
    ck_assert_uint_gt(report->peak_rss_bytes, 100000);
    frame_free(&frame);
    text = slurp(&world, "info", &n);
    info = gems__launch_info__unpack(NULL, n, (const uint8_t *)text);
    ck_assert_ptr_nonnull(info);
    ck_assert_uint_eq(info->secret.len, 32);
    ck_assert_str_eq((const char *)info->secret.data, "SECRETsecretSECRETsecretSECRET!");
    ck_assert_str_eq(info->rank_token, "TOKENtoken");
    ck_assert_str_eq(info->device, "cpu:1");
    ck_assert_str_eq(info->node, "node1");
    ck_assert_uint_eq(info->threads, 3);
    ck_assert_uint_eq(info->memory_bytes, 12345);
    ck_assert_ptr_nonnull(strstr(info->connect, world.socket));
    ck_assert_uint_gt(info->lifeline_fd, 2);
    gems__launch_info__free_unpacked(info, NULL);
    free(text);
    text = slurp(&world, "env", &n);
    ck_assert_ptr_nonnull(strstr(text, "OMP_NUM_THREADS=3\n"));
    ck_assert_ptr_nonnull(strstr(text, "OMP_WAIT_POLICY=passive\n"));
    ck_assert_ptr_nonnull(strstr(text, "UCX_ERROR_SIGNALS=\n"));
    ck_assert_ptr_nonnull(strstr(text, "UCX_DEBUG_SIGNO=0\n"));
    ck_assert_ptr_null(strstr(text, "SECRET"));
    ck_assert_ptr_null(strstr(text, "TOKEN"));
    free(text);
    text = slurp(&world, "args", &n);
    ck_assert_ptr_null(strstr(text, "SECRET"));
    ck_assert_ptr_null(strstr(text, "TOKEN"));
    free(text);
    agent_world_stop(&world);
}
END_TEST

START_TEST(exit_is_reported_until_it_is_acknowledged)
{
    struct agent_world world;
    struct agent_frame frame;
    Gems__RegisterReply reply = GEMS__REGISTER_REPLY__INIT;

    agent_world_start(&world, "exit 5", NULL);
    agent_world_register(&world);
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:0"), MSG_OK);
    frame = agent_world_expect(&world, MSG_RANK_EXIT, NULL, 0);
    frame_free(&frame);
    for (int round = 0; round < 2; round++) {
        agent_world_disconnect(&world);
        frame = agent_world_accept(&world);
        ck_assert_uint_eq(((Gems__Register *)frame.message)->n_running, round == 0);
        agent_world_reply(&world, frame.call, MSG_REGISTER_REPLY, &reply.base);
        frame_free(&frame);
        if (round == 0) {
            ck_assert_int_eq(take_exit(&world, &frame, NULL, 0)->code, 5);
            frame_free(&frame);
        }
    }
    agent_world_stop(&world);
}
END_TEST

START_TEST(log_arrives_whole_and_in_place)
{
    enum { ROOM = 2 << 20 };
    struct agent_world world;
    struct agent_frame frame;
    static char log[ROOM];
    char line[32];
    const char *at = log;

    agent_world_start(&world, "seq 1 100000", NULL);
    agent_world_register(&world);
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:0"), MSG_OK);
    frame = agent_world_expect(&world, MSG_RANK_EXIT, log, ROOM);
    ck_assert_ptr_nonnull(strstr(((Gems__RankExit *)frame.message)->tail, "\n99999\n100000\n"));
    agent_world_reply(&world, frame.call, MSG_OK, NULL);
    frame_free(&frame);
    /* The log may come after the report of the exit. */
    while (!strstr(log + 588880, "\n100000\n")) {
        frame = agent_world_expect(&world, MSG_RANK_LOG, NULL, 0);
        memcpy(log + ((Gems__RankLog *)frame.message)->offset,
               ((Gems__RankLog *)frame.message)->data.data,
               ((Gems__RankLog *)frame.message)->data.len);
        agent_world_reply(&world, frame.call, MSG_OK, NULL);
        frame_free(&frame);
    }
    for (int i = 1; i <= 100000; i++) {
        int n = snprintf(line, sizeof line, "%d\n", i);

        ck_assert_msg(strncmp(at, line, (size_t)n) == 0, "line %d is not there", i);
        at += n;
    }
    agent_world_stop(&world);
}
END_TEST

START_TEST(log_has_a_limit)
{
    struct agent_world world;
    struct agent_frame frame;
    Gems__RankExit *report;
    char log[16384] = "";
    char *const options[] = { (char *)"--rank-log", (char *)"4096", NULL };

    agent_world_start(&world, "seq 1 100000", options);
    agent_world_register(&world);
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:0"), MSG_OK);
    report = take_exit(&world, &frame, log, sizeof log);
    ck_assert_ptr_nonnull(strstr(report->tail, "\n100000\n"));
    frame_free(&frame);
    /* All pieces are there once a Register no longer waits for them. */
    agent_world_stop(&world);
    ck_assert_uint_lt(strlen(log), 4096 + 200);
    ck_assert_int_eq(strncmp(log, "1\n2\n3\n", 6), 0);
}
END_TEST

START_TEST(kill_asks_first)
{
    struct agent_world world;
    struct agent_frame frame;
    Gems__RankExit *report;

    agent_world_start(&world,
                      "trap 'echo asked; exit 3' TERM\n"
                      "echo $$ >$DIR/pid\nwhile :; do sleep 0.05; done",
                      NULL);
    agent_world_register(&world);
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:0"), MSG_OK);
    agent_world_number(&world, "pid");
    agent_world_kill(&world, 1, 1, 10000);
    report = take_exit(&world, &frame, NULL, 0);
    ck_assert(!report->signaled);
    ck_assert_int_eq(report->code, 3);
    frame_free(&frame);
    agent_world_stop(&world);
}
END_TEST

START_TEST(kill_does_not_wait_for_ever)
{
    struct agent_world world;
    struct agent_frame frame;
    Gems__RankExit *report;

    agent_world_start(&world, "trap '' TERM\necho $$ >$DIR/pid\nwhile :; do sleep 0.05; done",
                      NULL);
    agent_world_register(&world);
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:0"), MSG_OK);
    agent_world_number(&world, "pid");
    agent_world_kill(&world, 1, 1, _i == 0 ? 300 : 0);
    report = take_exit(&world, &frame, NULL, 0);
    ck_assert(report->signaled && !report->oom);
    ck_assert_int_eq(report->code, SIGKILL);
    frame_free(&frame);
    agent_world_stop(&world);
}
END_TEST

START_TEST(ranks_outlive_a_lost_connection)
{
    struct agent_world world;
    struct agent_frame frame;
    Gems__RegisterReply reply = GEMS__REGISTER_REPLY__INIT;
    const Gems__Register *message;
    pid_t pid;

    agent_world_start(&world, staying, NULL);
    agent_world_register(&world);
    ck_assert_int_eq(agent_world_launch(&world, 6, 2, "cpu:0"), MSG_OK);
    pid = (pid_t)agent_world_number(&world, "pid");
    agent_world_disconnect(&world);
    frame = agent_world_accept(&world);
    message = (const Gems__Register *)frame.message;
    ck_assert_uint_eq(message->n_running, 1);
    ck_assert_uint_eq(message->running[0]->job, 6);
    ck_assert_uint_eq(message->running[0]->attempt, 2);
    ck_assert_int_eq(kill(pid, 0), 0);
    /* gemsd says that this attempt is over. */
    reply.n_kill = 1;
    reply.kill = message->running;
    agent_world_reply(&world, frame.call, MSG_REGISTER_REPLY, &reply.base);
    frame_free(&frame);
    ck_assert_int_eq(take_exit(&world, &frame, NULL, 0)->code, SIGKILL);
    frame_free(&frame);
    agent_world_wait_gone(pid);
    agent_world_stop(&world);
}
END_TEST

START_TEST(ranks_die_with_their_agent)
{
    struct agent_world world;
    pid_t pid;

    agent_world_start(&world, staying, NULL);
    agent_world_register(&world);
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:0"), MSG_OK);
    pid = (pid_t)agent_world_number(&world, "pid");
    agent_world_kill_agent(&world);
    agent_world_wait_gone(pid);
    agent_world_stop(&world);
}
END_TEST

START_TEST(sigterm_ends_ranks_and_reports_them)
{
    struct agent_world world;
    struct agent_frame frame;
    pid_t pid;

    agent_world_start(&world, staying, NULL);
    agent_world_register(&world);
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:0"), MSG_OK);
    pid = (pid_t)agent_world_number(&world, "pid");
    kill(world.agent, SIGTERM);
    ck_assert_int_eq(take_exit(&world, &frame, NULL, 0)->code, SIGKILL);
    frame_free(&frame);
    agent_world_wait_gone(pid);
    agent_world_stop(&world);
}
END_TEST

START_TEST(attempts_are_fenced)
{
    struct agent_world world;
    struct agent_frame frame;

    agent_world_start(&world, staying, NULL);
    agent_world_register(&world);
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:0"), MSG_OK);
    /* Repeated: the same rank. Its device is taken; there is no third device. */
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:0"), MSG_OK);
    ck_assert_int_eq(agent_world_launch(&world, 1, 2, "cpu:0"), MSG_ERROR);
    ck_assert_int_eq(agent_world_launch(&world, 2, 1, "cpu:0"), MSG_ERROR);
    ck_assert_int_eq(agent_world_launch(&world, 2, 1, "cpu:2"), MSG_ERROR);
    agent_world_kill(&world, 1, 1, 0);
    ck_assert_int_eq(take_exit(&world, &frame, NULL, 0)->ref->attempt, 1);
    frame_free(&frame);
    ck_assert_int_eq(agent_world_launch(&world, 1, 2, "cpu:0"), MSG_OK);
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:1"), MSG_ERROR);
    /* An order for the old attempt does not reach the new one. */
    agent_world_kill(&world, 1, 1, 0);
    agent_world_kill(&world, 1, 2, 0);
    ck_assert_int_eq(take_exit(&world, &frame, NULL, 0)->ref->attempt, 2);
    frame_free(&frame);
    agent_world_stop(&world);
}
END_TEST

START_TEST(program_that_is_not_there_is_an_error)
{
    struct agent_world world;
    char *const options[] = { (char *)"--rank-program", (char *)"/nowhere/gems-rank", NULL };

    agent_world_start(&world, "exit 0", options);
    agent_world_register(&world);
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:0"), MSG_ERROR);
    agent_world_stop(&world);
}
END_TEST

/* ---- questions ---- */

/* idx: prefix of the files; NULL: a synthetic set. text: part of the error's. */
static void ask_about(struct agent_world *world, const char *idx, enum msg_type expected,
                      const char *text)
{
    struct agent_frame answer;
    Gems__InspectRequest request = GEMS__INSPECT_REQUEST__INIT;
    struct job_spec spec;
    uint32_t call;

    spec_init(&spec);
    snprintf(spec.name, sizeof spec.name, "question");
    snprintf(spec.model.zoo, sizeof spec.model.zoo, "lenet");
    spec.model.classes = 10;
    spec.model.channels = spec.data.channels = 1;
    spec.model.height = spec.model.width = spec.data.height = spec.data.width = 28;
    spec.data.format = DATA_SYNTHETIC;
    spec.data.samples = 64;
    spec.train.epochs = 1;
    spec.train.batch = 8;
    spec.train.lr = 0.1;
    if (idx) {
        spec.data.format = DATA_IDX;
        spec.data.samples = 0;
        snprintf(spec.data.train, sizeof spec.data.train, "%s", idx);
    }
    request.spec = spec_to_proto(&spec);
    request.backend = (char *)(uintptr_t) "ref";
    request.threads = 1;
    request.data = true;
    call = agent_world_send(world, MSG_INSPECT, &request.base);
    msg_free(&request.spec->base);
    answer = agent_world_expect(world, expected, NULL, 0);
    ck_assert_uint_eq(answer.call, call);
    if (expected == MSG_ERROR) {
        ck_assert_ptr_nonnull(strstr(((Gems__Error *)answer.message)->text, text));
    } else {
        const Gems__InspectReply *reply = (const Gems__InspectReply *)answer.message;

        ck_assert_ptr_null(reply->error);
        ck_assert_uint_eq(reply->facts->n_train, 64);
    }
    frame_free(&answer);
}

static void ask_and_check(struct agent_world *world, enum msg_type expected, const char *text)
{
    ask_about(world, NULL, expected, text);
}

START_TEST(questions_are_answered_by_gems_inspect)
{
    struct agent_world world;

    agent_world_start(&world, "exit 0", NULL);
    agent_world_register(&world);
    ask_and_check(&world, MSG_INSPECT_REPLY, NULL);
    agent_world_stop(&world);
}
END_TEST

START_TEST(inspect_that_crashes_is_an_error)
{
    struct agent_world world;
    char *const options[] = { (char *)"--inspect-program", (char *)"/bin/false", NULL };

    agent_world_start(&world, "exit 0", options);
    agent_world_register(&world);
    ask_and_check(&world, MSG_ERROR, "without an answer");
    agent_world_stop(&world);
}
END_TEST

/* ---- data_roots ---- */

START_TEST(questions_about_data_elsewhere_are_refused)
{
    struct agent_world world;
    char *const options[] = { (char *)"--data-roots", (char *)"/nowhere, /usr/lib", NULL };

    agent_world_start(&world, "exit 0", _i == 0 ? options : NULL);
    agent_world_register(&world);
    ask_about(&world, "/usr/library/train", MSG_ERROR,
              _i == 0 ? "data /usr/library/train: not under the data_roots of this node: "
                        "/nowhere, /usr/lib"
                      : "submitted by nobody of this node");
    ask_and_check(&world, MSG_INSPECT_REPLY, NULL);
    agent_world_stop(&world);
}
END_TEST

START_TEST(ranks_with_data_elsewhere_are_refused)
{
    struct agent_world world;
    struct agent_frame frame;
    char *const options[] = { (char *)"--data-roots", (char *)"/usr/lib", NULL };

    agent_world_start(&world, "exit 0", options);
    agent_world_register(&world);
    world.launch_data = "/usr/library";
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:0"), MSG_ERROR);
    ck_assert_int_eq(world.launch_status, GEMS_E_DENIED);
    world.launch_data = "/usr/lib/../lib/data";
    ck_assert_int_eq(agent_world_launch(&world, 1, 1, "cpu:0"), MSG_OK);
    take_exit(&world, &frame, NULL, 0);
    frame_free(&frame);
    agent_world_stop(&world);
}
END_TEST

/* ---- parts ---- */

static int check_path(const char *root, const char *format, const char *dir)
{
    char *items[] = { (char *)"/nowhere", (char *)(uintptr_t)root };
    const struct conf_list roots = { items, 2 };
    const struct submitter nobody = { .has_uid = false };
    char path[PATH_MAX + 64];

    snprintf(path, sizeof path, format, dir);
    return roots_check(&roots, &nobody, path, NULL);
}

START_TEST(roots_hold_what_is_under_them)
{
    static const char *const inside[] = { "%s/in",          "%s/in/",       "%s/in/a",
                                          "%s/in/a/prefix", "%s/in/./b/c",  "%s/out/../in/a",
                                          "%s/out/back/a",  "%s/in/no/file" };
    static const char *const outside[] = {
        "%s", "%s/inner", "%s/in/../out", "%s/in/away", "%s/in/away/x", "%s/in/x/../../out",
        "in", "",         "%s/none"
    };
    char dir[PATH_MAX], root[PATH_MAX + 32], name[] = "roots-test.XXXXXX", path[PATH_MAX + 32];
    static const char *const folders[] = { "in", "in/a", "in/b", "inner", "out" };

    ck_assert_ptr_nonnull(mkdtemp(name));
    ck_assert_ptr_nonnull(realpath(name, dir));
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
    snprintf(path, sizeof path, "%s/in/away", dir);
    ck_assert_int_eq(symlink("../out", path), 0);
    snprintf(path, sizeof path, "%s/out/back", dir);
    ck_assert_int_eq(symlink("../in", path), 0);
    /* The root itself may be given by a link. */
    for (int way = 0; way < 2; way++) {
        snprintf(root, sizeof root, "%s%s", dir, way == 0 ? "/in" : "/out/back/");
        for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
            ck_assert_msg(check_path(root, inside[i], dir) == 0, "%s is refused", inside[i]);
        }
        for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
            ck_assert_msg(check_path(root, outside[i], dir) == GEMS_E_DENIED, "%s is allowed",
                          outside[i]);
        }
    }
    ck_assert_int_eq(check_path("/", "%s/out", dir), 0);
    ck_assert_int_eq(fs_remove_tree(".", name, NULL), 0);
}
END_TEST

START_TEST(without_roots_only_the_own_user_reads)
{
    const struct conf_list none = { NULL, 0 };
    const struct submitter self = { true, geteuid() }, other = { true, geteuid() + 1 },
                           nobody = { false, geteuid() };
    struct gems_error err = { .text = "" };

    ck_assert_int_eq(roots_check(&none, &self, "/x", &err), 0);
    ck_assert_int_eq(roots_check(&none, &nobody, "/x", &err), GEMS_E_DENIED);
    ck_assert_int_eq(roots_check(&none, &other, "/x", &err), GEMS_E_DENIED);
    ck_assert_ptr_nonnull(strstr(err.text, "data /x: submitted by uid "));
    ck_assert_str_eq(err.hint, "set data_roots in gems-worker.conf");
}
END_TEST

static int parse(const char *item, uint64_t memory, struct devices *ret_devices,
                 struct gems_error *err)
{
    char *items[] = { (char *)(uintptr_t)item };
    const struct conf_list list = { items, 1 };

    return devices_parse(&list, memory, ret_devices, err);
}

START_TEST(device_lists)
{
    static const char *const bad[] = { "",        "cpu",         "cpu:",      "cpu:0",
                                       "cpu:x",   "cpu:1:0",     "cpu:1:2:3", "gpu:1",
                                       "cpu:257", "cpu:1:99999", ":1" };
    struct gems_error err;
    struct devices devices;
    uint32_t cores = devices_cores();

    ck_assert_int_eq(parse("cpu:3:2", 100, &devices, &err), 0);
    ck_assert_uint_eq(devices.n, 3);
    ck_assert_str_eq(devices.items[2].id, "cpu:2");
    ck_assert_uint_eq(devices.items[2].threads, 2);
    ck_assert_uint_eq(devices.items[2].memory_bytes, 100);
    ck_assert_ptr_eq(devices_find(&devices, "cpu:1"), &devices.items[1]);
    ck_assert_ptr_null(devices_find(&devices, "cpu:3"));
    ck_assert_int_eq(parse("ref:1", 0, &devices, &err), 0);
    ck_assert_uint_eq(devices.items[0].threads, cores);
    ck_assert_uint_gt(devices.items[0].memory_bytes, 1 << 20);
    ck_assert_int_eq(parse("cpu:200", 0, &devices, &err), 0);
    ck_assert_uint_eq(devices.items[0].threads, cores / 200 > 0 ? cores / 200 : 1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(parse(bad[i], 1, &devices, &err) == GEMS_E_INVALID, "\"%s\" is taken",
                      bad[i]);
    }
    ck_assert_int_eq(parse("cuda:all", 1, &devices, &err), GEMS_E_UNSUPPORTED);
}
END_TEST

START_TEST(tail_is_whole_lines_of_text)
{
    struct rank_log log = { .pipe_fd = -1, .file_fd = -1 };
    char text[LOG_TAIL_BYTES + 1], line[64];
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_NONBLOCK), 0);
    log.pipe_fd = ends[0];
    for (int i = 0; i < 1000; i++) {
        int n = snprintf(line, sizeof line, "line %d \x1b[1m\xc3\n", i);

        ck_assert_int_eq(write(ends[1], line, (size_t)n), n);
    }
    close(ends[1]);
    while (logs_read(&log)) {
        continue;
    }
    logs_tail(&log, text);
    ck_assert_int_eq(strncmp(text, "line ", 5), 0);
    ck_assert_str_eq(text + strlen(text) - 15, "line 999 ?[1m?\n");
    ck_assert_uint_gt(strlen(text), LOG_TAIL_BYTES - 32);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("agent");
    TCase *parts = tcase_create("parts");
    TCase *agent = tcase_create("agent");

    tcase_add_test(parts, device_lists);
    tcase_add_test(parts, roots_hold_what_is_under_them);
    tcase_add_test(parts, without_roots_only_the_own_user_reads);
    tcase_add_test(parts, tail_is_whole_lines_of_text);
    suite_add_tcase(suite, parts);
    tcase_set_timeout(agent, 60);
    tcase_add_test(agent, registers_its_devices);
    tcase_add_test(agent, rank_inherits_what_it_needs_and_nothing_leaks);
    tcase_add_test(agent, exit_is_reported_until_it_is_acknowledged);
    tcase_add_test(agent, log_arrives_whole_and_in_place);
    tcase_add_test(agent, log_has_a_limit);
    tcase_add_test(agent, kill_asks_first);
    tcase_add_loop_test(agent, kill_does_not_wait_for_ever, 0, 2);
    tcase_add_test(agent, ranks_outlive_a_lost_connection);
    tcase_add_test(agent, ranks_die_with_their_agent);
    tcase_add_test(agent, sigterm_ends_ranks_and_reports_them);
    tcase_add_test(agent, attempts_are_fenced);
    tcase_add_test(agent, program_that_is_not_there_is_an_error);
    tcase_add_test(agent, questions_are_answered_by_gems_inspect);
    tcase_add_loop_test(agent, questions_about_data_elsewhere_are_refused, 0, 2);
    tcase_add_test(agent, ranks_with_data_elsewhere_are_refused);
    tcase_add_test(agent, inspect_that_crashes_is_an_error);
    suite_add_tcase(suite, agent);
    return suite;
}

int main(void)
{
    SRunner *runner;
    int n_failed;

    signal(SIGPIPE, SIG_IGN);
    runner = srunner_create(make_suite());
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
