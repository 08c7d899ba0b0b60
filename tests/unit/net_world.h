/* Ranks as threads of the test, each with its own link: what every transport
 * must do, written once. */
#ifndef GEMS_TESTS_UNIT_NET_WORLD_H
#define GEMS_TESTS_UNIT_NET_WORLD_H

#include "common/error.h"
#include "worker/net/net.h"
#include "worker/rank/link.h"

enum { WORLD_MAX_RANKS = 8 };

struct world_rank {
    struct world *world;
    uint32_t rank;
    struct link *link;
    struct net_config config; /* a test may spoil it before world_connect */
    int status;               /* of the last world_run */
    struct gems_error err;
};

struct world {
    const struct net_ops *ops;
    uint32_t n_ranks;
    struct world_rank ranks[WORLD_MAX_RANKS];
    uint8_t addresses[WORLD_MAX_RANKS][NET_MAX_ADDRESS];
    const uint8_t *address[WORLD_MAX_RANKS];
    size_t address_bytes[WORLD_MAX_RANKS];
    double connect_timeout_s;
    uint64_t seed;
    uint32_t n_messages, max_bytes;
    int (*body)(struct world_rank *rank); /* of the running world_run */
};

/* Links with threads and known addresses; not connected. Fails the test on error. */
void world_create(struct world *world, const struct net_ops *ops, uint32_t n_ranks,
                  bool is_spinning);
void world_destroy(struct world *world);
/* body on a thread per rank; its results in ranks[].status. */
void world_run(struct world *world, int (*body)(struct world_rank *rank));
/* world_run of link_connect; the statuses are the caller's to check. */
void world_connect(struct world *world);
void world_check_all_ok(const struct world *world);

/* A body: n_messages to and from every peer, sizes up to max_bytes, in an order
 * that differs between senders and receivers; contents checked. */
int world_exchange(struct world_rank *rank);

/* Contents of a message. */
void world_fill(void *buffer, uint64_t bytes, uint32_t from, uint32_t to, uint64_t index);
/* 0, or GEMS_E_INTERNAL with the first wrong byte. */
int world_verify(const void *buffer, uint64_t bytes, uint32_t from, uint32_t to, uint64_t index,
                 struct gems_error *err);

/* What each transport must do; world of 2 or more ranks of the transport. */
void world_case_exchange(const struct net_ops *ops, uint32_t n_ranks, uint32_t n_messages,
                         uint32_t max_bytes);
void world_case_order(const struct net_ops *ops);
void world_case_early_message(const struct net_ops *ops);
void world_case_wrong_length(const struct net_ops *ops);
void world_case_refused(const struct net_ops *ops, void (*spoil)(struct net_config *config));
void world_case_peer_leaves(const struct net_ops *ops);

/* Not one on a communication thread once warm; link with --wrap=malloc, calloc,
 * realloc and aligned_alloc, which counts what our own code asks for. */
void world_case_no_allocations(const struct net_ops *ops);

#endif
