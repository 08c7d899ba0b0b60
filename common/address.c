#include "common/address.h"

#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/units.h"

static int refuse(const char *text, struct gems_error *err)
{
    gems_error_set(err, GEMS_E_INVALID, "'%s' is not an address", text);
    gems_error_hint(err, "unix:PATH or tcp:HOST:PORT");
    return GEMS_E_INVALID;
}

int address_parse_tcp(const char *text, struct address *ret_address, struct gems_error *err)
{
    const char *host = text;
    const char *colon = strrchr(text, ':');
    struct address address = { .is_unix = false };
    uint64_t port;
    size_t n;

    if (!colon || parse_u64(colon + 1, &port, NULL) < 0 || port > UINT16_MAX) {
        return refuse(text, err);
    }
    n = (size_t)(colon - host);
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    } else if (memchr(host, ':', n)) {
        return refuse(text, err); /* where would the port begin? */
    }
    if (n == 0 || n >= sizeof address.host) {
        return refuse(text, err);
    }
    memcpy(address.host, host, n);
    address.port = (uint16_t)port;
    *ret_address = address;
    return GEMS_OK;
}

int address_parse(const char *text, struct address *ret_address, struct gems_error *err)
{
    if (strncmp(text, "tcp:", 4) == 0) {
        return address_parse_tcp(text + 4, ret_address, err);
    }
    if (strncmp(text, "unix:", 5) == 0 && text[5]) {
        struct address address = { .is_unix = true };

        if (strlen(text + 5) >= sizeof address.path) {
            return gems_error_set(err, GEMS_E_INVALID, "'%s': a socket path has at most %d bytes", text,
                                  ADDRESS_PATH_BYTES - 1);
        }
        strcpy(address.path, text + 5);
        *ret_address = address;
        return GEMS_OK;
    }
    return refuse(text, err);
}

char *address_format(const struct address *address, char text[ADDRESS_TEXT_BYTES])
{
    if (address->is_unix) {
        snprintf(text, ADDRESS_TEXT_BYTES, "unix:%s", address->path);
    } else if (strchr(address->host, ':')) {
        snprintf(text, ADDRESS_TEXT_BYTES, "tcp:[%s]:%u", address->host, address->port);
    } else {
        snprintf(text, ADDRESS_TEXT_BYTES, "tcp:%s:%u", address->host, address->port);
    }
    return text;
}
