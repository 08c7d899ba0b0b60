/* Input is taken as it comes, whole frames are handed on at once, so at most
 * one incomplete frame is ever held. Handlers may send, finish or destroy:
 * a destroyed connection lives on until the last of our frames on the stack
 * is left (depth), and what must not happen inside a caller's call (closed
 * after a refused send) happens from an event of our own. */
#include "common/rpc.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/error.h"

enum { RPC_OUTPUT_BYTES = 16 << 20, RPC_LINGER_S = 2 };

struct rpc_conn {
    struct bufferevent *bev;
    struct event *deferred; /* runs on_deferred soon, or after the linger time */
    struct rpc_handlers handlers;
    void *arg;
    size_t max_frame_bytes, max_output_bytes;
    uint32_t last_call;
    int depth;
    bool is_destroyed;
    bool is_closed;    /* no more sending; closed was or will be called */
    bool is_reported;  /* closed was called */
    bool is_finishing; /* input is dropped */
    bool is_shut;      /* our side has said its last byte */
    bool is_full;      /* drained is owed */
    bool is_held;      /* input waits in the socket and in our buffer */
    char why[160];
};

static void conn_free(struct rpc_conn *conn)
{
    if (conn->deferred) {
        event_free(conn->deferred);
    }
    bufferevent_free(conn->bev);
    free(conn);
}

static void enter(struct rpc_conn *conn)
{
    conn->depth++;
}

static void leave(struct rpc_conn *conn)
{
    if (--conn->depth == 0 && conn->is_destroyed) {
        conn_free(conn);
    }
}

/* Ends the connection; the handler hears of it now or from the loop. */
static void set_closed(struct rpc_conn *conn, const char *why)
{
    if (!conn->is_closed) {
        conn->is_closed = true;
        snprintf(conn->why, sizeof conn->why, "%s", why);
        bufferevent_disable(conn->bev, EV_READ | EV_WRITE);
    }
}

/* The caller has entered. */
static void report_closed(struct rpc_conn *conn)
{
    if (!conn->is_reported && !conn->is_destroyed) {
        conn->is_reported = true;
        conn->handlers.closed(conn->arg, conn, conn->why);
    }
}

static uint32_t get_u16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get_u32(const uint8_t *p)
{
    return get_u16(p) | get_u16(p + 2) << 16;
}

static void put_u16(uint8_t *p, uint32_t value)
{
    p[0] = (uint8_t)value;
    p[1] = (uint8_t)(value >> 8);
}

static void put_u32(uint8_t *p, uint32_t value)
{
    put_u16(p, value & 0xffff);
    put_u16(p + 2, value >> 16);
}

/* Hands one frame on. False: no whole frame there, or the end. */
static bool take_frame(struct rpc_conn *conn, struct evbuffer *input)
{
    size_t n = evbuffer_get_length(input);
    uint8_t header[RPC_HEADER_BYTES];
    struct rpc_frame frame;
    uint8_t *whole;

    if (n < RPC_HEADER_BYTES) {
        return false;
    }
    evbuffer_copyout(input, header, sizeof header);
    frame.bytes = get_u32(header);
    if (frame.bytes > conn->max_frame_bytes) {
        char why[96];

        snprintf(why, sizeof why, "frame of %zu bytes, at most %zu allowed", frame.bytes,
                 conn->max_frame_bytes);
        set_closed(conn, why);
        report_closed(conn);
        return false;
    }
    if (n - RPC_HEADER_BYTES < frame.bytes) {
        return false;
    }
    whole = evbuffer_pullup(input, (ev_ssize_t)(RPC_HEADER_BYTES + frame.bytes));
    if (!whole) {
        set_closed(conn, "no memory for a frame");
        report_closed(conn);
        return false;
    }
    frame.type = (uint16_t)get_u16(header + 4);
    frame.flags = (uint16_t)get_u16(header + 6);
    frame.call = get_u32(header + 8);
    frame.payload = whole + RPC_HEADER_BYTES;
    conn->handlers.frame(conn->arg, conn, &frame);
    evbuffer_drain(input, RPC_HEADER_BYTES + frame.bytes);
    return true;
}

