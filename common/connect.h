/* The asking side of a connection: an address in, a bufferevent out.
 *
 * TCP is always TLS 1.3 with the server's name checked. One deadline covers
 * connect and handshake; nothing blocks but the look-up of a host that is not
 * a number. Thread: the loop of base.
 */
#ifndef GEMS_COMMON_CONNECT_H
#define GEMS_COMMON_CONNECT_H

#include "common/address.h"
#include "common/tls.h"

struct bufferevent;
struct connector;
struct event_base;
struct gems_error;

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
