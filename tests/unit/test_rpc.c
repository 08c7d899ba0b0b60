/* Frames: every shape of input, limits, order of ending. */
#include "common/rpc.h"

#include <check.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/error.h"
#include "tests/lib/loop.h"
#include "tests/lib/run_suite.h"

struct seen {
    int n_frames;
    uint16_t type, flags;
    uint32_t call;
    size_t bytes;
    uint64_t sum; /* of payload bytes of all frames */
    int n_closed;
    char why[160];
    int n_drained;
    bool is_closed, is_framed, is_drained;
    bool is_destroying, is_finishing, is_echoing; /* what the frame handler does */
};

static struct event_base *base;
static int raw_fd; /* the peer, in plain bytes */
static struct rpc_conn *conn;
static struct seen seen;

static void on_frame(void *arg, struct rpc_conn *c, const struct rpc_frame *frame)
{
    struct seen *s = arg;

    s->n_frames++;
    s->type = frame->type;
    s->flags = frame->flags;
    s->call = frame->call;
    s->bytes = frame->bytes;
    for (size_t i = 0; i < frame->bytes; i++) {
        s->sum += frame->payload[i];
    }
    s->is_framed = true;
    if (s->is_echoing) {
        rpc_send(c, frame->type, RPC_REPLY, frame->call, frame->payload, frame->bytes);
    }
    if (s->is_finishing) {
        rpc_finish(c);
    }
    if (s->is_destroying) {
        rpc_destroy(c);
        conn = NULL;
    }
}

static void on_closed(void *arg, struct rpc_conn *c, const char *why)
{
    struct seen *s = arg;

    s->n_closed++;
    snprintf(s->why, sizeof s->why, "%s", why);
    s->is_closed = true;
    rpc_destroy(c);
    conn = NULL;
}

static void on_drained(void *arg, struct rpc_conn *c)
{
    struct seen *s = arg;

    (void)c;
    s->n_drained++;
    s->is_drained = true;
}

static const struct rpc_handlers handlers = { on_frame, on_closed, on_drained };

static void setup(void)
{
    struct gems_error err;
    int fds[2];

    memset(&seen, 0, sizeof seen);
    base = event_base_new();
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    evutil_make_socket_nonblocking(fds[0]);
    raw_fd = fds[1];
    conn = rpc_create(bufferevent_socket_new(base, fds[0], BEV_OPT_CLOSE_ON_FREE), &handlers, &seen, &err);
    ck_assert_ptr_nonnull(conn);
}

static void teardown(void)
{
    rpc_destroy(conn);
    conn = NULL;
    if (raw_fd >= 0) {
        close(raw_fd);
    }
    event_base_free(base);
}

static size_t make_frame(uint8_t *out, uint32_t bytes, uint16_t type, uint16_t flags, uint32_t call,
                         size_t n_payload)
{
    const uint8_t header[RPC_HEADER_BYTES] = {
        (uint8_t)bytes, (uint8_t)(bytes >> 8),  (uint8_t)(bytes >> 16), (uint8_t)(bytes >> 24),
        (uint8_t)type,  (uint8_t)(type >> 8),   (uint8_t)flags,         (uint8_t)(flags >> 8),
        (uint8_t)call,  (uint8_t)(call >> 8),   (uint8_t)(call >> 16),  (uint8_t)(call >> 24),
    };

    memcpy(out, header, sizeof header);
    for (size_t i = 0; i < n_payload; i++) {
        out[sizeof header + i] = (uint8_t)(i * 7 + 1);
    }
    return sizeof header + n_payload;
}

static void put(const void *data, size_t n)
{
    ck_assert_int_eq(write(raw_fd, data, n), (ssize_t)n);
}

static uint64_t payload_sum(size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += (uint8_t)(i * 7 + 1);
    }
    return sum;
}

static const size_t good_lengths[] = { 0, 1, 2, 4095, RPC_LIMIT_UNKNOWN };

