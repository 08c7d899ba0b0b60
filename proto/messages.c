#include "proto/messages.h"

#include <malloc.h>
#include <stdlib.h>

#include "common/error.h"
#include "proto/codec.h"
#include "proto/scan.h"

enum { DECODE_FLOOR_BYTES = 64 << 10, DECODE_FACTOR = 16, DECODE_LIMIT_BYTES = 64 << 20 };

static const struct {
    const char *name;
    const ProtobufCMessageDescriptor *descriptor;
} messages[MSG_TYPE_LIMIT] = {
    [MSG_ERROR] = { "ERROR", &gems__error__descriptor },
    [MSG_OK] = { "OK", &gems__ok__descriptor },
    [MSG_HELLO] = { "HELLO", &gems__hello__descriptor },
    [MSG_HELLO_REPLY] = { "HELLO_REPLY", &gems__hello_reply__descriptor },
    [MSG_SUBMIT] = { "SUBMIT", &gems__submit_request__descriptor },
    [MSG_SUBMIT_REPLY] = { "SUBMIT_REPLY", &gems__submit_reply__descriptor },
    [MSG_STATUS] = { "STATUS", &gems__job_request__descriptor },
    [MSG_STATUS_REPLY] = { "STATUS_REPLY", &gems__status_reply__descriptor },
    [MSG_LIST] = { "LIST", &gems__list_request__descriptor },
    [MSG_LIST_REPLY] = { "LIST_REPLY", &gems__list_reply__descriptor },
    [MSG_PLAN] = { "PLAN", &gems__plan_request__descriptor },
    [MSG_PLAN_REPLY] = { "PLAN_REPLY", &gems__plan_reply__descriptor },
    [MSG_CANCEL] = { "CANCEL", &gems__job_request__descriptor },
    [MSG_PAUSE] = { "PAUSE", &gems__job_request__descriptor },
    [MSG_RESUME] = { "RESUME", &gems__job_request__descriptor },
    [MSG_CHECKPOINT] = { "CHECKPOINT", &gems__job_request__descriptor },
    [MSG_EVENTS] = { "EVENTS", &gems__job_request__descriptor },
    [MSG_EVENTS_REPLY] = { "EVENTS_REPLY", &gems__events_reply__descriptor },
    [MSG_CHECKPOINTS] = { "CHECKPOINTS", &gems__checkpoints_request__descriptor },
    [MSG_CHECKPOINTS_REPLY] = { "CHECKPOINTS_REPLY", &gems__checkpoints_reply__descriptor },
    [MSG_NODES] = { "NODES", &gems__ok__descriptor },
    [MSG_NODES_REPLY] = { "NODES_REPLY", &gems__nodes_reply__descriptor },
    [MSG_DRAIN] = { "DRAIN", &gems__drain_request__descriptor },
    [MSG_WATCH] = { "WATCH", &gems__watch_request__descriptor },
    [MSG_LOGS] = { "LOGS", &gems__logs_request__descriptor },
    [MSG_LOG_CHUNK] = { "LOG_CHUNK", &gems__log_chunk__descriptor },
    [MSG_FETCH] = { "FETCH", &gems__fetch_request__descriptor },
    [MSG_FETCH_CHUNK] = { "FETCH_CHUNK", &gems__fetch_chunk__descriptor },
    [MSG_REGISTER] = { "REGISTER", &gems__register__descriptor },
    [MSG_REGISTER_REPLY] = { "REGISTER_REPLY", &gems__register_reply__descriptor },
    [MSG_INSPECT] = { "INSPECT", &gems__inspect_request__descriptor },
    [MSG_INSPECT_REPLY] = { "INSPECT_REPLY", &gems__inspect_reply__descriptor },
    [MSG_LAUNCH] = { "LAUNCH", &gems__launch__descriptor },
    [MSG_KILL] = { "KILL", &gems__kill__descriptor },
    [MSG_RANK_EXIT] = { "RANK_EXIT", &gems__rank_exit__descriptor },
    [MSG_RANK_LOG] = { "RANK_LOG", &gems__rank_log__descriptor },
    [MSG_PING] = { "PING", &gems__ping__descriptor },
    [MSG_JOIN] = { "JOIN", &gems__join__descriptor },
    [MSG_START] = { "START", &gems__start__descriptor },
    [MSG_HEARTBEAT] = { "HEARTBEAT", &gems__heartbeat__descriptor },
    [MSG_PROGRESS] = { "PROGRESS", &gems__progress__descriptor },
    [MSG_SHARD] = { "SHARD", &gems__shard__descriptor },
    [MSG_SHARD_END] = { "SHARD_END", &gems__shard_end__descriptor },
    [MSG_SHARD_ACK] = { "SHARD_ACK", &gems__shard_ack__descriptor },
    [MSG_RESTORE] = { "RESTORE", &gems__restore_request__descriptor },
    [MSG_RESTORE_CHUNK] = { "RESTORE_CHUNK", &gems__restore_chunk__descriptor },
    [MSG_COMMAND] = { "COMMAND", &gems__command__descriptor },
    [MSG_END] = { "END", &gems__end__descriptor },
    [MSG_END_ACK] = { "END_ACK", &gems__ok__descriptor },
};

