#include "daemon/tokens.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/error.h"
#include "common/fsutil.h"
#include "common/hash.h"

enum { TOKENS_FILE_BYTES = 1 << 20 };

static const char *const role_names[TOKEN_ROLE_COUNT] = { "user", "viewer", "operator", "worker" };

int token_role_from_name(const char *name)
{
    for (int i = 0; i < TOKEN_ROLE_COUNT; i++) {
        if (!strcmp(role_names[i], name)) {
            return i;
        }
    }
    return GEMS_E_NOTFOUND;
}

static int check_name(const char *name, struct gems_error *err)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i])) {
            n = 0;
        }
    }
    if (n == 0 || n >= TOKEN_NAME_BYTES) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "token name \"%.80s\": letters, digits and . _ - only", name);
    }
    return GEMS_OK;
}

int tokens_add(const char *path, const char *name, enum token_role role,
               char ret_token[TOKEN_BYTES], struct gems_error *err)
{
    uint8_t secret[32], digest[HASH_SHA256_BYTES];
    char token[TOKEN_BYTES], hex[HASH_SHA256_HEX_BYTES], line[256];
    int status = check_name(name, err), fd, failure;

    if (status >= 0) {
        status = hash_random(secret, sizeof secret, err);
    }
    if (status < 0) {
        return status;
    }
    hash_to_hex(secret, sizeof secret, token);
    status = hash_sha256(token, strlen(token), digest, err);
    if (status < 0) {
        return status;
    }
    hash_to_hex(digest, sizeof digest, hex);
    snprintf(line, sizeof line, "%s %s %s\n", hex, role_names[role], name);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        return gems_error_errno(err, errno, "%s", path);
    }
    failure = fs_write_all(fd, line, strlen(line));
    if (failure == 0 && fsync(fd) < 0) {
        failure = -errno;
    }
    close(fd);
    if (failure < 0) {
        return gems_error_errno(err, -failure, "%s", path);
    }
    memcpy(ret_token, token, sizeof token);
    return GEMS_OK;
}

/* A comparison with every line, so that time tells nothing. */
static bool is_match(const char *line, const char *hex, enum token_role *ret_role,
                     char ret_name[TOKEN_NAME_BYTES])
{
    char digest[65], role[16], name[TOKEN_NAME_BYTES];
    int known;

    if (sscanf(line, "%64s %15s %63s", digest, role, name) != 3 || strlen(digest) != 64) {
        return false;
    }
    known = token_role_from_name(role);
    if (!hash_equal(digest, hex, 64) || known < 0) {
        return false;
    }
    *ret_role = (enum token_role)known;
    snprintf(ret_name, TOKEN_NAME_BYTES, "%s", name);
    return true;
}

int tokens_find(const char *path, const char *token, enum token_role *ret_role,
                char ret_name[TOKEN_NAME_BYTES], struct gems_error *err)
{
    uint8_t digest[HASH_SHA256_BYTES];
    char hex[HASH_SHA256_HEX_BYTES];
    struct buf text = { 0 };
    bool is_found = false;
    int status = fs_read_secret(path, TOKENS_FILE_BYTES, &text, err);

    if (status >= 0) {
        status = hash_sha256(token, strlen(token), digest, err);
    }
    if (status >= 0 && buf_add(&text, "", 1) < 0) {
        status = gems_error_set(err, GEMS_E_NOMEM, "tokens: no memory");
    }
    if (status >= 0) {
        hash_to_hex(digest, sizeof digest, hex);
        for (char *line = (char *)text.data, *next; line && *line; line = next) {
            next = strchr(line, '\n');
            if (next) {
                *next++ = '\0';
            } else {
                next = line + strlen(line);
            }
            is_found |= is_match(line, hex, ret_role, ret_name);
        }
    }
    buf_fini(&text);
    if (status < 0) {
        return status;
    }
    return is_found ? GEMS_OK : gems_error_set(err, GEMS_E_DENIED, "unknown token");
}