static void read_input(struct rpc_conn *conn)
{
    struct evbuffer *input = bufferevent_get_input(conn->bev);

    while (!conn->is_closed && !conn->is_destroyed && !conn->is_finishing && !conn->is_held &&
           take_frame(conn, input)) {
    }
    if (conn->is_finishing) {
        evbuffer_drain(input, evbuffer_get_length(input));
    }
}

static void on_read(struct bufferevent *bev, void *arg)
{
    struct rpc_conn *conn = arg;

    (void)bev;
    enter(conn);
    read_input(conn);
    leave(conn);
}

/* Everything is written: say so to the peer and wait for its end, because a
 * close with unread input would reset the connection and could destroy what
 * the peer has not read yet. */
static void shut_output(struct rpc_conn *conn)
{
    struct timeval linger = { RPC_LINGER_S, 0 };
    SSL *ssl = bufferevent_openssl_get_ssl(conn->bev);

    conn->is_shut = true;
    if (ssl) {
        SSL_shutdown(ssl);
        ERR_clear_error();
    }
    shutdown(bufferevent_getfd(conn->bev), SHUT_WR);
    event_add(conn->deferred, &linger);
}

static void on_write(struct bufferevent *bev, void *arg)
{
    struct rpc_conn *conn = arg;

    (void)bev;
    enter(conn);
    if (conn->is_finishing) {
        if (!conn->is_shut && rpc_pending(conn) == 0) {
            shut_output(conn);
        }
    } else if (conn->is_full && !conn->is_closed && rpc_pending(conn) <= conn->max_output_bytes / 4) {
        conn->is_full = false;
        if (conn->handlers.drained) {
            conn->handlers.drained(conn->arg, conn);
        }
    }
    leave(conn);
}

static void describe_end(struct rpc_conn *conn, short what, char *why, size_t room)
{
    unsigned long tls = bufferevent_get_openssl_error(conn->bev);
    char reason[128];

    if (what & BEV_EVENT_EOF) {
        bool is_cut = evbuffer_get_length(bufferevent_get_input(conn->bev)) > 0;

        snprintf(why, room, is_cut ? "closed by the peer in the middle of a frame" : "closed by the peer");
    } else if (tls) {
        const char *text = ERR_reason_error_string(tls);

        snprintf(why, room, "tls: %s", text ? text : "unknown error");
    } else {
        snprintf(why, room, "%s", strerror_r(EVUTIL_SOCKET_ERROR(), reason, sizeof reason));
    }
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct rpc_conn *conn = arg;
    char why[160];

    (void)bev;
    if (!(what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))) {
        return;
    }
    enter(conn);
    describe_end(conn, what, why, sizeof why);
    set_closed(conn, conn->is_finishing ? "finished" : why);
    report_closed(conn);
    leave(conn);
}

static void on_deferred(evutil_socket_t fd, short what, void *arg)
{
    struct rpc_conn *conn = arg;

    (void)fd;
    (void)what;
    enter(conn);
    if (conn->is_shut) {
        set_closed(conn, "finished");
    }
    if (conn->is_closed) {
        report_closed(conn);
    } else {
        read_input(conn);
        if (conn->is_finishing && !conn->is_shut && rpc_pending(conn) == 0) {
            shut_output(conn);
        }
    }
    leave(conn);
}

struct rpc_conn *rpc_create(struct bufferevent *bev, const struct rpc_handlers *handlers, void *arg,
                            struct gems_error *err)
{
    struct rpc_conn *conn = calloc(1, sizeof *conn);

    if (conn) {
        conn->deferred = event_new(bufferevent_get_base(bev), -1, 0, on_deferred, conn);
    }
    if (!conn || !conn->deferred) {
        gems_error_set(err, GEMS_E_NOMEM, "connection: no memory");
        free(conn);
        bufferevent_free(bev);
        return NULL;
    }
    conn->bev = bev;
    conn->handlers = *handlers;
    conn->arg = arg;
    rpc_set_limits(conn, RPC_LIMIT_UNKNOWN, RPC_OUTPUT_BYTES);
    if (bufferevent_openssl_get_ssl(bev)) {
        /* Frames carry their length: a missing close_notify cuts nothing unseen. */
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    }
    bufferevent_setcb(bev, on_read, on_write, on_event, conn);
    if (bufferevent_enable(bev, EV_READ | EV_WRITE) < 0) {
        gems_error_set(err, GEMS_E_NOMEM, "connection: no memory");
        conn_free(conn);
        return NULL;
    }
    if (evbuffer_get_length(bufferevent_get_input(bev)) > 0) {
        event_active(conn->deferred, EV_TIMEOUT, 0);
    }
    return conn;
}

