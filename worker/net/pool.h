/* Equal-sized objects that are taken and given back without the allocator.
 *
 * Grows by whole blocks when it is empty, up to a limit, and never shrinks: a
 * steady state allocates nothing. One thread, or the caller's lock.
 */
#ifndef GEMS_WORKER_NET_POOL_H
#define GEMS_WORKER_NET_POOL_H

#include <stddef.h>
#include <stdint.h>

struct pool_free {
    struct pool_free *next;
};

struct pool {
    struct pool_free *free;
    struct pool_free *blocks;
    size_t object_bytes;
    uint32_t n_objects, max_objects;
};

/* object_bytes: at least a pointer. The first block is taken with the first object. */
void pool_init(struct pool *pool, size_t object_bytes, uint32_t max_objects);
/* Frees the memory of all objects, given back or not. */
void pool_fini(struct pool *pool);
/* Contents undefined. NULL at the limit or without memory. */
void *pool_take(struct pool *pool);
void pool_give(struct pool *pool, void *object);

#endif
