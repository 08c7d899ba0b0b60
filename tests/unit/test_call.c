/* Calls, streams, fetch and follow against a scripted gemsd. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/args.h"
#include "client/call.h"
#include "client/fetch.h"
#include "client/follow.h"
#include "common/error.h"
#include "common/hash.h"
#include "scripted_gemsd.h"

static struct scripted_gemsd gemsd;
static struct client client;
static struct gems_error err;

static const struct script_step end = { STEP_CLOSE, 0, 0, NULL };

static void reset(void)
{
    memset(&gemsd, 0, sizeof gemsd);
    memset(&client, 0, sizeof client);
    memset(&err, 0, sizeof err);
    client.connect = gemsd.connect;
}

static void start(void)
{
    gemsd.n_connections = gemsd.n_connections ? gemsd.n_connections : 1;
    scripted_start(&gemsd);
}

static int ask(uint32_t timeout_ms, ProtobufCMessage **ret_reply)
{
    Gems__JobRequest request = GEMS__JOB_REQUEST__INIT;

    request.job = 7;
    return call_once(&client, MSG_STATUS, &request.base, MSG_STATUS_REPLY, timeout_ms, ret_reply,
                     &err);
}

static Gems__StatusReply status_reply = GEMS__STATUS_REPLY__INIT;
static Gems__JobInfo job_info = GEMS__JOB_INFO__INIT;

START_TEST(a_reply_comes_back)
{
    ProtobufCMessage *reply;

    job_info.id = 7;
    job_info.name = (char *)"tiles";
    status_reply.job = &job_info;
    gemsd.steps[0][0] = (struct script_step){ STEP_SEND, MSG_STATUS_REPLY, RPC_REPLY | RPC_LAST,
                                              &status_reply.base };
    gemsd.steps[0][1] = end;
    start();
    ck_assert_msg(ask(5000, &reply) == GEMS_OK, "%s", err.text);
    ck_assert_str_eq(((Gems__StatusReply *)reply)->job->name, "tiles");
    msg_free(reply);
    scripted_stop(&gemsd);
    ck_assert_uint_eq(gemsd.requests[0], MSG_STATUS);
}
END_TEST

START_TEST(a_refusal_keeps_its_status_text_and_hint)
{
    Gems__Error error = GEMS__ERROR__INIT;
    ProtobufCMessage *reply;

    error.status = GEMS_E_NOTFOUND;
    error.text = (char *)"job 7: not found";
    error.hint = (char *)"list shows the jobs";
    gemsd.steps[0][0] =
        (struct script_step){ STEP_SEND, MSG_ERROR, RPC_REPLY | RPC_LAST, &error.base };
    gemsd.steps[0][1] = end;
    start();
    ck_assert_int_eq(ask(5000, &reply), GEMS_E_NOTFOUND);
    ck_assert_int_eq(err.status, GEMS_E_NOTFOUND);
    ck_assert_str_eq(err.text, "job 7: not found");
    ck_assert_str_eq(err.hint, "list shows the jobs");
    ck_assert_int_eq(command_exit(err.status), 3);
    scripted_stop(&gemsd);
}
END_TEST

START_TEST(an_error_with_an_impossible_status_stays_an_error)
{
    Gems__Error error = GEMS__ERROR__INIT;
    ProtobufCMessage *reply;

    error.status = 5;
    error.text = (char *)"odd";
    error.hint = (char *)"";
    gemsd.steps[0][0] = (struct script_step){ STEP_SEND, MSG_ERROR, RPC_REPLY, &error.base };
    gemsd.steps[0][1] = end;
    start();
    ck_assert_int_eq(ask(5000, &reply), GEMS_E_INTERNAL);
    scripted_stop(&gemsd);
}
END_TEST

static const struct {
    struct script_step step;
    int status;
} failures[] = {
    { { STEP_CLOSE, 0, 0, NULL }, GEMS_E_PEER },
    { { STEP_SILENCE, 0, 0, NULL }, GEMS_E_TIMEOUT },
    { { STEP_GARBAGE, MSG_STATUS_REPLY, 0, NULL }, GEMS_E_PEER },
    { { STEP_GARBAGE, 999, 0, NULL }, GEMS_E_PEER },
    { { STEP_INTERRUPT, 0, 0, NULL }, GEMS_E_CANCELLED },
};

START_TEST(a_call_without_an_answer_ends_with_its_reason)
{
    ProtobufCMessage *reply;

    gemsd.steps[0][0] = failures[_i].step;
    gemsd.steps[0][1] = (struct script_step){ STEP_SILENCE, 0, 0, NULL };
    if (failures[_i].step.what == STEP_CLOSE) {
        gemsd.steps[0][1] = end;
    }
    gemsd.steps[0][2] = end;
    start();
    ck_assert_int_eq(ask(failures[_i].status == GEMS_E_TIMEOUT ? 200 : 10000, &reply),
                     failures[_i].status);
    ck_assert_int_eq(err.status, failures[_i].status);
    ck_assert(err.text[0] != '\0');
    scripted_stop(&gemsd);
}
END_TEST

START_TEST(a_reply_of_another_kind_is_refused)
{
    Gems__SubmitReply other = GEMS__SUBMIT_REPLY__INIT;
    ProtobufCMessage *reply;

    gemsd.steps[0][0] = (struct script_step){ STEP_SEND, MSG_SUBMIT_REPLY, RPC_REPLY, &other.base };
    gemsd.steps[0][1] = end;
    start();
    ck_assert_int_eq(ask(5000, &reply), GEMS_E_PEER);
    scripted_stop(&gemsd);
}
END_TEST

START_TEST(no_gemsd_is_exit_code_6)
{
    ProtobufCMessage *reply;

    client.connect = "unix:nobody-listens-here";
    ck_assert_int_eq(ask(1000, &reply), GEMS_E_PEER);
    ck_assert_int_eq(command_exit(err.status), 6);
    client.connect = NULL;
    setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
    if (access("/run/gems/gemsd.sock", F_OK) != 0) {
        ck_assert_int_eq(ask(1000, &reply), GEMS_E_PEER);
        ck_assert_str_eq(err.text,
                         "gemsd: no answer at /nowhere/gems/gemsd.sock or /run/gems/gemsd.sock");
    }
    client.connect = "somewhere";
    ck_assert_int_eq(ask(1000, &reply), GEMS_E_INVALID);
}
END_TEST

/* ---- watching ---- */

