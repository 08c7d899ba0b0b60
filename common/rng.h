/* Counter-based random numbers (Philox 4x32-10; Salmon et al., SC11).
 *
 * A number is a pure function of (seed, stream, index): initial weights,
 * shuffles, augmentation and dropout do not depend on who draws them, on how
 * many threads or ranks there are, or on a restart. Thread-safe (no state).
 */
#ifndef GEMS_COMMON_RNG_H
#define GEMS_COMMON_RNG_H

#include <stdint.h>

/* Independent streams of one seed. The low bits may carry a key of their own
 * (epoch, hash of a tensor's name): use rng_stream(). */
enum rng_use { RNG_INIT = 1, RNG_SHUFFLE = 2, RNG_AUGMENT = 3, RNG_DROPOUT = 4, RNG_SYNTHETIC = 5 };

/* Names the stream `key` of a use. */
uint64_t rng_stream(enum rng_use use, uint64_t key);

/* 64 uniform random bits at a position. */
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform in [0, n), n > 0, without modulo bias worth naming (128-bit product). */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);

/* Uniform in [0, 1), 53 bits. */
double rng_unit(uint64_t seed, uint64_t stream, uint64_t index);

/* Standard normal (Box-Muller on two uniforms of the same position). */
double rng_normal(uint64_t seed, uint64_t stream, uint64_t index);

#endif
