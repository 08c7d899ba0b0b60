#include "worker/rank/inherit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "worker/net/net.h"

enum { MAX_INFO_BYTES = 64 << 10 };

static int read_all(int fd, uint8_t *bytes, size_t *ret_n, struct gems_error *err)
{
    size_t n = 0;

    for (;;) {
        ssize_t got = read(fd, bytes + n, MAX_INFO_BYTES - n);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return gems_error_errno(err, errno, "descriptor %d of %s", fd, INHERIT_VARIABLE);
        }
        if (got == 0) {
            break;
        }
        n += (size_t)got;
        if (n == MAX_INFO_BYTES) {
            return gems_error_set(err, GEMS_E_INVALID, "launch message: larger than %d bytes",
                                  MAX_INFO_BYTES);
        }
    }
    *ret_n = n;
    return GEMS_OK;
}

static int find_descriptor(int *ret_fd, struct gems_error *err)
{
    const char *text = getenv(INHERIT_VARIABLE);
    char *end;
    long fd;

    if (!text) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "%s is not set: gems-rank is started by gems-worker only",
                              INHERIT_VARIABLE);
    }
    errno = 0;
    fd = strtol(text, &end, 10);
    if (errno || end == text || *end || fd < 0 || fd > INT32_MAX) {
        return gems_error_set(err, GEMS_E_INVALID, "%s is not the number of a descriptor",
                              INHERIT_VARIABLE);
    }
    *ret_fd = (int)fd;
    return GEMS_OK;
}

static int check(const Gems__LaunchInfo *info, struct gems_error *err)
{
    if (!info->ref || info->n_ranks == 0 || info->ref->rank >= info->n_ranks) {
        return gems_error_set(err, GEMS_E_INVALID, "launch message: no such rank");
    }
    if (info->secret.len != NET_SECRET_BYTES) {
        return gems_error_set(err, GEMS_E_INVALID, "launch message: a secret has %d bytes, not %zu",
                              NET_SECRET_BYTES, info->secret.len);
    }
    if (info->threads == 0) {
        return gems_error_set(err, GEMS_E_INVALID, "launch message: a device without threads");
    }
    return GEMS_OK;
}

int inherit_read(Gems__LaunchInfo **ret_info, struct gems_error *err)
{
    uint8_t *bytes = NULL;
    Gems__LaunchInfo *info = NULL;
    size_t n = 0;
    int fd = -1, status;

    status = find_descriptor(&fd, err);
    if (status < 0) {
        return status;
    }
    bytes = malloc(MAX_INFO_BYTES);
    status = bytes ? read_all(fd, bytes, &n, err)
                   : gems_error_set(err, GEMS_E_NOMEM, "launch message: no memory");
    close(fd);
    unsetenv(INHERIT_VARIABLE);
    if (status == GEMS_OK) {
        info = gems__launch_info__unpack(NULL, n, bytes);
        status = info ? check(info, err)
                      : gems_error_set(err, GEMS_E_INVALID, "launch message: malformed");
    }
    if (bytes) {
        explicit_bzero(bytes, MAX_INFO_BYTES);
    }
    free(bytes);
    if (status < 0) {
        gems__launch_info__free_unpacked(info, NULL);
        return status;
    }
    *ret_info = info;
    return GEMS_OK;
}

int inherit_device_index(const char *device, uint32_t *ret_index, struct gems_error *err)
{
    const char *colon = strchr(device, ':');
    char *end;
    unsigned long index;

    if (colon) {
        errno = 0;
        index = strtoul(colon + 1, &end, 10);
        if (!errno && end != colon + 1 && !*end && index <= UINT32_MAX && colon[1] != '-') {
            *ret_index = (uint32_t)index;
            return GEMS_OK;
        }
    }
    return gems_error_set(err, GEMS_E_INVALID, "device \"%s\": a device is called KIND:INDEX",
                          device);
}