START_TEST(frame_of_allowed_length_arrives_whole)
{
    uint8_t bytes[RPC_HEADER_BYTES + RPC_LIMIT_UNKNOWN];
    size_t n = good_lengths[_i];

    put(bytes, make_frame(bytes, (uint32_t)n, 0x1234, RPC_LAST, 0xdeadbeef, n));
    ck_assert(loop_until(base, &seen.is_framed));
    ck_assert_uint_eq(seen.type, 0x1234);
    ck_assert_uint_eq(seen.flags, RPC_LAST);
    ck_assert_uint_eq(seen.call, 0xdeadbeef);
    ck_assert_uint_eq(seen.bytes, n);
    ck_assert_uint_eq(seen.sum, payload_sum(n));
    ck_assert_int_eq(seen.n_closed, 0);
}
END_TEST

static const uint32_t bad_lengths[] = { RPC_LIMIT_UNKNOWN + 1, 1u << 31, UINT32_MAX };

START_TEST(frame_above_the_limit_closes_with_a_reason)
{
    uint8_t bytes[RPC_HEADER_BYTES];

    put(bytes, make_frame(bytes, bad_lengths[_i], 1, 0, 1, 0));
    ck_assert(loop_until(base, &seen.is_closed));
    ck_assert_ptr_nonnull(strstr(seen.why, "at most 4096 allowed"));
    ck_assert_int_eq(seen.n_frames, 0);
    ck_assert_int_eq(seen.n_closed, 1);
}
END_TEST

