#include "common/hash.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "common/error.h"

struct hash_stream {
    XXH3_state_t *state;
};

static void canonical(XXH128_hash_t value, uint8_t ret_hash[HASH_BYTES])
{
    XXH128_canonical_t bytes;

    XXH128_canonicalFromHash(&bytes, value);
    memcpy(ret_hash, bytes.digest, HASH_BYTES);
}

void hash_of(const void *data, size_t n, uint8_t ret_hash[HASH_BYTES])
{
    canonical(XXH3_128bits(data, n), ret_hash);
}

struct hash_stream *hash_create(struct gems_error *err)
{
    struct hash_stream *stream = calloc(1, sizeof *stream);

    if (stream) {
        stream->state = XXH3_createState();
    }
    if (!stream || !stream->state) {
        gems_error_set(err, GEMS_E_NOMEM, "hash: no memory");
        hash_destroy(stream);
        return NULL;
    }
    XXH3_128bits_reset(stream->state);
    return stream;
}

void hash_destroy(struct hash_stream *stream)
{
    if (stream) {
        XXH3_freeState(stream->state);
        free(stream);
    }
}

void hash_add(struct hash_stream *stream, const void *data, size_t n)
{
    if (n > 0) {
        XXH3_128bits_update(stream->state, data, n);
    }
}

void hash_value(const struct hash_stream *stream, uint8_t ret_hash[HASH_BYTES])
{
    canonical(XXH3_128bits_digest(stream->state), ret_hash);
}

int hash_sha256(const void *data, size_t n, uint8_t ret_hash[HASH_SHA256_BYTES], struct gems_error *err)
{
    if (EVP_Digest(data, n, ret_hash, NULL, EVP_sha256(), NULL) != 1) {
        return gems_error_set(err, GEMS_E_INTERNAL, "sha256: refused by OpenSSL");
    }
    return GEMS_OK;
}

int hash_hmac_sha256(const void *key, size_t n_key, const void *data, size_t n,
                     uint8_t ret_hash[HASH_SHA256_BYTES], struct gems_error *err)
{
    unsigned n_hash = 0;

    if (n_key > INT32_MAX || !HMAC(EVP_sha256(), key, (int)n_key, data, n, ret_hash, &n_hash) ||
        n_hash != HASH_SHA256_BYTES) {
        return gems_error_set(err, GEMS_E_INTERNAL, "hmac-sha256: refused by OpenSSL");
    }
    return GEMS_OK;
}

bool hash_equal(const void *a, const void *b, size_t n)
{
    return CRYPTO_memcmp(a, b, n) == 0;
}

int hash_random(void *data, size_t n, struct gems_error *err)
{
    uint8_t *at = data;

    while (n > 0) {
        ssize_t got = getrandom(at, n, 0);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return gems_error_errno(err, errno, "random bytes");
        }
        at += got;
        n -= (size_t)got;
    }
    return GEMS_OK;
}

void hash_to_hex(const void *data, size_t n, char *ret_hex)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *bytes = data;

    for (size_t i = 0; i < n; i++) {
        ret_hex[2 * i] = digits[bytes[i] >> 4];
        ret_hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    ret_hex[2 * n] = '\0';
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int hash_from_hex(const char *hex, void *ret_data, size_t n, struct gems_error *err)
{
    uint8_t *bytes = ret_data;

    if (strlen(hex) != 2 * n) {
        return gems_error_set(err, GEMS_E_INVALID, "hexadecimal: %zu digits expected, %zu found",
                              2 * n, strlen(hex));
    }
    for (size_t i = 0; i < 2 * n; i++) {
        if (digit_of(hex[i]) < 0) {
            return gems_error_set(err, GEMS_E_INVALID, "hexadecimal: bad digit '%c'", hex[i]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(digit_of(hex[2 * i]) << 4 | digit_of(hex[2 * i + 1]));
    }
    return GEMS_OK;
}
