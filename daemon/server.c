#include "daemon/server.h"

#include <event2/bufferevent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/error.h"
#include "common/log.h"
#include "config.h"
#include "daemon/handlers.h"
#include "daemon/identity.h"
#include "daemon/launch.h"
#include "daemon/nodes.h"

enum {
    HELLO_MS = 10000,
    PEER_STREAMS = 64,
    PEER_REQUESTS = 2 * PEER_STREAMS, /* open at once: more than streams, which may stay open */
    SERVER_OUTPUT_BYTES = 64 << 20
};

struct server {
    struct daemon *daemon;
    struct listener *local, *remote;
    struct list peers;
    uint64_t last_id, n_files; /* descriptors this process may have */
    size_t n_peers, n_streams;
};

/* A question of ours that a peer has not answered yet. */
struct call {
    struct list link;
    uint32_t id;
    int64_t deadline_us;
    peer_answer_fn *done;
    void *arg;
};

#define CLIENT (1u << ROLE_CLIENT)
#define WORKER (1u << ROLE_WORKER)
#define RANK (1u << ROLE_RANK)

static const struct {
    unsigned roles;
    handler_fn *fn;
} handlers[MSG_TYPE_LIMIT] = {
    [MSG_SUBMIT] = { CLIENT, on_submit },       [MSG_PLAN] = { CLIENT, on_plan },
    [MSG_STATUS] = { CLIENT, on_status },       [MSG_LIST] = { CLIENT, on_list },
    [MSG_CANCEL] = { CLIENT, on_cancel },       [MSG_PAUSE] = { CLIENT, on_pause },
    [MSG_RESUME] = { CLIENT, on_resume },       [MSG_CHECKPOINT] = { CLIENT, on_checkpoint },
    [MSG_EVENTS] = { CLIENT, on_events },       [MSG_CHECKPOINTS] = { CLIENT, on_checkpoints },
    [MSG_NODES] = { CLIENT, on_nodes },         [MSG_DRAIN] = { CLIENT, on_drain },
    [MSG_WATCH] = { CLIENT, on_watch },         [MSG_LOGS] = { CLIENT, on_logs },
    [MSG_FETCH] = { CLIENT, on_fetch },         [MSG_REGISTER] = { WORKER, on_register },
    [MSG_RANK_EXIT] = { WORKER, on_rank_exit }, [MSG_RANK_LOG] = { WORKER, on_rank_log },
    [MSG_PING] = { WORKER | RANK, on_ping },    [MSG_JOIN] = { RANK, on_join },
    [MSG_HEARTBEAT] = { RANK, on_heartbeat },   [MSG_PROGRESS] = { RANK, on_progress },
    [MSG_SHARD] = { RANK, on_shard },           [MSG_SHARD_END] = { RANK, on_shard_end },
    [MSG_RESTORE] = { RANK, on_restore },       [MSG_END] = { RANK, on_end },
};

/* ---- peers ---- */

static void fail_call(struct call *call, enum gems_status status, const char *text,
                      const char *hint)
{
    struct gems_error err;

    gems_error_set(&err, status, "%s", text);
    gems_error_hint(&err, "%s", hint);
    list_remove(&call->link);
    call->done(call->arg, NULL, &err);
    free(call);
}

static void peer_destroy(struct server *server, struct peer *peer, const char *why)
{
    struct list *link;

    list_remove(&peer->link);
    server->n_peers--;
    rpc_destroy(peer->conn);
    peer->conn = NULL;
    while ((link = list_first(&peer->streams))) {
        stream_end(list_item(link, struct stream, link));
    }
    while ((link = list_first(&peer->calls))) {
        fail_call(list_item(link, struct call, link), GEMS_E_PEER, why, "");
    }
    if (peer->node) {
        nodes_peer_closed(peer->node);
    }
    launch_peer_closed(peer);
    free(peer);
}

static void on_closed(void *arg, struct rpc_conn *conn, const char *why)
{
    struct peer *peer = arg;

    (void)conn;
    log_debug("peer %s: %s", peer->address, why);
    peer_destroy(peer->daemon->server, peer, why);
}

static void on_drained(void *arg, struct rpc_conn *conn)
{
    struct peer *peer = arg;

    (void)conn;
    list_each(&peer->streams, link)
    {
        struct stream *stream = list_item(link, struct stream, link);

        if (stream->drained) {
            stream->drained(stream);
        }
    }
}

