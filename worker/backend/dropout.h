/* Which values a dropout keeps: one definition for all back ends.
 *
 * A decision follows from (seed, epoch, sample, name of the node, element in
 * [c][h][w] order): it is the same on every rank, under every layout, and when
 * a forward pass is run again. Epoch and node choose a key, sample and element
 * a position under it.
 */
#ifndef GEMS_WORKER_BACKEND_DROPOUT_H
#define GEMS_WORKER_BACKEND_DROPOUT_H

#include "common/rng.h"
#include "worker/backend/backend.h"

static inline uint64_t dropout_key(const struct node *node, const struct be_draw *draw)
{
    return rng_u64(draw->seed, rng_stream(RNG_DROPOUT, node_key(node)), draw->epoch);
}

/* Factor of the value at `position` = sample * elements of a sample + element. */
static inline double dropout_factor(uint64_t key, uint64_t position, double rate)
{
    return rng_unit(key, rng_stream(RNG_DROPOUT, 0), position) < rate ? 0.0 : 1.0 / (1.0 - rate);
}

#endif