void rpc_destroy(struct rpc_conn *conn)
{
    if (!conn || conn->is_destroyed) {
        return;
    }
    conn->is_destroyed = true;
    bufferevent_setcb(conn->bev, NULL, NULL, NULL, NULL);
    bufferevent_disable(conn->bev, EV_READ | EV_WRITE);
    event_del(conn->deferred);
    if (conn->depth == 0) {
        conn_free(conn);
    }
}

void rpc_set_handlers(struct rpc_conn *conn, const struct rpc_handlers *handlers, void *arg)
{
    conn->handlers = *handlers;
    conn->arg = arg;
}

void rpc_set_limits(struct rpc_conn *conn, size_t max_frame_bytes, size_t max_output_bytes)
{
    conn->max_frame_bytes = max_frame_bytes;
    conn->max_output_bytes = max_output_bytes;
    if (!conn->is_finishing) {
        bufferevent_setwatermark(conn->bev, EV_WRITE, max_output_bytes / 4, 0);
    }
}

int rpc_send(struct rpc_conn *conn, uint16_t type, uint16_t flags, uint32_t call, const void *payload,
             size_t bytes)
{
    struct evbuffer *output = bufferevent_get_output(conn->bev);
    uint8_t header[RPC_HEADER_BYTES];

    if (conn->is_closed || conn->is_finishing || conn->is_destroyed) {
        return GEMS_E_PEER;
    }
    if (bytes > UINT32_MAX) {
        return GEMS_E_INVALID;
    }
    if (rpc_pending(conn) > conn->max_output_bytes) {
        set_closed(conn, "the peer does not read what it is sent");
        event_active(conn->deferred, EV_TIMEOUT, 0);
        return GEMS_E_PEER;
    }
    put_u32(header, (uint32_t)bytes);
    put_u16(header + 4, type);
    put_u16(header + 6, flags);
    put_u32(header + 8, call);
    /* Room first: half a frame in the output could not be taken back. */
    if (evbuffer_expand(output, sizeof header + bytes) < 0) {
        return GEMS_E_NOMEM;
    }
    evbuffer_add(output, header, sizeof header);
    evbuffer_add(output, payload, bytes);
    conn->is_full |= rpc_pending(conn) > conn->max_output_bytes / 2;
    return conn->is_full ? 1 : 0;
}

void rpc_finish(struct rpc_conn *conn)
{
    if (conn->is_closed || conn->is_finishing || conn->is_destroyed) {
        return;
    }
    rpc_set_reading(conn, true);
    conn->is_finishing = true;
    bufferevent_setwatermark(conn->bev, EV_WRITE, 0, 0);
    if (rpc_pending(conn) == 0) {
        event_active(conn->deferred, EV_TIMEOUT, 0);
    }
}

void rpc_set_reading(struct rpc_conn *conn, bool is_reading)
{
    if (conn->is_closed || conn->is_finishing || conn->is_destroyed || conn->is_held == !is_reading) {
        return;
    }
    conn->is_held = !is_reading;
    if (is_reading) {
        bufferevent_enable(conn->bev, EV_READ);
        event_active(conn->deferred, EV_TIMEOUT, 0);
    } else {
        bufferevent_disable(conn->bev, EV_READ);
    }
}

size_t rpc_pending(const struct rpc_conn *conn)
{
    return evbuffer_get_length(bufferevent_get_output(conn->bev));
}

uint32_t rpc_next_call(struct rpc_conn *conn)
{
    if (++conn->last_call == 0) {
        conn->last_call = 1;
    }
    return conn->last_call;
}