static void take_answer(struct peer *peer, const struct rpc_frame *frame,
                        const ProtobufCMessage *message)
{
    list_each(&peer->calls, link)
    {
        struct call *call = list_item(link, struct call, link);

        if (call->id != frame->call) {
            continue;
        }
        if (frame->type == MSG_ERROR) {
            const Gems__Error *error = (const Gems__Error *)message;
            bool is_known = error->status < 0 && error->status >= GEMS_E_INTERNAL;

            fail_call(call, is_known ? (enum gems_status)error->status : GEMS_E_INTERNAL,
                      error->text, error->hint);
        } else {
            list_remove(&call->link);
            call->done(call->arg, message, NULL);
            free(call);
        }
        return;
    }
}

static void take_hello(struct peer *peer, const struct rpc_frame *frame,
                       const ProtobufCMessage *message)
{
    Gems__HelloReply reply = GEMS__HELLO_REPLY__INIT;
    struct gems_error err;
    int status = frame->type == MSG_HELLO
                     ? identity_check(peer, (const Gems__Hello *)message, &err)
                     : gems_error_set(&err, GEMS_E_DENIED, "hello must come first");

    if (status < 0) {
        log_warning("peer %s: refused: %s", peer->address, err.text);
        peer_error(peer, frame->call, &err);
        peer_finish(peer);
        return;
    }
    rpc_set_limits(peer->conn, peer->role == ROLE_CLIENT ? RPC_LIMIT_CLIENT : RPC_LIMIT_WORKER,
                   SERVER_OUTPUT_BYTES);
    reply.version = (char *)PACKAGE_VERSION;
    reply.user = peer->user;
    peer_reply(peer, frame->call, MSG_HELLO_REPLY, &reply.base);
}

static void refuse(struct peer *peer, const struct rpc_frame *frame)
{
    const char *name = msg_name(frame->type);
    struct gems_error err;

    gems_error_set(&err, name ? GEMS_E_DENIED : GEMS_E_UNSUPPORTED,
                   "message %s (%u) is not for this peer", name ? name : "unknown", frame->type);
    if (frame->call) {
        peer_error(peer, frame->call, &err);
    }
}

/* What is asked without an answer could not be counted. */
static void serve(struct peer *peer, const struct rpc_frame *frame, const ProtobufCMessage *message)
{
    struct gems_error err;

    if (peer->role == ROLE_CLIENT) {
        if (!frame->call) {
            gems_error_set(&err, GEMS_E_INVALID, "a request needs the id of a call");
            peer_error(peer, 0, &err);
            peer_finish(peer);
            return;
        }
        if (++peer->n_open >= PEER_REQUESTS) {
            peer->is_held = true;
            rpc_set_reading(peer->conn, false);
        }
    }
    handlers[frame->type].fn(peer, frame->call, message);
}

/* The last answer to a request is on its way. */
static void count_answer(struct peer *peer)
{
    if (peer->n_open > 0) {
        peer->n_open--;
    }
    if (peer->is_held && peer->n_open < PEER_REQUESTS - PEER_STREAMS / 2) {
        peer->is_held = false;
        rpc_set_reading(peer->conn, true);
    }
}

static void on_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    struct peer *peer = arg;
    ProtobufCMessage *message = NULL;
    struct gems_error err;

    (void)conn;
    peer->used_us = daemon_now_us(peer->daemon);
    if (!msg_name(frame->type)) {
        refuse(peer, frame);
        return;
    }
    if (msg_decode(frame, &message, &err) < 0) {
        log_warning("peer %s: %s", peer->address, err.text);
        peer_error(peer, frame->call, &err);
        peer_finish(peer);
        return;
    }
    if (peer->node && peer->node->peer == peer) {
        peer->node->seen_us = peer->used_us;
    }
    if (peer->role == ROLE_NONE) {
        take_hello(peer, frame, message);
    } else if (frame->flags & RPC_REPLY) {
        take_answer(peer, frame, message);
    } else if (handlers[frame->type].fn && handlers[frame->type].roles >> peer->role & 1) {
        serve(peer, frame, message);
    } else {
        refuse(peer, frame);
    }
    msg_free(message);
}

