#include "common/rng.h"

#include <math.h>

/* Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
 * easy as 1, 2, 3", SC11, section 3.3 and its published constants. */
static void philox(uint32_t counter[4], uint32_t key0, uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * counter[0];
        uint64_t p1 = (uint64_t)0xCD9E8D57u * counter[2];
        uint32_t next0 = (uint32_t)(p1 >> 32) ^ counter[1] ^ key0;
        uint32_t next2 = (uint32_t)(p0 >> 32) ^ counter[3] ^ key1;

        counter[0] = next0;
        counter[1] = (uint32_t)p1;
        counter[2] = next2;
        counter[3] = (uint32_t)p0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

static void draw(uint64_t seed, uint64_t stream, uint64_t index, uint64_t ret_bits[2])
{
    uint32_t counter[4] = { (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                            (uint32_t)(stream >> 32) };

    philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    ret_bits[0] = (uint64_t)counter[1] << 32 | counter[0];
    ret_bits[1] = (uint64_t)counter[3] << 32 | counter[2];
}

static double unit_of(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

uint64_t rng_stream(enum rng_use use, uint64_t key)
{
    return (uint64_t)use << 56 ^ key;
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t bits[2];

    draw(seed, stream, index, bits);
    return bits[0];
}

uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)rng_u64(seed, stream, index) * n) >> 64);
}

double rng_unit(uint64_t seed, uint64_t stream, uint64_t index)
{
    return unit_of(rng_u64(seed, stream, index));
}

double rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t bits[2];

    draw(seed, stream, index, bits);
    /* 1 - u lies in (0, 1]: its logarithm is finite. */
    return sqrt(-2.0 * log(1.0 - unit_of(bits[0]))) * cos(2.0 * M_PI * unit_of(bits[1]));
}
