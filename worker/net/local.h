/* Knobs of the in-process transport, for tests of what sits above it. */
#ifndef GEMS_WORKER_NET_LOCAL_H
#define GEMS_WORKER_NET_LOCAL_H

#include <stdint.h>

/* Every message sent from now on arrives up to max_us late, by a random number
 * of the seed; messages of different (source, tag) overtake each other, equal
 * ones never do. max_us 0 ends it. Process-wide, any thread. */
void net_local_set_delays(uint64_t seed, uint32_t max_us);

#endif