static const struct rpc_handlers rpc = { .frame = on_frame,
                                         .closed = on_closed,
                                         .drained = on_drained };

/* Half of the descriptors; the others are for files. */
static size_t room_for_peers(const struct server *server)
{
    uint64_t max_peers = server->daemon->settings->max_peers;

    return (size_t)(max_peers < server->n_files / 2 ? max_peers : server->n_files / 2);
}

/* Agents and ranks must get in, however many clients sit there and say nothing. */
static void make_room(struct server *server)
{
    struct peer *idlest = NULL;

    list_each(&server->peers, link)
    {
        struct peer *peer = list_item(link, struct peer, link);
        bool is_idle = (peer->role == ROLE_NONE || peer->role == ROLE_CLIENT) && !peer->n_open;

        if (is_idle && (!idlest || peer->used_us < idlest->used_us)) {
            idlest = peer;
        }
    }
    if (idlest) {
        log_warning("peer %s: closed, idle, and there are %zu peers", idlest->address,
                    server->n_peers);
        peer_destroy(server, idlest, "gemsd needs the connection");
    }
}

static void on_accepted(void *arg, struct bufferevent *bev, const struct listen_peer *who)
{
    struct server *server = arg;
    struct peer *peer = NULL;
    struct gems_error err;

    if (server->n_peers >= room_for_peers(server)) {
        make_room(server);
    }
    if (server->n_peers < room_for_peers(server)) {
        peer = calloc(1, sizeof *peer);
    }

    if (!peer) {
        log_warning("peer %s: refused, there are %zu peers already", who->address, server->n_peers);
        bufferevent_free(bev);
        return;
    }
    peer->daemon = server->daemon;
    peer->who = *who;
    peer->id = ++server->last_id;
    peer->since_us = peer->used_us = daemon_now_us(server->daemon);
    snprintf(peer->address, sizeof peer->address, "%s", who->address);
    list_init(&peer->streams);
    list_init(&peer->calls);
    peer->conn = rpc_create(bev, &rpc, peer, &err);
    if (!peer->conn) {
        log_warning("peer %s: %s", who->address, err.text);
        free(peer);
        return;
    }
    list_push(&server->peers, &peer->link);
    server->n_peers++;
}

static void on_note(void *arg, const char *text)
{
    (void)arg;
    log_warning("%s", text);
}

/* ---- server ---- */

static int listen_remote(struct server *server, const struct settings *settings,
                         struct gems_error *err)
{
    static const struct listen_handlers accept = { .accepted = on_accepted, .note = on_note };
    struct tls_settings tls = { .ca = settings->tls_ca,
                                .certificate = settings->tls_cert,
                                .key = settings->tls_key };
    struct address address;
    int status = address_parse_tcp(settings->listen, &address, err);

    if (status < 0) {
        return status;
    }
    server->remote = listen_tcp(server->daemon->base, &address, &tls, &accept, server, err);
    return server->remote ? GEMS_OK : err->status;
}

int server_create(struct daemon *daemon, struct server **ret_server, struct gems_error *err)
{
    static const struct listen_handlers accept = { .accepted = on_accepted, .note = on_note };
    const struct settings *settings = daemon->settings;
    struct server *server = calloc(1, sizeof *server);
    struct rlimit files = { 0 };

    if (!server) {
        return gems_error_set(err, GEMS_E_NOMEM, "server: no memory");
    }
    getrlimit(RLIMIT_NOFILE, &files);
    server->n_files = files.rlim_cur;
    server->daemon = daemon;
    list_init(&server->peers);
    server->local = listen_unix(daemon->base, settings->socket, 0666, &accept, server, err);
    if (!server->local ||
        (settings->listen && settings->listen[0] && listen_remote(server, settings, err) < 0)) {
        server_destroy(server);
        return err->status;
    }
    *ret_server = server;
    return GEMS_OK;
}

void server_destroy(struct server *server)
{
    if (!server) {
        return;
    }
    listen_destroy(server->local);
    listen_destroy(server->remote);
    while (!list_is_empty(&server->peers)) {
        peer_destroy(server, list_item(list_first(&server->peers), struct peer, link),
                     "gemsd stops");
    }
    free(server);
}

uint16_t server_port(const struct server *server)
{
    return server->remote ? listen_port(server->remote) : 0;
}

