#include "client/call.h"

#include <config.h>

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client/target.h"
#include "common/buf.h"
#include "common/connect.h"
#include "common/error.h"

enum { CONNECT_TIMEOUT_MS = 10000, CLIENT_FRAME_BYTES = 16 << 20, CLIENT_OUTPUT_BYTES = 16 << 20 };

struct call {
    struct event_base *base;
    struct event *interrupt, *terminate, *timer;
    struct connector *connector;
    struct rpc_conn *conn;
    struct target target;
    /* The call in flight: ends when is_done. */
    uint32_t id;
    enum msg_type reply_type;
    call_chunk_fn chunk; /* NULL: a single reply */
    void *chunk_arg;
    uint32_t idle_ms;
    ProtobufCMessage *reply;
    bool is_done;
    int status;
    struct gems_error err;
};

static void finish(struct call *call, int status)
{
    call->is_done = true;
    call->status = status;
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    struct call *call = arg;

    (void)fd;
    (void)what;
    finish(call, gems_error_set(&call->err, GEMS_E_CANCELLED, "interrupted"));
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct call *call = arg;

    (void)fd;
    (void)what;
    finish(call,
           gems_error_set(&call->err, GEMS_E_TIMEOUT, "%s: no answer in time", call->target.text));
}

static void start_timer(struct call *call, uint32_t ms)
{
    struct timeval timeout = { ms / 1000, ms % 1000 * 1000 };

    event_del(call->timer);
    if (ms > 0) {
        event_add(call->timer, &timeout);
    }
}

/* The loop until the call in flight is done; its status, the error copied. */
static int wait_done(struct call *call, struct gems_error *err)
{
    while (!call->is_done) {
        if (event_base_loop(call->base, EVLOOP_ONCE) != 0) {
            finish(call,
                   gems_error_set(&call->err, GEMS_E_INTERNAL, "event loop: nothing to wait for"));
        }
    }
    event_del(call->timer);
    if (call->status < 0 && err) {
        *err = call->err;
    }
    return call->status;
}

static void take_error(struct call *call, const Gems__Error *error)
{
    int status =
        error->status < 0 && error->status >= GEMS_E_INTERNAL ? error->status : GEMS_E_INTERNAL;

    gems_error_set(&call->err, status, "%s", error->text);
    gems_error_hint(&call->err, "%s", error->hint);
    finish(call, status);
}

static void on_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    struct call *call = arg;
    ProtobufCMessage *message;
    int status;

    (void)conn;
    if (call->is_done || frame->call != call->id) {
        return; /* of a call that was given up */
    }
    if (msg_decode(frame, &message, &call->err) < 0) {
        finish(call, GEMS_E_PEER);
        call->err.status = GEMS_E_PEER;
        return;
    }
    if (frame->type == MSG_ERROR) {
        take_error(call, (const Gems__Error *)message);
    } else if (frame->type == MSG_OK && call->chunk) {
        finish(call, GEMS_OK); /* a stream with nothing in it */
    } else if (frame->type != call->reply_type) {
        finish(call, gems_error_set(&call->err, GEMS_E_PEER, "%s: answers with %s, not %s",
                                    call->target.text, msg_name(frame->type),
                                    msg_name((uint16_t)call->reply_type)));
    } else if (call->chunk) {
        start_timer(call, call->idle_ms);
        status = call->chunk(call->chunk_arg, message, &call->err);
        if (status != 0 || frame->flags & RPC_LAST) {
            finish(call, status < 0 ? status : GEMS_OK);
        }
    } else {
        call->reply = message;
        finish(call, GEMS_OK);
        return;
    }
    msg_free(message);
}

static void on_closed(void *arg, struct rpc_conn *conn, const char *why)
{
    struct call *call = arg;

    (void)conn;
    if (!call->is_done) {
        finish(call, gems_error_set(&call->err, GEMS_E_PEER, "%s: %s", call->target.text, why));
    }
}

static const struct rpc_handlers handlers = { .frame = on_frame, .closed = on_closed };

static void on_connected(void *arg, struct bufferevent *bev, const struct gems_error *err)
{
    struct call *call = arg;

    call->connector = NULL;
    if (!bev) {
        call->err = *err;
        call->err.status = GEMS_E_PEER;
        if (!call->err.hint[0]) {
            gems_error_hint(&call->err,
                            "is gemsd running? --connect or GEMS_CONNECT names another one");
        }
        finish(call, GEMS_E_PEER);
        return;
    }
    call->conn = rpc_create(bev, &handlers, call, &call->err);
    if (call->conn) {
        rpc_set_limits(call->conn, CLIENT_FRAME_BYTES, CLIENT_OUTPUT_BYTES);
    }
    finish(call, call->conn ? GEMS_OK : GEMS_E_NOMEM);
}

