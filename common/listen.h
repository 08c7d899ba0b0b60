/* The answering side: listening sockets, peers with a proven identity.
 *
 * A unix listener knows each peer's uid, gid and pid from the kernel. A TCP
 * listener cannot exist without a TLS 1.3 certificate and key; a client
 * certificate is optional and its name is given to the handler. When
 * descriptors run out, accepting pauses for a moment instead of spinning.
 * Thread: the loop of base.
 */
#ifndef GEMS_COMMON_LISTEN_H
#define GEMS_COMMON_LISTEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/address.h"
#include "common/tls.h"

struct bufferevent;
struct event_base;
struct gems_error;
struct listener;

enum { LISTEN_NAME_BYTES = 256 };

struct listen_peer {
    bool is_unix;
    uid_t uid; /* unix */
    gid_t gid;
    pid_t pid;
    char address[80];                     /* "uid 1000 pid 4321" or "192.0.2.1:40000" */
    char certificate[LISTEN_NAME_BYTES];  /* common name of a good client certificate, or empty */
};

/* A peer is there, its TLS handshake done. bev is yours: pass it to
 * rpc_create. peer is borrowed for the call, which must not end the listener. */
typedef void listen_fn(void *arg, struct bufferevent *bev, const struct listen_peer *peer);
/* A line for the log: a handshake failed, descriptors ran out. May be NULL. */
typedef void listen_note_fn(void *arg, const char *text);

struct listen_handlers {
    listen_fn *accepted;
    listen_note_fn *note;
};

/* Replaces a dead socket file of an earlier run; GEMS_E_STATE if somebody
 * answers on it. mode: of the socket file. */
struct listener *listen_unix(struct event_base *base, const char *path, mode_t mode,
                             const struct listen_handlers *handlers, void *arg, struct gems_error *err);

/* address->host may be empty or "*" for all interfaces; port 0: any. */
struct listener *listen_tcp(struct event_base *base, const struct address *address,
                            const struct tls_settings *tls, const struct listen_handlers *handlers,
                            void *arg, struct gems_error *err);

/* Port of a TCP listener. */
uint16_t listen_port(const struct listener *listener);
/* TCP: that many handshakes at once (default 64), each within that time
 * (default 5 s). Before the first peer. */
void listen_set_limits(struct listener *listener, unsigned max_handshakes, unsigned handshake_ms);
/* Stops and removes the socket file; unfinished handshakes are dropped. */
void listen_destroy(struct listener *listener);

#endif
