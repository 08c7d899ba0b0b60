/* The table of messages: number on the wire, protobuf descriptor, name.
 *
 * The only way from a frame to a struct and back. Decoding is boxed in: an
 * allocator with a budget (16 x payload, at most 64 MiB), and flat messages.
 */
#ifndef GEMS_PROTO_MESSAGES_H
#define GEMS_PROTO_MESSAGES_H

#include <protobuf-c/protobuf-c.h>

#include "common/rpc.h"

enum { PROTO_VERSION = 1 };

enum msg_type {
    MSG_ERROR = 1, MSG_OK, MSG_HELLO, MSG_HELLO_REPLY,
    /* client to gemsd; the reply to X is X_REPLY or MSG_OK or MSG_ERROR */
    MSG_SUBMIT = 16, MSG_SUBMIT_REPLY, MSG_STATUS, MSG_STATUS_REPLY, MSG_LIST, MSG_LIST_REPLY,
    MSG_PLAN, MSG_PLAN_REPLY, MSG_CANCEL, MSG_PAUSE, MSG_RESUME, MSG_CHECKPOINT,
    MSG_EVENTS, MSG_EVENTS_REPLY, MSG_CHECKPOINTS, MSG_CHECKPOINTS_REPLY, MSG_NODES, MSG_NODES_REPLY,
    MSG_DRAIN, MSG_WATCH /* stream of MSG_STATUS_REPLY */, MSG_LOGS, MSG_LOG_CHUNK, MSG_FETCH, MSG_FETCH_CHUNK,
    /* agent */
    MSG_REGISTER = 64, MSG_REGISTER_REPLY, MSG_INSPECT, MSG_INSPECT_REPLY, MSG_LAUNCH /* MSG_OK or MSG_ERROR */,
    MSG_KILL, MSG_RANK_EXIT, MSG_RANK_LOG, MSG_PING,
    /* rank */
    MSG_JOIN = 96, MSG_START /* reply to JOIN */, MSG_HEARTBEAT, MSG_PROGRESS, MSG_SHARD, MSG_SHARD_END, MSG_SHARD_ACK,
    MSG_RESTORE, MSG_RESTORE_CHUNK, MSG_COMMAND, MSG_END, MSG_END_ACK /* MSG_OK as one-way */,
    MSG_TYPE_LIMIT
};

/* NULL for an unknown number. */
const char *msg_name(uint16_t type);

/* Decodes a frame of a known type. GEMS_E_INVALID with the message's name if
 * it is malformed or over budget. The caller frees with msg_free. */
int msg_decode(const struct rpc_frame *frame, ProtobufCMessage **ret_message, struct gems_error *err);
void msg_free(ProtobufCMessage *message);

/* Packs and queues; as rpc_send. */
int msg_send(struct rpc_conn *conn, enum msg_type type, uint16_t flags, uint32_t call,
             const ProtobufCMessage *message);
/* Replies MSG_ERROR with err's contents. */
int msg_send_error(struct rpc_conn *conn, uint32_t call, const struct gems_error *err);

#endif
