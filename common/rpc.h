/* Frames over a libevent bufferevent: the wire format of every connection.
 *
 *   offset 0  u32  payload bytes, little endian
 *          4  u16  message type (proto/messages.h)
 *          6  u16  flags: RPC_REPLY, RPC_LAST
 *          8  u32  call id, chosen by the side that asks; 0: one-way message
 *         12       payload: one protobuf message
 *
 * The layer knows frames, not messages. A peer that exceeds the limit of
 * bytes in a frame (raised after it has proved who it is) or of output it
 * leaves unread is closed with a reason. Thread: the connection's event loop.
 */
#ifndef GEMS_COMMON_RPC_H
#define GEMS_COMMON_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gems_error;
struct bufferevent;
struct rpc_conn;

enum { RPC_HEADER_BYTES = 12, RPC_LIMIT_UNKNOWN = 4096, RPC_LIMIT_CLIENT = 1 << 20, RPC_LIMIT_WORKER = 8 << 20 };
enum rpc_flags { RPC_REPLY = 1, RPC_LAST = 2 /* last frame of a stream */ };

struct rpc_frame {
    uint16_t type, flags;
    uint32_t call;
    const uint8_t *payload; /* borrowed for the callback */
    size_t bytes;
};

struct rpc_handlers {
    void (*frame)(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame);
    /* The connection is over (peer closed, error, limit); why is one line. The
     * handler may destroy the connection. Called at most once. */
    void (*closed)(void *arg, struct rpc_conn *conn, const char *why);
    /* Output fell below the low mark after rpc_send said "full"; optional. */
    void (*drained)(void *arg, struct rpc_conn *conn);
};

/* Takes bev (freed with the connection; also on failure). */
struct rpc_conn *rpc_create(struct bufferevent *bev, const struct rpc_handlers *handlers, void *arg,
                            struct gems_error *err);
void rpc_destroy(struct rpc_conn *conn); /* also from inside a handler; no callbacks after it */
void rpc_set_handlers(struct rpc_conn *conn, const struct rpc_handlers *handlers, void *arg);
void rpc_set_limits(struct rpc_conn *conn, size_t max_frame_bytes, size_t max_output_bytes);

/* Queues a frame (copied). 0, or 1: taken, but the output is above the high
 * mark: stop until drained(). GEMS_E_PEER once closed. */
int rpc_send(struct rpc_conn *conn, uint16_t type, uint16_t flags, uint32_t call, const void *payload,
             size_t bytes);
/* Closes once everything queued is written. */
void rpc_finish(struct rpc_conn *conn);
/* Holds input back (false) and takes it again (true), so that a fast sender
 * fills the socket and not our memory. A held connection does not notice its
 * peer's end. */
void rpc_set_reading(struct rpc_conn *conn, bool is_reading);
/* Bytes queued and not yet written. */
size_t rpc_pending(const struct rpc_conn *conn);
uint32_t rpc_next_call(struct rpc_conn *conn);

#endif