const char *msg_name(uint16_t type)
{
    return type < MSG_TYPE_LIMIT ? messages[type].name : NULL;
}

/* Memory that one unpack may hold at a time. Results are plain malloc memory,
 * so that anybody may free them with protobuf-c's default allocator. */
struct budget {
    size_t left;
};

static void *budget_alloc(void *arg, size_t n)
{
    struct budget *budget = arg;
    void *p;

    if (n > budget->left) {
        return NULL;
    }
    p = malloc(n);
    if (p) {
        size_t used = malloc_usable_size(p);

        budget->left -= used < budget->left ? used : budget->left;
    }
    return p;
}

static void budget_free(void *arg, void *p)
{
    struct budget *budget = arg;

    if (p) {
        budget->left += malloc_usable_size(p);
        free(p);
    }
}

int msg_decode(const struct rpc_frame *frame, ProtobufCMessage **ret_message, struct gems_error *err)
{
    struct budget budget = { DECODE_LIMIT_BYTES };
    ProtobufCAllocator allocator = { budget_alloc, budget_free, &budget };
    const char *name = msg_name(frame->type);
    const ProtobufCMessageDescriptor *descriptor;
    ProtobufCMessage *message;
    int st;

    if (!name) {
        return gems_error_set(err, GEMS_E_INVALID, "message type %u is unknown", frame->type);
    }
    descriptor = messages[frame->type].descriptor;
    if (frame->bytes < (DECODE_LIMIT_BYTES - DECODE_FLOOR_BYTES) / DECODE_FACTOR) {
        budget.left = DECODE_FLOOR_BYTES + DECODE_FACTOR * frame->bytes;
    }
    st = scan_check(descriptor, frame->payload, frame->bytes, err);
    if (st < 0) {
        return st;
    }
    message = protobuf_c_message_unpack(descriptor, &allocator, frame->bytes, frame->payload);
    if (!message) {
        return gems_error_set(err, GEMS_E_INVALID, "message %s: malformed, or needs too much memory",
                              name);
    }
    *ret_message = message;
    return GEMS_OK;
}

void msg_free(ProtobufCMessage *message)
{
    protobuf_c_message_free_unpacked(message, NULL);
}

int msg_send(struct rpc_conn *conn, enum msg_type type, uint16_t flags, uint32_t call,
             const ProtobufCMessage *message)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes;
    int st;

    if (message->descriptor != messages[type].descriptor) {
        return GEMS_E_INTERNAL;
    }
    bytes = malloc(n + 1);
    if (!bytes) {
        return GEMS_E_NOMEM;
    }
    protobuf_c_message_pack(message, bytes);
    scan_clean(message->descriptor, bytes, n);
    st = rpc_send(conn, (uint16_t)type, flags, call, bytes, n);
    free(bytes);
    return st;
}

int msg_send_error(struct rpc_conn *conn, uint32_t call, const struct gems_error *err)
{
    Gems__Error message = GEMS__ERROR__INIT;

    message.status = err->status;
    message.text = (char *)err->text;
    message.hint = (char *)err->hint;
    return msg_send(conn, MSG_ERROR, RPC_REPLY | RPC_LAST, call, &message.base);
}

int proto_pack(const ProtobufCMessage *message, uint8_t **ret_bytes, size_t *ret_n, struct gems_error *err)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(n + 1);

    if (!bytes) {
        return gems_error_set(err, GEMS_E_NOMEM, "message %s: no memory",
                              message->descriptor->short_name);
    }
    *ret_n = protobuf_c_message_pack(message, bytes);
    *ret_bytes = bytes;
    return GEMS_OK;
}