static Gems__StatusReply replies[4];
static Gems__JobInfo infos[4];

static struct script_step status_step(int i, const char *state, uint16_t flags)
{
    infos[i] = (Gems__JobInfo)GEMS__JOB_INFO__INIT;
    infos[i].id = 7;
    infos[i].state = (char *)state;
    infos[i].steps_total = 10;
    infos[i].step = (uint64_t)i + 1;
    infos[i].loss = infos[i].accuracy = infos[i].eval_accuracy = infos[i].eta_seconds = NAN;
    replies[i] = (Gems__StatusReply)GEMS__STATUS_REPLY__INIT;
    replies[i].job = &infos[i];
    return (struct script_step){ STEP_SEND, MSG_STATUS_REPLY, flags, &replies[i].base };
}

static const struct {
    const char *state;
    int exit_code;
} ends[] = { { "SUCCEEDED", 0 }, { "FAILED", 1 }, { "CANCELLED", 1 } };

START_TEST(follow_ends_with_the_job)
{
    struct follow follow = { .job = 7 };

    gemsd.steps[0][0] = status_step(0, "RUNNING", RPC_REPLY);
    gemsd.steps[0][1] = status_step(1, ends[_i].state, RPC_REPLY | RPC_LAST);
    gemsd.steps[0][2] = end;
    start();
    ck_assert_int_eq(follow_job(&client, &follow, &err), ends[_i].exit_code);
    scripted_stop(&gemsd);
}
END_TEST

START_TEST(follow_survives_a_gemsd_that_goes_and_comes_back)
{
    struct follow follow = { .job = 7 };

    gemsd.n_connections = 3;
    gemsd.steps[0][0] = status_step(0, "RUNNING", RPC_REPLY);
    gemsd.steps[0][1] = end;
    gemsd.steps[1][0] = end; /* closed before it said anything */
    gemsd.steps[2][0] = status_step(2, "SUCCEEDED", RPC_REPLY | RPC_LAST);
    gemsd.steps[2][1] = end;
    start();
    ck_assert_msg(follow_job(&client, &follow, &err) == 0, "%s", err.text);
    scripted_stop(&gemsd);
    ck_assert_uint_eq(gemsd.requests[2], MSG_WATCH);
}
END_TEST

