/* The hub of the in-process transport: all nets of the process under one lock.
 *
 * Whoever completes a pair (sender or receiver) copies from the sender's buffer
 * to the receiver's and queues both completions at their owners, whose threads
 * call back in progress(). A net that leaves takes its own messages back and
 * ends those of its peers. Every function here takes the lock.
 */
#ifndef GEMS_WORKER_NET_LOCAL_HUB_H
#define GEMS_WORKER_NET_LOCAL_HUB_H

#include "worker/net/match.h"
#include "worker/net/net.h"
#include "worker/net/pool.h"

/* A send or a receive. */
struct local_item {
    struct match_item match; /* first member; source is the sender's rank in both */
    struct local_item *next; /* in owner's finished or in the receiver's delayed list */
    struct net *owner;
    void *into;
    const void *from;
    uint64_t bytes;
    net_done_fn done;
    void *arg;
    int status;
    int64_t due_ns;
};

struct local_list {
    struct local_item *first, *last;
};

enum peer_state { PEER_WAITED_FOR, PEER_PROVEN, PEER_REFUSED, PEER_GONE };

struct local_peer {
    struct net *net; /* NULL: closed, or never there */
    enum peer_state state;
};

struct net {
    struct net *next; /* in the hub */
    uint64_t key;
    int epoll_fd, event_fd, timer_fd;
    bool is_signalled;

    struct net_config config;
    struct local_peer *peers; /* NULL before connect */
    uint32_t n_unproven;
    net_done_fn connect_done;
    void *connect_arg;
    int connect_status; /* 1 while it goes on */
    bool is_connect_told;

    struct pool pool; /* taken from and given to by the owner's thread only */
    struct match_table posted, arrived;
    struct local_list finished, delayed; /* delayed: messages to this net, by due_ns */
    struct net_counters counters;
    char error[512]; /* of the first failed peer; then read-only */
};

void hub_join(struct net *net);
void hub_leave(struct net *net);
/* Takes peers (config->n_ranks of them, zeroed). */
void hub_connect(struct net *net, const struct net_config *config, struct local_peer *peers,
                 const uint8_t *const *addresses, const size_t *bytes, net_done_fn done, void *arg);
void hub_send(struct net *net, uint32_t to, struct local_item *item);
void hub_recv(struct net *net, uint32_t from, struct local_item *item);
/* What has ended since the last call; *ret_connect is 1 while connect() goes on
 * or has been told, else its status. */
struct local_item *hub_collect(struct net *net, int *ret_connect);
/* Whether hub_collect would find something; else the time of the next message
 * that is held back (0: none). */
bool hub_has_work(struct net *net, int64_t *ret_due_ns);
const char *hub_peer_error(struct net *net);
void hub_counters(struct net *net, struct net_counters *ret_counters);

#endif
