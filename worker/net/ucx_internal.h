/* Shared parts of the transport over UCX. One thread (see net.h).
 *
 * Three active messages: HELLO (ucx_hello.c), MESSAGE (ucx_match.c), and BYE from
 * a side that closes, because UCX itself notices only the end of a process.
 * Their handlers and all UCX callbacks only note what happened; the caller's
 * functions run after ucp_worker_progress has returned, so that they may send,
 * receive and see failed peers without re-entering UCX.
 *
 * An item that UCX holds is in flight. When its peer fails the caller is told at
 * once, because UCX 1.13 never ends some pulls from a process that died; the
 * item itself stays until UCX calls back or the net closes.
 *
 * Written against UCX 1.13, where an active message's header must stay in place
 * until the send completes: it lives in the item of the send.
 */
#ifndef GEMS_WORKER_NET_UCX_INTERNAL_H
#define GEMS_WORKER_NET_UCX_INTERNAL_H

#include <ucp/api/ucp.h>

#include "common/list.h"
#include "worker/net/match.h"
#include "worker/net/net.h"
#include "worker/net/pool.h"

enum { UCX_AM_HELLO = 1, UCX_AM_MESSAGE = 2, UCX_AM_BYE = 3 };
enum { UCX_MAC_BYTES = 32, UCX_NONCE_BYTES = 32, UCX_VERSION_BYTES = 32 };

/* Goes before every message. Host byte order: peers of another one would not
 * pass HELLO, whose magic number is in it. */
struct ucx_header {
    uint64_t cookie;
    uint64_t job;
    uint32_t attempt;
    uint32_t source;
    uint64_t tag;
    uint64_t bytes;
};

enum ucx_hello_kind { UCX_HELLO_NONCE = 1, UCX_HELLO_PROOF = 2 };

struct ucx_hello {
    uint64_t magic;
    uint32_t kind;
    uint32_t attempt;
    uint64_t job;
    uint32_t from, to, n_ranks, zero;
    char version[UCX_VERSION_BYTES];
    uint8_t nonce[UCX_NONCE_BYTES]; /* the sender's */
    uint8_t mac[UCX_MAC_BYTES];
};

struct ucx_item {
    struct match_item match; /* first member */
    struct ucx_item *next;   /* in the list of the finished */
    struct net *net;
    void *buffer; /* of a receive */
    uint64_t bytes;
    net_done_fn done;
    void *arg;
    int status;
    struct list flight; /* of the peer, while UCX holds the item */
    bool is_in_flight, is_finished, is_told;
    void *data;               /* message before its receive: UCX's descriptor, NULL if empty */
    bool is_rndv;             /* of data: the bytes are still with the sender */
    struct ucx_header header; /* of a send */
};

struct ucx_peer {
    struct net *net;
    uint32_t rank;
    ucp_ep_h ep;
    bool has_nonce; /* of the peer: cookie_in and cookie_out are valid */
    bool is_proven;
    bool is_failing; /* told by UCX; handled after progress */
    bool is_failed;
    ucs_status_t reason;
    struct list flights; /* items that UCX will call back for, or should */
    uint64_t cookie_in, cookie_out;
    uint8_t nonce[UCX_NONCE_BYTES];
    struct ucx_hello hello, proof; /* outgoing; in place until sent */
    struct ucx_header bye;
};

struct net {
    ucp_context_h context;
    ucp_worker_h worker;
    int fd;

    struct net_config config; /* n_ranks 0 before connect; secret wiped after it */
    struct ucx_peer *peers;
    uint32_t n_unproven;
    uint8_t nonce[UCX_NONCE_BYTES];
    struct ucx_hello *early; /* HELLOs that came before connect */
    uint32_t n_early;
    net_done_fn connect_done; /* NULL once told */
    void *connect_arg;
    int connect_status; /* 1: goes on */

    struct pool pool;
    struct match_table posted, arrived;
    uint64_t arrived_bytes; /* held by UCX for messages before their receive */
    struct ucx_item *first_finished, *last_finished;
    bool has_failing_peer, is_closing;
    struct net_counters counters;
    char error[512];
};

/* ---- ucx_peer.c ---- */
int ucx_connect(struct net *net, const struct net_config *config, const uint8_t *const *addresses,
                const size_t *bytes, net_done_fn done, void *arg, struct gems_error *err);
/* Ends connect() with a status; once. */
void ucx_connect_end(struct net *net, int status);
/* Keeps the first text for net_error. */
void ucx_note(struct net *net, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Marks the peer; its requests end in ucx_handle_failures. */
void ucx_peer_fail(struct ucx_peer *peer, ucs_status_t reason);
/* Not inside ucp_worker_progress. Returns the number of peers handled. */
int ucx_handle_failures(struct net *net);
ucs_status_t ucx_on_bye(void *arg, const void *header, size_t header_bytes, void *data,
                        size_t bytes, const ucp_am_recv_param_t *param);
/* Closes all endpoints, sent data and BYE first, for at most a second. */
void ucx_disconnect(struct net *net);
const char *ucx_peer_error(struct net *net);

/* ---- ucx_hello.c ---- */
ucs_status_t ucx_on_hello(void *arg, const void *header, size_t header_bytes, void *data,
                          size_t bytes, const ucp_am_recv_param_t *param);
int ucx_hello_start(struct net *net, struct gems_error *err);

/* ---- ucx_match.c ---- */
ucs_status_t ucx_on_message(void *arg, const void *header, size_t header_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param);
int ucx_send(struct net *net, uint32_t to, uint64_t tag, const void *buffer, uint64_t bytes,
             net_done_fn done, void *arg, struct gems_error *err);
int ucx_recv(struct net *net, uint32_t from, uint64_t tag, void *buffer, uint64_t bytes,
             net_done_fn done, void *arg, struct gems_error *err);
/* The peer that has the right to send this header, or NULL. */
struct ucx_peer *ucx_message_source(struct net *net, const struct ucx_header *h, size_t bytes);
struct ucx_header ucx_header_to(const struct ucx_peer *peer, uint64_t tag, uint64_t bytes);
/* The caller's function is about to run: gives the item back when UCX is done with it. */
void ucx_item_told(struct ucx_item *item);
/* Ends the requests of a failed peer and gives back what it had only announced. */
void ucx_match_drop_peer(struct net *net, uint32_t rank);
/* Gives back all that UCX holds for us. */
void ucx_match_drop_all(struct net *net);

#endif
