#include "worker/net/pool.h"

#include <stdlib.h>

enum { OBJECTS_PER_BLOCK = 64, ALIGNMENT = 16 };

void pool_init(struct pool *pool, size_t object_bytes, uint32_t max_objects)
{
    pool->free = NULL;
    pool->blocks = NULL;
    pool->object_bytes = (object_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    pool->n_objects = 0;
    pool->max_objects = max_objects;
}

void pool_fini(struct pool *pool)
{
    while (pool->blocks) {
        struct pool_free *block = pool->blocks;

        pool->blocks = block->next;
        free(block);
    }
    pool->free = NULL;
    pool->n_objects = 0;
}

static void pool_grow(struct pool *pool)
{
    char *block;

    if (pool->n_objects >= pool->max_objects) {
        return;
    }
    /* The first ALIGNMENT bytes of a block chain the blocks. */
    block = aligned_alloc(ALIGNMENT, ALIGNMENT + OBJECTS_PER_BLOCK * pool->object_bytes);
    if (!block) {
        return;
    }
    ((struct pool_free *)block)->next = pool->blocks;
    pool->blocks = (struct pool_free *)block;
    pool->n_objects += OBJECTS_PER_BLOCK;
    for (size_t i = 0; i < OBJECTS_PER_BLOCK; i++) {
        pool_give(pool, block + ALIGNMENT + i * pool->object_bytes);
    }
}

void *pool_take(struct pool *pool)
{
    struct pool_free *object;

    if (!pool->free) {
        pool_grow(pool);
    }
    object = pool->free;
    if (object) {
        pool->free = object->next;
    }
    return object;
}

void pool_give(struct pool *pool, void *object)
{
    struct pool_free *entry = object;

    entry->next = pool->free;
    pool->free = entry;
}