START_TEST(follow_does_not_wait_for_a_gemsd_that_never_was)
{
    struct follow follow = { .job = 7 };

    gemsd.steps[0][0] = end;
    start();
    ck_assert_int_eq(follow_job(&client, &follow, &err), GEMS_E_PEER);
    scripted_stop(&gemsd);
}
END_TEST

/* ---- logs ---- */

static Gems__LogChunk log_chunk(const char *text, uint32_t rank, uint64_t offset, bool is_last)
{
    Gems__LogChunk chunk = GEMS__LOG_CHUNK__INIT;

    chunk.rank = rank;
    chunk.attempt = 1;
    chunk.offset = offset;
    chunk.data.data = (uint8_t *)text;
    chunk.data.len = strlen(text);
    chunk.last = is_last;
    return chunk;
}

START_TEST(logs_go_on_without_loss_or_repeat)
{
    char *argv[] = { (char *)"gems-client", (char *)"logs", (char *)"7", (char *)"-f", NULL };
    const struct command *const commands[] = { &cmd_logs, NULL };
    Gems__LogChunk chunks[] = { log_chunk("one\ntw", 0, 0, false),
                                log_chunk("other\n", 1, 0, false),
                                log_chunk("one\ntwo\n", 0, 0, false),
                                log_chunk("three", 0, 8, true) };
    char text[256] = "";
    struct args args;
    FILE *file = tmpfile();
    int saved = dup(STDOUT_FILENO);

    gemsd.n_connections = 2;
    gemsd.steps[0][0] =
        (struct script_step){ STEP_SEND, MSG_LOG_CHUNK, RPC_REPLY, &chunks[0].base };
    gemsd.steps[0][1] =
        (struct script_step){ STEP_SEND, MSG_LOG_CHUNK, RPC_REPLY, &chunks[1].base };
    gemsd.steps[0][2] = end;
    gemsd.steps[1][0] =
        (struct script_step){ STEP_SEND, MSG_LOG_CHUNK, RPC_REPLY, &chunks[2].base };
    gemsd.steps[1][1] =
        (struct script_step){ STEP_SEND, MSG_LOG_CHUNK, RPC_REPLY, &chunks[3].base };
    gemsd.steps[1][2] = end;
    start();
    ck_assert_int_eq(args_parse(4, argv, commands, &client, &args, &err), GEMS_OK);
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    ck_assert_int_eq(cmd_logs.run(&client, &args, &err), GEMS_OK);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(file);
    ck_assert_uint_gt(fread(text, 1, sizeof text - 1, file), 0);
    ck_assert_str_eq(text, "[0] one\n[1] other\n[0] two\n[0] three\n");
    fclose(file);
    scripted_stop(&gemsd);
}
END_TEST

/* ---- fetch ---- */

static char folder[] = "fetch-XXXXXX";
static char path[64];
static const float weights[3] = { 1.5f, -2, 0.25f };

static Gems__FetchHead fetch_head = GEMS__FETCH_HEAD__INIT;
static Gems__TensorHead tensor_heads[2];
static Gems__FetchChunk fetch_chunks[3];

/* Two tensors of 8 and 4 bytes, the second chunk crosses their border. */
static void script_fetch(void)
{
    static Gems__TensorHead *tensors[] = { &tensor_heads[0], &tensor_heads[1] };
    static uint64_t dims[][2] = { { 2, 1 }, { 1, 0 } };
    static char hex[2][HASH_HEX_BYTES];
    static char *key = (char *)"gems.weights_hash", *value = (char *)"abc";
    uint8_t hash[HASH_BYTES];

    for (int i = 0; i < 2; i++) {
        tensor_heads[i] = (Gems__TensorHead)GEMS__TENSOR_HEAD__INIT;
        tensor_heads[i].name = (char *)(i ? "b.bias" : "a.weight");
        tensor_heads[i].dims = dims[i];
        tensor_heads[i].n_dims = i ? 1 : 2;
        tensor_heads[i].dtype = (char *)"F32";
        tensor_heads[i].bytes = i ? 4 : 8;
        hash_of(&weights[2 * i], i ? 4 : 8, hash);
        hash_to_hex(hash, sizeof hash, hex[i]);
        tensor_heads[i].hash = hex[i];
    }
    fetch_head.tensors = tensors;
    fetch_head.n_tensors = 2;
    fetch_head.meta_keys = &key;
    fetch_head.meta_values = &value;
    fetch_head.n_meta_keys = fetch_head.n_meta_values = 1;
    for (int i = 0; i < 3; i++) {
        fetch_chunks[i] = (Gems__FetchChunk)GEMS__FETCH_CHUNK__INIT;
    }
    fetch_chunks[0].head = &fetch_head;
    fetch_chunks[1].data.data = (uint8_t *)weights;
    fetch_chunks[1].data.len = 10;
    fetch_chunks[2].data.data = (uint8_t *)weights + 10;
    fetch_chunks[2].data.len = 2;
    fetch_chunks[2].last = true;
    for (int i = 0; i < 3; i++) {
        gemsd.steps[0][i] =
            (struct script_step){ STEP_SEND, MSG_FETCH_CHUNK, RPC_REPLY, &fetch_chunks[i].base };
    }
    gemsd.steps[0][3] = end;
    strcpy(folder, "fetch-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out.safetensors", folder);
}

