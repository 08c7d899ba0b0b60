/* The communication thread of a rank: owns the net and an event loop on which
 * the control connection to gemsd lives too.
 *
 * The compute thread hands over sends and receives through a fixed ring and
 * an eventfd (no allocation, no lock) and waits for a request with
 * link_wait. The thread sleeps on the net's descriptor; it spins only if told
 * that it has a core of its own.
 */
#ifndef GEMS_WORKER_RANK_LINK_H
#define GEMS_WORKER_RANK_LINK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "worker/net/net.h"

struct event_base;
struct ledger;
struct link;

/* Owned by the compute thread, reused step after step. */
struct link_request {
    _Atomic int state; /* LINK_IDLE, LINK_BUSY, LINK_DONE */
    int status;        /* valid when LINK_DONE */
    /* filled by link_send and link_recv */
    bool is_send;
    uint32_t peer;
    uint64_t tag, bytes;
    void *buffer;
    struct link *link;
};
enum { LINK_IDLE, LINK_BUSY, LINK_DONE };

/* Opens the net; the thread starts with link_start. max_requests bounds the
 * requests in flight. */
int link_create(const struct net_ops *ops, uint32_t max_requests, bool is_spinning,
                struct link **ret_link, struct gems_error *err);
int link_start(struct link *link, struct gems_error *err);
/* Stops the thread, closes the net. */
void link_destroy(struct link *link);

struct event_base *link_base(struct link *link);
struct net *link_net(struct link *link);

/* Runs fn(arg) on the communication thread soon (allocates; not in a step). */
int link_post(struct link *link, void (*fn)(void *arg), void *arg);

/* Connects to all peers and waits for the proof of each. Compute thread. */
int link_connect(struct link *link, const struct net_config *config,
                 const uint8_t *const *addresses, const size_t *bytes, double timeout_s,
                 struct gems_error *err);

void link_send(struct link *link, struct link_request *request, uint32_t peer, uint64_t tag,
               const void *buffer, uint64_t bytes);
void link_recv(struct link *link, struct link_request *request, uint32_t peer, uint64_t tag,
               void *buffer, uint64_t bytes);
bool link_done(const struct link_request *request);
/* Blocks until done (or link_abort); leaves the request LINK_IDLE. */
int link_wait(struct link_request *request, struct gems_error *err);

/* The compute thread's time in link_wait counts as a wait. ledger NULL: nobody counts. */
void link_count_waits(struct link *link, struct ledger *ledger);

/* Ends all waits, now and later, with status and text; any thread. Requests in
 * flight stay LINK_BUSY: they and their buffers must live until link_destroy. */
void link_abort(struct link *link, int status, const char *text);

#endif
