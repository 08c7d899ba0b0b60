/* Decoding of what a stranger sends: malformed, hostile, huge. */
#include "proto/messages.h"

#include <check.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "common/error.h"
#include "proto/codec.h"
#include "proto/scan.h"
#include "tests/lib/loop.h"
#include "tests/lib/run_suite.h"

static int decode(uint16_t type, const void *bytes, size_t n, ProtobufCMessage **ret_message,
                  struct gems_error *err)
{
    struct rpc_frame frame = { .type = type, .payload = bytes, .bytes = n };

    return msg_decode(&frame, ret_message, err);
}

static void expect_refused(uint16_t type, const void *bytes, size_t n, const char *why)
{
    ProtobufCMessage *message = NULL;
    struct gems_error err = { 0 };

    ck_assert_int_eq(decode(type, bytes, n, &message, &err), GEMS_E_INVALID);
    ck_assert_ptr_null(message);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' is not in '%s'", why, err.text);
}

START_TEST(every_type_has_a_message)
{
    static const uint8_t nothing;
    int n = 0;

    for (unsigned type = 0; type < UINT16_MAX; type++) {
        ProtobufCMessage *message = NULL;

        if (msg_name((uint16_t)type)) {
            ck_assert_int_eq(decode((uint16_t)type, &nothing, 0, &message, NULL), GEMS_OK);
            ck_assert_ptr_nonnull(message);
            msg_free(message);
            n++;
        } else {
            ck_assert_int_eq(decode((uint16_t)type, &nothing, 0, &message, NULL), GEMS_E_INVALID);
        }
    }
    ck_assert_int_eq(n, MSG_HELLO_REPLY + (MSG_FETCH_CHUNK - MSG_SUBMIT + 1) +
                            (MSG_PING - MSG_REGISTER + 1) + (MSG_END_ACK - MSG_JOIN + 1));
}
END_TEST

/* ---- malformed ---- */

#define BYTES(text) text, sizeof text - 1

