#include "worker/net/match.h"

#include <stdlib.h>

#include "common/error.h"

enum { N_BUCKETS = 256 };

int net_match_init(struct match_table *table, struct gems_error *err)
{
    table->n_items = 0;
    table->n_buckets = N_BUCKETS;
    table->buckets = calloc(N_BUCKETS, sizeof *table->buckets);
    if (!table->buckets) {
        return gems_error_set(err, GEMS_E_NOMEM, "table of messages: no memory");
    }
    return 0;
}

void net_match_fini(struct match_table *table)
{
    free(table->buckets);
    table->buckets = NULL;
    table->n_items = 0;
}

/* Tags are packed fields (chain, edge, micro-batch): all bits must count. */
static struct match_bucket *match_bucket_of(const struct match_table *table, uint32_t source,
                                            uint64_t tag)
{
    uint64_t h = (tag ^ ((uint64_t)source << 40)) * UINT64_C(0x9e3779b97f4a7c15);

    return &table->buckets[(h >> 32) & (table->n_buckets - 1)];
}

void net_match_push(struct match_table *table, struct match_item *item)
{
    struct match_bucket *bucket = match_bucket_of(table, item->source, item->tag);

    item->next = NULL;
    if (bucket->last) {
        bucket->last->next = item;
    } else {
        bucket->first = item;
    }
    bucket->last = item;
    table->n_items++;
}

static void match_unlink(struct match_table *table, struct match_bucket *bucket,
                         struct match_item *before, struct match_item *item)
{
    if (before) {
        before->next = item->next;
    } else {
        bucket->first = item->next;
    }
    if (bucket->last == item) {
        bucket->last = before;
    }
    table->n_items--;
}

struct match_item *net_match_take(struct match_table *table, uint32_t source, uint64_t tag)
{
    struct match_bucket *bucket = match_bucket_of(table, source, tag);
    struct match_item *before = NULL;

    for (struct match_item *item = bucket->first; item; before = item, item = item->next) {
        if (item->source == source && item->tag == tag) {
            match_unlink(table, bucket, before, item);
            return item;
        }
    }
    return NULL;
}

struct match_item *match_take_source(struct match_table *table, uint32_t source)
{
    for (uint32_t i = 0; table->n_items > 0 && i < table->n_buckets; i++) {
        struct match_bucket *bucket = &table->buckets[i];
        struct match_item *before = NULL;

        for (struct match_item *item = bucket->first; item; before = item, item = item->next) {
            if (item->source == source) {
                match_unlink(table, bucket, before, item);
                return item;
            }
        }
    }
    return NULL;
}
