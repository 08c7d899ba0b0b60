/* Who waits for (source, tag): the table of posted receives, and the table of
 * messages that came before theirs.
 *
 * Items are embedded in the caller's structs, so that the tables allocate only
 * when they are made. Items with equal source and tag leave in the order in
 * which they came. One thread, or the caller's lock.
 */
#ifndef GEMS_WORKER_NET_MATCH_H
#define GEMS_WORKER_NET_MATCH_H

#include <stdbool.h>
#include <stdint.h>

struct gems_error;

struct match_item {
    struct match_item *next;
    uint64_t tag;
    uint32_t source;
};

struct match_bucket {
    struct match_item *first, *last;
};

struct match_table {
    struct match_bucket *buckets;
    uint32_t n_buckets; /* a power of two */
    uint32_t n_items;
};

int net_match_init(struct match_table *table, struct gems_error *err);
void net_match_fini(struct match_table *table); /* items are the caller's */

/* source and tag of the item are set. */
void net_match_push(struct match_table *table, struct match_item *item);
/* The oldest item with this key, taken out; NULL if there is none. */
struct match_item *net_match_take(struct match_table *table, uint32_t source, uint64_t tag);
/* Any item of the source, taken out, the oldest of its tag; NULL if there is none. */
struct match_item *match_take_source(struct match_table *table, uint32_t source);

#endif
