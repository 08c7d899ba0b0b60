/* Order of the samples of an epoch.
 *
 * A permutation of [0, n) without a table: a Feistel network permutes the
 * numbers of an even count of bits, and a result of n or above is permuted
 * again until it is below (Black and Rogaway, "Ciphers with arbitrary finite
 * domains", 2002: cycle walking). Fewer than four turns on average, since the
 * domain is less than 4n.
 */
#include "worker/data/loader.h"

#include "common/rng.h"

enum { ROUNDS = 6 };

static uint64_t feistel(uint64_t seed, uint64_t stream, unsigned half, uint64_t value)
{
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = value >> half, right = value & mask;

    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t mixed = left ^ (rng_u64(seed, stream, round << 32 | right) & mask);

        left = right;
        right = mixed;
    }
    return left << half | right;
}

uint64_t loader_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t position)
{
    uint64_t stream = rng_stream(RNG_SHUFFLE, epoch), value = position;
    unsigned half = 1;

    /* Sample counts stay below 2^62, and halves below 2^32. */
    while (half < 31 && UINT64_C(1) << 2 * half < n) {
        half++;
    }
    do {
        value = feistel(seed, stream, half, value);
    } while (value >= n);
    return value;
}
