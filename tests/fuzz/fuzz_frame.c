/* Input: what a stranger writes on a connection, in pieces: the first byte
 * says how large they are. Frames are answered, so that output runs too. */
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdbool.h>

#include "common/rpc.h"
#include "proto/messages.h"
#include "tests/fuzz/fuzz.h"

static bool is_over;

static void on_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    ProtobufCMessage *message = NULL;

    (void)arg;
    if (msg_decode(frame, &message, NULL) == 0) {
        msg_send(conn, frame->type, RPC_REPLY, frame->call, message);
        msg_free(message);
    } else {
        rpc_finish(conn);
    }
}

static void on_closed(void *arg, struct rpc_conn *conn, const char *why)
{
    (void)arg;
    (void)why;
    is_over = true;
    rpc_destroy(conn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct rpc_handlers handlers = { on_frame, on_closed, NULL };
    static struct event_base *base;
    struct bufferevent *pair[2];
    struct rpc_conn *conn;
    size_t piece;

    if (n < 1) {
        return 0;
    }
    if (!base) {
        base = event_base_new();
    }
    if (!base || bufferevent_pair_new(base, 0, pair) < 0) {
        return 0;
    }
    is_over = false;
    conn = rpc_create(pair[1], &handlers, NULL, NULL);
    bufferevent_enable(pair[0], EV_READ);
    piece = data[0] ? data[0] : n;
    for (size_t at = 1; at < n && !is_over; at += piece) {
        bufferevent_write(pair[0], data + at, piece < n - at ? piece : n - at);
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    if (!is_over) {
        rpc_destroy(conn);
    }
    bufferevent_free(pair[0]);
    event_base_loop(base, EVLOOP_NONBLOCK);
    return 0;
}