static int create_loop(struct call *call, struct gems_error *err)
{
    call->base = event_base_new();
    if (call->base) {
        call->interrupt = evsignal_new(call->base, SIGINT, on_signal, call);
        call->terminate = evsignal_new(call->base, SIGTERM, on_signal, call);
        call->timer = event_new(call->base, -1, EV_TIMEOUT, on_timer, call);
    }
    if (!call->base || !call->interrupt || !call->terminate || !call->timer ||
        event_add(call->interrupt, NULL) < 0 || event_add(call->terminate, NULL) < 0) {
        return gems_error_set(err, GEMS_E_NOMEM, "event loop: out of memory");
    }
    return GEMS_OK;
}

static int say_hello(struct call *call, struct gems_error *err)
{
    Gems__Hello hello = GEMS__HELLO__INIT;

    hello.protocol = PROTO_VERSION;
    hello.role = "client";
    hello.token = call->target.token;
    hello.version = PACKAGE_VERSION;
    return call_ask(call, MSG_HELLO, &hello.base, MSG_HELLO_REPLY, CONNECT_TIMEOUT_MS, NULL, err);
}

int call_open(const struct client *client, struct call **ret_call, struct gems_error *err)
{
    struct call *call = calloc(1, sizeof *call);
    int status;

    if (!call) {
        return gems_error_set(err, GEMS_E_NOMEM, "connection: out of memory");
    }
    status = target_find(client, &call->target, err);
    if (status == GEMS_OK) {
        status = create_loop(call, err);
    }
    if (status == GEMS_OK) {
        call->connector = connect_start(call->base, &call->target.address, &call->target.tls,
                                        CONNECT_TIMEOUT_MS, on_connected, call, err);
        status = call->connector ? wait_done(call, err) : GEMS_E_INVALID;
    }
    if (status == GEMS_OK) {
        status = say_hello(call, err);
    }
    if (status < 0) {
        call_close(call);
        return status;
    }
    *ret_call = call;
    return GEMS_OK;
}

void call_close(struct call *call)
{
    if (!call) {
        return;
    }
    if (call->connector) {
        connect_cancel(call->connector);
    }
    rpc_destroy(call->conn);
    if (call->timer) {
        event_free(call->timer);
    }
    if (call->interrupt) {
        event_free(call->interrupt);
    }
    if (call->terminate) {
        event_free(call->terminate);
    }
    if (call->base) {
        event_base_free(call->base);
    }
    target_fini(&call->target);
    free(call);
}

static int start(struct call *call, enum msg_type type, const ProtobufCMessage *request,
                 uint32_t timeout_ms, struct gems_error *err)
{
    int status;

    call->id = rpc_next_call(call->conn);
    call->is_done = false;
    call->reply = NULL;
    status = msg_send(call->conn, type, 0, call->id, request);
    if (status < 0) {
        return gems_error_set(err, status, "%s: the request could not be sent", call->target.text);
    }
    start_timer(call, timeout_ms);
    return GEMS_OK;
}

int call_ask(struct call *call, enum msg_type type, const ProtobufCMessage *request,
             enum msg_type reply_type, uint32_t timeout_ms, ProtobufCMessage **ret_reply,
             struct gems_error *err)
{
    int status;

    call->chunk = NULL;
    call->reply_type = reply_type;
    status = start(call, type, request, timeout_ms, err);
    if (status == GEMS_OK) {
        status = wait_done(call, err);
    }
    if (status == GEMS_OK && ret_reply) {
        *ret_reply = call->reply;
    } else if (status == GEMS_OK) {
        msg_free(call->reply);
    }
    return status;
}

int call_once(const struct client *client, enum msg_type type, const ProtobufCMessage *request,
              enum msg_type reply_type, uint32_t timeout_ms, ProtobufCMessage **ret_reply,
              struct gems_error *err)
{
    struct call *call;
    int status = call_open(client, &call, err);

    if (status < 0) {
        return status;
    }
    status = call_ask(call, type, request, reply_type, timeout_ms, ret_reply, err);
    call_close(call);
    return status;
}

int call_stream(struct call *call, enum msg_type type, const ProtobufCMessage *request,
                enum msg_type chunk_type, uint32_t idle_ms, call_chunk_fn chunk, void *arg,
                struct gems_error *err)
{
    int status;

    call->chunk = chunk;
    call->chunk_arg = arg;
    call->reply_type = chunk_type;
    call->idle_ms = idle_ms;
    status = start(call, type, request, idle_ms, err);
    return status == GEMS_OK ? wait_done(call, err) : status;
}

int call_sleep(uint32_t ms, struct gems_error *err)
{
    struct timespec time = { ms / 1000, (long)(ms % 1000) * 1000000 };

    if (nanosleep(&time, NULL) != 0) {
        return gems_error_set(err, GEMS_E_CANCELLED, "interrupted");
    }
    return GEMS_OK;
}
