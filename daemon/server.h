/* Connections: who is at the other end, and which function serves a message.
 *
 * A peer is nobody until its Hello. On the unix socket the kernel says who it
 * is; over TCP a token or a client certificate does. A table maps message and
 * role to a handler; what is not in it is refused. No client may take what
 * others need: a connection has so many requests open, then it is not read
 * until some are answered, and where connections run out the client that said
 * nothing for the longest time makes room. Thread: the loop.
 */
#ifndef GEMS_DAEMON_SERVER_H
#define GEMS_DAEMON_SERVER_H

#include "common/listen.h"
#include "daemon/daemon.h"
#include "proto/gems.pb-c.h"
#include "proto/messages.h"

struct cluster_node;
struct stream;

enum role { ROLE_NONE, ROLE_CLIENT, ROLE_WORKER, ROLE_RANK };

struct peer {
    struct list link;
    struct daemon *daemon;
    struct rpc_conn *conn; /* NULL once closed */
    uint64_t id;           /* never used twice */
    enum role role;
    char user[64]; /* name; of ranks and workers too */
    char address[80];
    bool is_operator;
    bool is_listed_worker; /* may register nodes */
    bool is_viewer;        /* may look, not act */
    struct listen_peer who;
    int64_t since_us, used_us; /* connected; last frame */
    struct cluster_node *node; /* worker: after Register */
    bool has_rank;             /* rank: after Join */
    uint64_t job;
    uint32_t attempt, rank;
    struct list streams, calls;
    uint32_t n_streams;
    uint32_t n_open; /* client: requests that wait for their last answer */
    bool is_held;    /* client: no further requests are read for now */
};

/* Something that goes on sending to a peer: logs, weights, status. Freed by
 * its owner in ended(), which is called once, also when the peer is gone. */
struct stream {
    struct list link; /* of the peer */
    struct peer *peer;
    uint32_t call;
    void (*drained)(struct stream *stream);
    void (*ended)(struct stream *stream);
};

/* message is borrowed and of the type that the handler's row names. */
typedef void handler_fn(struct peer *peer, uint32_t call, const ProtobufCMessage *message);

int server_create(struct daemon *daemon, struct server **ret_server, struct gems_error *err);
void server_destroy(struct server *server); /* closes all peers */
void server_tick(struct server *server);
/* TCP port in use, 0: none. */
uint16_t server_port(const struct server *server);

struct peer *server_peer(struct server *server, uint64_t id); /* NULL: gone */

/* As rpc_send; a gone peer is no error here. */
int peer_send(struct peer *peer, enum msg_type type, uint16_t flags, uint32_t call,
              const ProtobufCMessage *message);
void peer_reply(struct peer *peer, uint32_t call, enum msg_type type,
                const ProtobufCMessage *message);
void peer_ok(struct peer *peer, uint32_t call);
void peer_error(struct peer *peer, uint32_t call, const struct gems_error *err);
/* Sends what is queued, then closes. */
void peer_finish(struct peer *peer);

/* Asks the peer. done is called once: with the answer, or NULL and err when
 * the peer is gone or answers with an error or too late. */
typedef void peer_answer_fn(void *arg, const ProtobufCMessage *answer,
                            const struct gems_error *err);
int peer_call(struct peer *peer, enum msg_type type, const ProtobufCMessage *message,
              uint64_t timeout_ms, peer_answer_fn *done, void *arg, struct gems_error *err);

/* GEMS_E_STATE if the peer has too many. */
int stream_begin(struct stream *stream, struct peer *peer, uint32_t call, struct gems_error *err);
void stream_end(struct stream *stream); /* calls ended() */

/* GEMS_E_DENIED unless the peer owns what user owns, or is an operator. */
int peer_may_act(const struct peer *peer, const char *user, struct gems_error *err);

#endif
