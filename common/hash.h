/* Hashes, keyed hashes, random bytes.
 *
 * XXH3-128 guards against damage (checkpoint blocks, weights); SHA-256 and
 * HMAC-SHA-256 against people (tokens, hello of the ranks). Results are bytes
 * in their canonical (big-endian) order. Any thread; a stream has one owner.
 */
#ifndef GEMS_COMMON_HASH_H
#define GEMS_COMMON_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gems_error;
struct hash_stream;

enum { HASH_BYTES = 16, HASH_HEX_BYTES = 33, HASH_SHA256_BYTES = 32, HASH_SHA256_HEX_BYTES = 65 };

/* XXH3-128 of a buffer. */
void hash_of(const void *data, size_t n, uint8_t ret_hash[HASH_BYTES]);

/* XXH3-128 of data that comes in pieces; equal to hash_of the whole. */
struct hash_stream *hash_create(struct gems_error *err);
void hash_destroy(struct hash_stream *stream);
void hash_add(struct hash_stream *stream, const void *data, size_t n);
/* Hash of all so far; the stream may go on. */
void hash_value(const struct hash_stream *stream, uint8_t ret_hash[HASH_BYTES]);

/* GEMS_E_INTERNAL if OpenSSL refuses. */
int hash_sha256(const void *data, size_t n, uint8_t ret_hash[HASH_SHA256_BYTES], struct gems_error *err);
int hash_hmac_sha256(const void *key, size_t n_key, const void *data, size_t n,
                     uint8_t ret_hash[HASH_SHA256_BYTES], struct gems_error *err);

/* Compares in a time that depends on n alone. */
bool hash_equal(const void *a, const void *b, size_t n);

/* From the kernel; waits only before its pool is ready, early in boot. */
int hash_random(void *data, size_t n, struct gems_error *err);

/* Lower-case digits and NUL: 2n + 1 characters. */
void hash_to_hex(const void *data, size_t n, char *ret_hex);
/* Exactly 2n digits, either case. GEMS_E_INVALID. */
int hash_from_hex(const char *hex, void *ret_data, size_t n, struct gems_error *err);

#endif