START_TEST(limit_can_be_raised)
{
    size_t n = RPC_LIMIT_CLIENT;
    uint8_t *bytes = malloc(RPC_HEADER_BYTES + n);
    size_t total = make_frame(bytes, (uint32_t)n, 1, 0, 1, n);
    size_t at = 0;

    rpc_set_limits(conn, n, n);
    evutil_make_socket_nonblocking(raw_fd);
    while (!seen.is_framed) {
        ssize_t done = at < total ? write(raw_fd, bytes + at, total - at) : 0;

        at += done > 0 ? (size_t)done : 0;
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    ck_assert_uint_eq(seen.bytes, n);
    ck_assert_uint_eq(seen.sum, payload_sum(n));
    free(bytes);
}
END_TEST

enum { SPLIT_PAYLOAD = 20, SPLIT_BYTES = RPC_HEADER_BYTES + SPLIT_PAYLOAD };

START_TEST(frame_cut_at_any_byte_is_no_frame)
{
    uint8_t bytes[SPLIT_BYTES];

    make_frame(bytes, SPLIT_PAYLOAD, 5, 0, 9, SPLIT_PAYLOAD);
    if (_i > 0) {
        put(bytes, (size_t)_i);
    }
    close(raw_fd);
    raw_fd = -1;
    ck_assert(loop_until(base, &seen.is_closed));
    ck_assert_int_eq(seen.n_frames, 0);
    ck_assert_str_eq(seen.why,
                     _i ? "closed by the peer in the middle of a frame" : "closed by the peer");
}
END_TEST

START_TEST(frame_split_at_any_byte_is_put_together)
{
    uint8_t bytes[2 * SPLIT_BYTES];

    make_frame(bytes, SPLIT_PAYLOAD, 5, 0, 8, SPLIT_PAYLOAD);
    make_frame(bytes + SPLIT_BYTES, SPLIT_PAYLOAD, 6, 0, 9, SPLIT_PAYLOAD);
    put(bytes, (size_t)_i);
    loop_for_ms(base, 2);
    ck_assert_int_eq(seen.n_frames, _i / SPLIT_BYTES);
    seen.is_framed = false;
    put(bytes + _i, sizeof bytes - (size_t)_i);
    ck_assert(loop_until(base, &seen.is_framed));
    ck_assert_int_eq(seen.n_frames, 2);
    ck_assert_uint_eq(seen.type, 6);
    ck_assert_uint_eq(seen.sum, 2 * payload_sum(SPLIT_PAYLOAD));
}
END_TEST

START_TEST(frame_byte_by_byte_is_put_together)
{
    uint8_t bytes[SPLIT_BYTES];
    size_t n = make_frame(bytes, SPLIT_PAYLOAD, 5, 0, 9, SPLIT_PAYLOAD);

    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(seen.n_frames, 0);
        put(bytes + i, 1);
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    ck_assert_int_eq(seen.n_frames, 1);
    ck_assert_uint_eq(seen.sum, payload_sum(SPLIT_PAYLOAD));
}
END_TEST

START_TEST(handler_may_destroy_with_more_frames_waiting)
{
    uint8_t bytes[3 * SPLIT_BYTES];

    for (size_t i = 0; i < 3; i++) {
        make_frame(bytes + i * SPLIT_BYTES, SPLIT_PAYLOAD, 5, 0, 9, SPLIT_PAYLOAD);
    }
    seen.is_destroying = true;
    put(bytes, sizeof bytes);
    ck_assert(loop_until(base, &seen.is_framed));
    loop_for_ms(base, 5);
    ck_assert_int_eq(seen.n_frames, 1);
    ck_assert_int_eq(seen.n_closed, 0);
}
END_TEST

START_TEST(sent_frame_has_the_written_form)
{
    const uint8_t payload[] = { 0xaa, 0xbb, 0xcc };
    const uint8_t expected[] = { 3, 0, 0, 0, 0x34, 0x12, 3, 0, 0x78, 0x56, 0x34, 0x12, 0xaa, 0xbb, 0xcc };
    uint8_t got[sizeof expected];

    ck_assert_int_eq(rpc_send(conn, 0x1234, RPC_REPLY | RPC_LAST, 0x12345678, payload, 3), 0);
    loop_for_ms(base, 5);
    ck_assert_int_eq(recv(raw_fd, got, sizeof got, MSG_WAITALL), (ssize_t)sizeof got);
    ck_assert_mem_eq(got, expected, sizeof expected);
    ck_assert_uint_eq(rpc_pending(conn), 0);
}
END_TEST

START_TEST(call_ids_are_never_zero)
{
    uint32_t first = rpc_next_call(conn);

    ck_assert_uint_eq(first, 1);
    ck_assert_uint_eq(rpc_next_call(conn), 2);
}
END_TEST

START_TEST(full_output_says_so_and_drains)
{
    static uint8_t payload[64 << 10];
    bool was_full = false;
    uint8_t sink[4096];

    rpc_set_limits(conn, RPC_LIMIT_UNKNOWN, 1 << 20);
    for (int i = 0; i < 16 && !was_full; i++) {
        int st = rpc_send(conn, 1, 0, 0, payload, sizeof payload);

        ck_assert_int_ge(st, 0);
        was_full = st == 1;
    }
    ck_assert(was_full);
    evutil_make_socket_nonblocking(raw_fd);
    while (!seen.is_drained) {
        while (read(raw_fd, sink, sizeof sink) > 0) {
        }
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    ck_assert_uint_le(rpc_pending(conn), 1 << 18);
    ck_assert_int_eq(seen.n_drained, 1);
    ck_assert_int_eq(rpc_send(conn, 1, 0, 0, payload, 1), 0);
}
END_TEST

START_TEST(peer_that_does_not_read_is_dropped)
{
    static uint8_t payload[64 << 10];
    int st = 0;
    int n = 0;

    rpc_set_limits(conn, RPC_LIMIT_UNKNOWN, 1 << 20);
    while (st >= 0 && n < 1000) {
        st = rpc_send(conn, 1, 0, 0, payload, sizeof payload);
        n++;
        ck_assert_int_eq(seen.n_closed, 0); /* never from inside rpc_send */
    }
    ck_assert_int_eq(st, GEMS_E_PEER);
    ck_assert_uint_le(rpc_pending(conn), (1 << 20) + 2 * sizeof payload);
    ck_assert(loop_until(base, &seen.is_closed));
    ck_assert_ptr_nonnull(strstr(seen.why, "does not read"));
}
END_TEST

START_TEST(finish_writes_all_before_the_end)
{
    static uint8_t payload[1 << 20];
    size_t expected = sizeof payload + RPC_HEADER_BYTES;
    size_t got = 0;
    uint8_t sink[8192];

    rpc_send(conn, 1, 0, 0, payload, sizeof payload);
    put("unread input of the peer", 24);
    rpc_finish(conn);
    ck_assert_int_eq(rpc_send(conn, 1, 0, 0, payload, 1), GEMS_E_PEER);
    evutil_make_socket_nonblocking(raw_fd);
    for (;;) {
        ssize_t n = read(raw_fd, sink, sizeof sink);

        if (n == 0) {
            break; /* a proper end, no reset */
        }
        got += n > 0 ? (size_t)n : 0;
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    ck_assert_uint_eq(got, expected);
    ck_assert_int_eq(seen.n_closed, 0);
    close(raw_fd);
    raw_fd = -1;
    ck_assert(loop_until(base, &seen.is_closed));
    ck_assert_str_eq(seen.why, "finished");
}
END_TEST

START_TEST(finish_does_not_wait_for_ever)
{
    rpc_finish(conn);
    ck_assert(loop_until(base, &seen.is_closed)); /* the peer keeps its side open */
    ck_assert_str_eq(seen.why, "finished");
}
END_TEST

START_TEST(handler_may_reply_and_finish)
{
    uint8_t bytes[SPLIT_BYTES];
    uint8_t reply[SPLIT_BYTES];

    seen.is_echoing = true;
    seen.is_finishing = true;
    put(bytes, make_frame(bytes, SPLIT_PAYLOAD, 5, 0, 9, SPLIT_PAYLOAD));
    put(bytes, sizeof bytes); /* a second one is not looked at any more */
    ck_assert(loop_until(base, &seen.is_framed));
    loop_for_ms(base, 5);
    ck_assert_int_eq(recv(raw_fd, reply, sizeof reply, MSG_WAITALL), (ssize_t)sizeof reply);
    ck_assert_int_eq(recv(raw_fd, reply, sizeof reply, 0), 0);
    ck_assert_int_eq(seen.n_frames, 1);
}
END_TEST

START_TEST(input_that_came_before_is_not_lost)
{
    struct bufferevent *pair[2];
    uint8_t bytes[SPLIT_BYTES];
    struct rpc_conn *late;

    ck_assert_int_eq(bufferevent_pair_new(base, 0, pair), 0);
    bufferevent_enable(pair[1], EV_READ);
    bufferevent_write(pair[0], bytes, make_frame(bytes, SPLIT_PAYLOAD, 5, 0, 9, SPLIT_PAYLOAD));
    loop_for_ms(base, 2);
    ck_assert_uint_eq(evbuffer_get_length(bufferevent_get_input(pair[1])), sizeof bytes);
    late = rpc_create(pair[1], &handlers, &seen, NULL);
    ck_assert_ptr_nonnull(late);
    ck_assert_int_eq(seen.n_frames, 0); /* not from inside rpc_create */
    ck_assert(loop_until(base, &seen.is_framed));
    rpc_destroy(late);
    bufferevent_free(pair[0]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc");
    TCase *tcase = tcase_create("frames");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, frame_of_allowed_length_arrives_whole, 0,
                        sizeof good_lengths / sizeof good_lengths[0]);
    tcase_add_loop_test(tcase, frame_above_the_limit_closes_with_a_reason, 0,
                        sizeof bad_lengths / sizeof bad_lengths[0]);
    tcase_add_test(tcase, limit_can_be_raised);
    tcase_add_loop_test(tcase, frame_cut_at_any_byte_is_no_frame, 0, SPLIT_BYTES);
    tcase_add_loop_test(tcase, frame_split_at_any_byte_is_put_together, 1, 2 * SPLIT_BYTES);
    tcase_add_test(tcase, frame_byte_by_byte_is_put_together);
    tcase_add_test(tcase, handler_may_destroy_with_more_frames_waiting);
    tcase_add_test(tcase, sent_frame_has_the_written_form);
    tcase_add_test(tcase, call_ids_are_never_zero);
    tcase_add_test(tcase, full_output_says_so_and_drains);
    tcase_add_test(tcase, peer_that_does_not_read_is_dropped);
    tcase_add_test(tcase, finish_writes_all_before_the_end);
    tcase_add_test(tcase, finish_does_not_wait_for_ever);
    tcase_add_test(tcase, handler_may_reply_and_finish);
    tcase_add_test(tcase, input_that_came_before_is_not_lost);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
