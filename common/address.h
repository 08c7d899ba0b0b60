/* Addresses of gemsd: "unix:PATH" or "tcp:HOST:PORT" ([v6]:PORT too). Any thread. */
#ifndef GEMS_COMMON_ADDRESS_H
#define GEMS_COMMON_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gems_error;

enum { ADDRESS_PATH_BYTES = 108, ADDRESS_HOST_BYTES = 256, ADDRESS_TEXT_BYTES = 280 };

struct address {
    bool is_unix;
    char path[ADDRESS_PATH_BYTES]; /* unix */
    char host[ADDRESS_HOST_BYTES]; /* tcp */
    uint16_t port;
};

/* GEMS_E_INVALID says what an address looks like. */
int address_parse(const char *text, struct address *ret_address, struct gems_error *err);
/* "HOST:PORT" alone, as --listen takes it; "*:PORT" for all interfaces. */
int address_parse_tcp(const char *text, struct address *ret_address, struct gems_error *err);
/* As address_parse reads it; returns text. */
char *address_format(const struct address *address, char text[ADDRESS_TEXT_BYTES]);

#endif