static uint32_t count_files(void)
{
    DIR *dir = opendir(folder);
    uint32_t n = 0;

    ck_assert_ptr_nonnull(dir);
    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n - 2; /* . and .. */
}

static int run_fetch(void)
{
    char *argv[] = { (char *)"gems-client",
                     (char *)"--json",
                     (char *)"fetch",
                     (char *)"7",
                     (char *)"-o",
                     path,
                     NULL };
    const struct command *const commands[] = { &cmd_fetch, NULL };
    struct args args;

    ck_assert_int_eq(args_parse(6, argv, commands, &client, &args, &err), GEMS_OK);
    return cmd_fetch.run(&client, &args, &err);
}

START_TEST(fetch_writes_a_whole_safetensors_file)
{
    uint8_t bytes[1024];
    size_t n, header;
    FILE *file;

    script_fetch();
    start();
    ck_assert_msg(run_fetch() == 0, "%s", err.text);
    scripted_stop(&gemsd);
    file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    n = fread(bytes, 1, sizeof bytes - 1, file);
    fclose(file);
    header = bytes[0] | (size_t)bytes[1] << 8;
    ck_assert_uint_eq(n, 8 + header + sizeof weights);
    ck_assert_mem_eq(bytes + 8 + header, weights, sizeof weights);
    bytes[8 + header] = '\0';
    ck_assert_ptr_nonnull(strstr((char *)bytes + 8, "\"a.weight\""));
    ck_assert_ptr_nonnull(strstr((char *)bytes + 8, "\"gems.weights_hash\":\"abc\""));
    ck_assert_uint_eq(count_files(), 1);
    unlink(path);
    rmdir(folder);
}
END_TEST

START_TEST(fetch_leaves_no_file_if_something_is_wrong)
{
    script_fetch();
    switch (_i) {
    case 0:
        tensor_heads[1].hash = (char *)"00000000000000000000000000000000";
        break;
    case 1:
        fetch_chunks[2].data.len = 1;
        break;
    case 2:
        tensor_heads[0].bytes = 12;
        break;
    case 3:
        fetch_chunks[0].head = NULL;
        break;
    case 4:
        gemsd.steps[0][2] = end;
        break;
    default:
        tensor_heads[0].dtype = (char *)"I8";
        break;
    }
    start();
    ck_assert_int_eq(run_fetch(), GEMS_E_PEER);
    scripted_stop(&gemsd);
    ck_assert_uint_eq(count_files(), 0);
    rmdir(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("call");
    TCase *tc = tcase_create("call");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 20);
    tcase_add_checked_fixture(tc, reset, NULL);
    tcase_add_test(tc, a_reply_comes_back);
    tcase_add_test(tc, a_refusal_keeps_its_status_text_and_hint);
    tcase_add_test(tc, an_error_with_an_impossible_status_stays_an_error);
    tcase_add_loop_test(tc, a_call_without_an_answer_ends_with_its_reason, 0,
                        sizeof failures / sizeof failures[0]);
    tcase_add_test(tc, a_reply_of_another_kind_is_refused);
    tcase_add_test(tc, no_gemsd_is_exit_code_6);
    tcase_add_loop_test(tc, follow_ends_with_the_job, 0, 3);
    tcase_add_test(tc, follow_survives_a_gemsd_that_goes_and_comes_back);
    tcase_add_test(tc, follow_does_not_wait_for_a_gemsd_that_never_was);
    tcase_add_test(tc, logs_go_on_without_loss_or_repeat);
    tcase_add_test(tc, fetch_writes_a_whole_safetensors_file);
    tcase_add_loop_test(tc, fetch_leaves_no_file_if_something_is_wrong, 0, 6);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