struct peer *server_peer(struct server *server, uint64_t id)
{
    if (!server) {
        return NULL; /* gemsd stops */
    }
    list_each(&server->peers, link)
    {
        struct peer *peer = list_item(link, struct peer, link);

        if (peer->id == id) {
            return peer;
        }
    }
    return NULL;
}

void server_tick(struct server *server)
{
    int64_t now_us = daemon_now_us(server->daemon);

    list_each(&server->peers, link)
    {
        struct peer *peer = list_item(link, struct peer, link);

        if (peer->role == ROLE_NONE && now_us - peer->since_us > HELLO_MS * 1000) {
            rpc_finish(peer->conn);
            continue;
        }
        list_each(&peer->calls, call_link)
        {
            struct call *call = list_item(call_link, struct call, link);

            if (now_us >= call->deadline_us) {
                fail_call(call, GEMS_E_TIMEOUT, "no answer in time", "");
            }
        }
    }
}

/* ---- sending ---- */

int peer_send(struct peer *peer, enum msg_type type, uint16_t flags, uint32_t call,
              const ProtobufCMessage *message)
{
    if (!peer->conn) {
        return GEMS_E_PEER;
    }
    if (flags & RPC_LAST) {
        count_answer(peer);
    }
    return msg_send(peer->conn, type, flags, call, message);
}

void peer_reply(struct peer *peer, uint32_t call, enum msg_type type,
                const ProtobufCMessage *message)
{
    if (call) {
        peer_send(peer, type, RPC_REPLY | RPC_LAST, call, message);
    }
}

void peer_ok(struct peer *peer, uint32_t call)
{
    Gems__Ok ok = GEMS__OK__INIT;

    peer_reply(peer, call, MSG_OK, &ok.base);
}

void peer_error(struct peer *peer, uint32_t call, const struct gems_error *err)
{
    if (peer->conn) {
        count_answer(peer);
        msg_send_error(peer->conn, call, err);
    }
}

void peer_finish(struct peer *peer)
{
    if (peer->conn) {
        rpc_finish(peer->conn);
    }
}

int peer_call(struct peer *peer, enum msg_type type, const ProtobufCMessage *message,
              uint64_t timeout_ms, peer_answer_fn *done, void *arg, struct gems_error *err)
{
    struct call *call = calloc(1, sizeof *call);
    int status;

    if (!call) {
        return gems_error_set(err, GEMS_E_NOMEM, "call: no memory");
    }
    call->id = rpc_next_call(peer->conn);
    call->deadline_us = daemon_now_us(peer->daemon) + (int64_t)timeout_ms * 1000;
    call->done = done;
    call->arg = arg;
    status = peer_send(peer, type, 0, call->id, message);
    if (status < 0) {
        free(call);
        return gems_error_set(err, (enum gems_status)status, "peer %s is gone", peer->address);
    }
    list_push(&peer->calls, &call->link);
    return GEMS_OK;
}

int stream_begin(struct stream *stream, struct peer *peer, uint32_t call, struct gems_error *err)
{
    struct server *server = peer->daemon->server;

    if (peer->n_streams >= PEER_STREAMS) {
        return gems_error_set(err, GEMS_E_STATE, "too many streams on one connection, at most %d",
                              PEER_STREAMS);
    }
    if (server->n_streams >= server->n_files / 4) {
        return gems_error_set(err, GEMS_E_STATE, "gemsd sends %zu streams already: try again later",
                              server->n_streams);
    }
    server->n_streams++;
    stream->peer = peer;
    stream->call = call;
    list_push(&peer->streams, &stream->link);
    peer->n_streams++;
    return GEMS_OK;
}

void stream_end(struct stream *stream)
{
    list_remove(&stream->link);
    stream->peer->n_streams--;
    stream->peer->daemon->server->n_streams--;
    stream->ended(stream);
}

int peer_may_act(const struct peer *peer, const char *user, struct gems_error *err)
{
    if (peer->is_viewer) {
        return gems_error_set(err, GEMS_E_DENIED, "%s may look, not act", peer->user);
    }
    if (peer->is_operator || !strcmp(peer->user, user)) {
        return GEMS_OK;
    }
    return gems_error_set(err, GEMS_E_DENIED, "it belongs to %s, not to %s", user, peer->user);
}
