/* Nodes and their devices: who is there, who is silent, who is to be left alone.
 *
 * A node is what an agent registered; it is known by name and outlives the
 * agent's connection. Silence makes it suspect, then lost, but only if its
 * ranks are silent too: a rank dies with its agent, so a rank that talks
 * proves that the agent lives. Thread: the loop.
 */
#ifndef GEMS_DAEMON_NODES_H
#define GEMS_DAEMON_NODES_H

#include "daemon/jobs.h"
#include "daemon/server.h"

enum node_state { NODE_ONLINE, NODE_SUSPECT, NODE_LOST };

struct device {
    char id[STORE_NAME_BYTES], kind[16];
    uint64_t memory_bytes;
    uint32_t threads;
    uint64_t job; /* that holds it, 0: free */
};

struct cluster_node {
    struct list link;
    char name[STORE_NAME_BYTES], version[32], boot_id[64], kind_cpu[128], user[64];
    struct peer *peer; /* NULL: no connection */
    uint64_t instance; /* of the agent process that registered last */
    enum node_state state;
    bool is_drained;
    char reason[256];    /* of the drain */
    int64_t deadline_us; /* monotonic: jobs are moved away then; 0: never */
    int64_t seen_us;
    uint32_t n_devices;
    struct device *devices; /* owned */
    uint32_t n_strays;      /* ranks of attempts that are over, told to end */
};

struct cluster_node *nodes_find(struct daemon *daemon, const char *name);
/* NULL: unknown. */
struct device *nodes_device(struct cluster_node *node, const char *id);
/* New jobs may be placed there. */
bool node_is_usable(const struct cluster_node *node);
const char *node_state_name(const struct cluster_node *node);

void nodes_reserve(struct daemon *daemon, const struct job *job);
void nodes_release(struct daemon *daemon, const struct job *job, const struct store_rank *place);
/* All that a job holds: it has no ranks any more, or never got them. */
void nodes_release_all(struct daemon *daemon, const struct job *job);

/* The agent's connection is gone. */
void nodes_peer_closed(struct cluster_node *node);
void nodes_tick(struct daemon *daemon);
/* After a stretch in which gemsd itself did not run: nobody was silent. */
void nodes_forgive(struct daemon *daemon, int64_t gap_us);
void nodes_destroy_all(struct daemon *daemon);
/* Nodes that are drained in the store. */
int nodes_load(struct daemon *daemon, struct gems_error *err);

#endif
