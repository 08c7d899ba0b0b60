/* Messages between the ranks of an attempt.
 *
 * A message is (source rank, tag, bytes). The receiver says where it goes:
 * bytes land in the final place, never in between, unless a small message
 * comes before its receive is posted. Matching is exact by (source, tag); two
 * messages with equal source and tag match in order.
 *
 * A net belongs to one thread (the communication thread). Callbacks run inside
 * progress() and must not call progress(). A buffer belongs to the net from
 * send() or recv() to its callback. After an error on a peer every request of
 * that peer ends with GEMS_E_PEER; the attempt is over, nothing is retried, and
 * the buffers of these requests stay untouched until the net is closed.
 *
 * Authentication: each side proves it knows the attempt's secret in a HELLO
 * before anything else is taken; the HELLO derives a 64-bit cookie per
 * direction, which every later header carries together with job, attempt and
 * source. Whatever does not match is dropped and counted, before a byte lands.
 */
#ifndef GEMS_WORKER_NET_NET_H
#define GEMS_WORKER_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gems_error;
struct net;

enum { NET_SECRET_BYTES = 32, NET_MAX_ADDRESS = 2048 };

/* Called once per request: status 0 or negative. */
typedef void (*net_done_fn)(void *arg, int status);

struct net_config {
    uint64_t job;
    uint32_t attempt;
    uint32_t rank, n_ranks;
    uint8_t secret[NET_SECRET_BYTES];
};

struct net_counters {
    uint64_t bytes_out, bytes_in, messages_out, messages_in, dropped;
};

struct net_ops {
    const char *name; /* "ucx", "local" */
    /* open makes the endpointless net; address is what peers need. */
    int (*open)(struct net **ret_net, struct gems_error *err);
    void (*close)(struct net *net);
    int (*address)(struct net *net, uint8_t *ret_address, size_t *inout_bytes,
                   struct gems_error *err);
    /* Library version and whatever must be equal among peers: "ucx 1.13.1". */
    const char *(*version)(void);
    /* Starts endpoints to all peers (addresses[i], own entry ignored) and the
     * HELLO exchange; done() comes when every peer is proven, or with an error
     * that says which peer failed (net_error). */
    int (*connect)(struct net *net, const struct net_config *config,
                   const uint8_t *const *addresses, const size_t *bytes, net_done_fn done,
                   void *arg, struct gems_error *err);
    int (*send)(struct net *net, uint32_t to, uint64_t tag, const void *buffer, uint64_t bytes,
                net_done_fn done, void *arg, struct gems_error *err);
    /* A message of another length than `bytes` ends the request with GEMS_E_PEER. */
    int (*recv)(struct net *net, uint32_t from, uint64_t tag, void *buffer, uint64_t bytes,
                net_done_fn done, void *arg, struct gems_error *err);
    /* Makes progress until nothing happens; returns the number of events. */
    int (*progress)(struct net *net);
    /* Descriptor that becomes readable when progress() has work; arm() before
     * sleeping on it: 0 sleep, 1 there is work: call progress() again. */
    int (*fd)(struct net *net);
    int (*arm)(struct net *net);
    /* First error of a peer, for messages: "rank 2 (address): endpoint timeout". */
    const char *(*peer_error)(struct net *net);
    void (*counters)(struct net *net, struct net_counters *ret_counters);
};

extern const struct net_ops net_local; /* in-process: ranks are threads of one process */
extern const struct net_ops net_ucx;   /* only in builds with UCX: reach it by net_find */

/* NULL and an error that lists what this build has. */
const struct net_ops *net_find(const char *name, struct gems_error *err);

#endif