static const struct {
    uint16_t type;
    const char *bytes;
    size_t n;
    const char *why;
} malformed[] = {
    { MSG_HELLO, BYTES("\x08"), "Hello, field protocol: cut short" },
    { MSG_HELLO, BYTES("\x08\x01\x08\x01"), "field protocol: given twice" },
    { MSG_HELLO, BYTES("\x12\x05"
                       "clie"),
      "field role: cut short" },
    { MSG_HELLO, BYTES("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "field role: cut short" },
    { MSG_HELLO, BYTES("\x10\x05"), "field role: of another type" },
    { MSG_HELLO, BYTES("\x0a\x01\x01"), "field protocol: of another type" },
    { MSG_HELLO, BYTES("\x12\x04"
                       "a\0bc"),
      "field role: holds a NUL" },
    { MSG_HELLO, BYTES("\x12\x02\xc0\x80"), "field role: not UTF-8" },          /* long form of NUL */
    { MSG_HELLO, BYTES("\x12\x03\xed\xa0\x80"), "field role: not UTF-8" },      /* surrogate */
    { MSG_HELLO, BYTES("\x12\x04\xf4\x90\x80\x80"), "field role: not UTF-8" },  /* above U+10FFFF */
    { MSG_HELLO, BYTES("\x12\x03\xe0\x80\x80"), "field role: not UTF-8" },      /* long form */
    { MSG_HELLO, BYTES("\x12\x02\xe2\x82"), "field role: not UTF-8" },          /* cut character */
    { MSG_HELLO, BYTES("\x12\x01\x80"), "field role: not UTF-8" },
    { MSG_HELLO, BYTES("\x00\x01"), "malformed field number" },
    { MSG_HELLO, BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "malformed field number" },
    { MSG_HELLO, BYTES("\x0b\x0c"), "cut short or malformed" }, /* group */
    { MSG_SUBMIT, BYTES("\x0a\x02\x0a\x05"), "JobSpec, field name: cut short" },
    { MSG_SUBMIT, BYTES("\x0a\x00\x0a\x00"), "SubmitRequest, field spec: given twice" },
};

START_TEST(malformed_bytes_are_refused_by_name)
{
    expect_refused(malformed[_i].type, malformed[_i].bytes, malformed[_i].n, malformed[_i].why);
}
END_TEST

START_TEST(good_text_and_unknown_fields_pass)
{
    /* role "klänge €𝄞", then unknown varint, 64-bit, bytes and 32-bit fields */
    static const char bytes[] = "\x12\x0fkl\xc3\xa4nge \xe2\x82\xac\xf0\x9d\x84\x9e"
                                "\x80\x01\x07\x89\x01"
                                "12345678\x92\x01\x03"
                                "abc\x9d\x01"
                                "1234\x08\x01";
    ProtobufCMessage *message = NULL;
    struct gems_error err = { 0 };

    ck_assert_msg(decode(MSG_HELLO, bytes, sizeof bytes - 1, &message, &err) == GEMS_OK, "%s", err.text);
    ck_assert_str_eq(((Gems__Hello *)message)->role, "kl\xc3\xa4nge \xe2\x82\xac\xf0\x9d\x84\x9e");
    ck_assert_uint_eq(((Gems__Hello *)message)->protocol, 1);
    msg_free(message);
}
END_TEST

/* ---- hostile ---- */

enum { HOSTILE_BYTES = 1 << 20 };

static long peak_kib(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* Fills 1 MiB with copies of a piece and expects a quick refusal that takes
 * no more memory than the budget of 16 times the payload. */
static void expect_bounded(uint16_t type, const void *piece, size_t n_piece, const char *why)
{
    uint8_t *bytes = malloc(HOSTILE_BYTES);
    clock_t start = clock();
    size_t n = 0;
    long before;

    for (; n + n_piece <= HOSTILE_BYTES; n += n_piece) {
        memcpy(bytes + n, piece, n_piece);
    }
    before = peak_kib();
    expect_refused(type, bytes, n, why);
    ck_assert_int_lt((clock() - start) / CLOCKS_PER_SEC, 2);
#ifndef __SANITIZE_ADDRESS__
    /* the budget and what the allocator adds */
    ck_assert_int_le(peak_kib() - before, (17 + 3) << 10);
#else
    (void)before;
#endif
    free(bytes);
}

START_TEST(flood_of_empty_messages_is_bounded)
{
    expect_bounded(MSG_STATUS_REPLY, "\x12\x00", 2, "needs too much memory"); /* ranks: {} */
    expect_bounded(MSG_LIST_REPLY, "\x0a\x00", 2, "needs too much memory");   /* jobs: {} */
    expect_bounded(MSG_LIST, "\x0a\x00", 2, "needs too much memory");         /* states: "" */
}
END_TEST

START_TEST(flood_of_unknown_fields_is_bounded)
{
    expect_bounded(MSG_HELLO, "\x98\x06\x01", 3, "too many unknown fields");
    expect_bounded(MSG_LIST, "\x9a\x06\x00", 3, "too many unknown fields");
}
END_TEST

START_TEST(unknown_fields_up_to_the_limit_pass)
{
    uint8_t bytes[3 * (SCAN_MAX_UNKNOWN + 1)];
    ProtobufCMessage *message = NULL;

    for (size_t i = 0; i < sizeof bytes; i += 3) {
        memcpy(bytes + i, "\x98\x06\x01", 3);
    }
    ck_assert_int_eq(decode(MSG_HELLO, bytes, sizeof bytes - 3, &message, NULL), GEMS_OK);
    msg_free(message);
    expect_refused(MSG_HELLO, bytes, sizeof bytes, "too many unknown fields");
}
END_TEST

START_TEST(large_honest_message_passes)
{
    /* As a checkpoint shard: one large value. */
    static uint8_t data[4 << 20];
    Gems__Shard shard = GEMS__SHARD__INIT;
    ProtobufCMessage *message = NULL;
    uint8_t *bytes = NULL;
    size_t n = 0;

    shard.name = (char *)"layer.weight";
    shard.data.data = data;
    shard.data.len = sizeof data;
    ck_assert_int_eq(proto_pack(&shard.base, &bytes, &n, NULL), GEMS_OK);
    ck_assert_int_eq(decode(MSG_SHARD, bytes, n, &message, NULL), GEMS_OK);
    ck_assert_uint_eq(((Gems__Shard *)message)->data.len, sizeof data);
    msg_free(message);
    free(bytes);
}
END_TEST

/* ---- damaged ---- */

static void pack_sample(uint8_t **ret_bytes, size_t *ret_n)
{
    Gems__StatusReply reply = GEMS__STATUS_REPLY__INIT;
    Gems__JobInfo job = GEMS__JOB_INFO__INIT;
    Gems__RankInfo rank = GEMS__RANK_INFO__INIT;
    Gems__RankInfo *ranks[] = { &rank, &rank };
    uint32_t stages[] = { 1, 2, 300 };

    job.id = 77;
    job.name = (char *)"tiles";
    job.state = (char *)"RUNNING";
    job.loss = 0.25;
    rank.node = (char *)"node-1";
    rank.n_stages = 3;
    rank.stages = stages;
    rank.busy_fraction = 0.5;
    reply.job = &job;
    reply.n_ranks = 2;
    reply.ranks = ranks;
    ck_assert_int_eq(proto_pack(&reply.base, ret_bytes, ret_n, NULL), GEMS_OK);
}

START_TEST(message_cut_anywhere_is_refused_or_shorter)
{
    uint8_t *bytes = NULL;
    size_t n = 0;
    int n_refused = 0;

    pack_sample(&bytes, &n);
    for (size_t cut = 0; cut <= n; cut++) {
        uint8_t *copy = malloc(cut + 1); /* so that a sanitizer sees reads behind it */
        ProtobufCMessage *message = NULL;

        memcpy(copy, bytes, cut);
        copy = realloc(copy, cut ? cut : 1);
        if (decode(MSG_STATUS_REPLY, copy, cut, &message, NULL) < 0) {
            ck_assert_ptr_null(message);
            n_refused++;
        }
        msg_free(message);
        free(copy);
    }
    /* Only the ends of the three top fields, and nothing, are whole messages. */
    ck_assert_int_eq(n_refused, (int)n + 1 - 4);
    free(bytes);
}
END_TEST

START_TEST(damaged_message_is_refused_or_sound)
{
    uint8_t *bytes = NULL;
    size_t n = 0;
    uint32_t random = 12345;

    pack_sample(&bytes, &n);
    for (int round = 0; round < 20000; round++) {
        uint8_t *copy = malloc(n);
        ProtobufCMessage *message = NULL;

        memcpy(copy, bytes, n);
        for (int i = 0; i <= round % 4; i++) {
            random = random * 1664525 + 1013904223;
            copy[(random >> 8) % n] = (uint8_t)(random >> 24);
        }
        if (decode(MSG_STATUS_REPLY, copy, n, &message, NULL) == GEMS_OK) {
            ck_assert_uint_le(protobuf_c_message_get_packed_size(message), 4 * n);
        }
        msg_free(message);
        free(copy);
    }
    free(bytes);
}
END_TEST

/* ---- sending ---- */

static struct {
    bool is_there;
    uint16_t type, flags;
    uint32_t call;
    ProtobufCMessage *message;
} received;

static void on_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    struct gems_error err = { 0 };

    (void)arg;
    (void)conn;
    received.type = frame->type;
    received.flags = frame->flags;
    received.call = frame->call;
    ck_assert_msg(msg_decode(frame, &received.message, &err) == GEMS_OK, "%s", err.text);
    received.is_there = true;
}

static void on_closed(void *arg, struct rpc_conn *conn, const char *why)
{
    (void)arg;
    (void)conn;
    ck_abort_msg("closed: %s", why);
}

START_TEST(what_is_sent_is_received)
{
    static const struct rpc_handlers handlers = { on_frame, on_closed, NULL };
    struct event_base *base = event_base_new();
    struct bufferevent *pair[2];
    struct rpc_conn *conns[2];
    struct gems_error err = { 0 };
    Gems__Ok ok = GEMS__OK__INIT;
    Gems__Error *reply;

    ck_assert_int_eq(bufferevent_pair_new(base, 0, pair), 0);
    conns[0] = rpc_create(pair[0], &handlers, NULL, NULL);
    conns[1] = rpc_create(pair[1], &handlers, NULL, NULL);
    /* A file name that is no UTF-8, as a file system may give it. */
    gems_error_set(&err, GEMS_E_NOTFOUND, "a\xff.png: none \xe2\x82\xac");
    gems_error_hint(&err, "look");
    ck_assert_int_eq(msg_send_error(conns[0], 9, &err), 0);
    ck_assert(loop_until(base, &received.is_there));
    ck_assert_uint_eq(received.type, MSG_ERROR);
    ck_assert_uint_eq(received.flags, RPC_REPLY | RPC_LAST);
    ck_assert_uint_eq(received.call, 9);
    reply = (Gems__Error *)received.message;
    ck_assert_int_eq(reply->status, GEMS_E_NOTFOUND);
    ck_assert_str_eq(reply->text, "a?.png: none \xe2\x82\xac");
    ck_assert_str_eq(reply->hint, "look");
    msg_free(received.message);
    /* A message under another's number is our own mistake. */
    ck_assert_int_eq(msg_send(conns[0], MSG_SUBMIT, 0, 1, &ok.base), GEMS_E_INTERNAL);
    rpc_destroy(conns[0]);
    rpc_destroy(conns[1]);
    event_base_free(base);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("messages");
    TCase *tcase = tcase_create("malformed");

    suite_case(suite, "types", every_type_has_a_message);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, malformed_bytes_are_refused_by_name, 0,
                        sizeof malformed / sizeof malformed[0]);
    suite_add_tcase(suite, tcase);
    suite_case(suite, "good", good_text_and_unknown_fields_pass);
    suite_case(suite, "empty messages", flood_of_empty_messages_is_bounded);
    suite_case(suite, "unknown fields", flood_of_unknown_fields_is_bounded);
    suite_case(suite, "some unknown fields", unknown_fields_up_to_the_limit_pass);
    suite_case(suite, "large", large_honest_message_passes);
    suite_case(suite, "cut", message_cut_anywhere_is_refused_or_shorter);
    suite_case(suite, "damaged", damaged_message_is_refused_or_sound);
    suite_case(suite, "sending", what_is_sent_is_received);
    return run_suite(suite);
}
