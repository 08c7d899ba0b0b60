/* The asking side of a connection: an address in, a bufferevent out.
 *
 * Addresses: "unix:PATH" or "tcp:HOST:PORT" ([v6]:PORT too). TCP is always
 * TLS 1.3 with the server's name checked. The attempt has one deadline over
 * name look-up, connect and handshake; no step blocks but the look-up of a host
 * that is not a number. Thread: the loop of base.
 */
#ifndef GEMS_COMMON_CONNECT_H
#define GEMS_COMMON_CONNECT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/tls.h"

struct bufferevent;
struct connector;
struct event_base;
struct gems_error;

enum { ADDRESS_PATH_BYTES = 108, ADDRESS_HOST_BYTES = 256 };

struct address {
    bool is_unix;
    char path[ADDRESS_PATH_BYTES]; /* unix */
    char host[ADDRESS_HOST_BYTES]; /* tcp */
    uint16_t port;
};

/* GEMS_E_INVALID says what an address looks like. */
int address_parse(const char *text, struct address *ret_address, struct gems_error *err);
/* "HOST:PORT" alone, as --listen takes it. */
int address_parse_tcp(const char *text, struct address *ret_address, struct gems_error *err);
/* Back to text; returns text. */
char *address_format(const struct address *address, char *text, unsigned room);

/* Called once. Connected: bev is ready for rpc_create and now yours, err NULL.
 * Failed: bev NULL, *err says why. The connector is gone after it. */
typedef void connect_fn(void *arg, struct bufferevent *bev, const struct gems_error *err);

/* Starts. NULL with err: could not even start (bad TLS files); done is not
 * called then. done is never called from inside connect_start. tls may be NULL
 * for unix. */
struct connector *connect_start(struct event_base *base, const struct address *address,
                                const struct tls_settings *tls, unsigned timeout_ms,
                                connect_fn *done, void *arg, struct gems_error *err);

/* Gives an attempt up before its done; done is not called any more. */
void connect_cancel(struct connector *connector);

/* Keep-alive, TCP_USER_TIMEOUT and no delay, for either side of a TCP
 * connection: a silent peer is seen within about ten seconds. */
void connect_tune(int fd);

#endif
