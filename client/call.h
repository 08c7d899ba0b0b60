/* Blocking calls to gemsd over one connection.
 *
 * Each call runs the event loop of its own until its answer is there, a
 * deadline passes or SIGINT or SIGTERM comes (GEMS_E_CANCELLED). One call at a
 * time. GEMS_E_PEER: gemsd cannot be reached, or went away. Single thread.
 */
#ifndef GEMS_CLIENT_CALL_H
#define GEMS_CLIENT_CALL_H

#include "client/command.h"
#include "proto/gems.pb-c.h"
#include "proto/messages.h"

struct call;

enum { CALL_TIMEOUT_MS = 30000, CALL_PLAN_TIMEOUT_MS = 600000 };

/* Finds, connects, says hello. *ret_call is owned by the caller. */
int call_open(const struct client *client, struct call **ret_call, struct gems_error *err);
void call_close(struct call *call);

/* Asks and waits for the reply of type reply_type (MSG_OK too); what gemsd
 * refuses comes back as its status and text. *ret_reply (may be NULL) is
 * owned by the caller: msg_free. */
int call_ask(struct call *call, enum msg_type type, const ProtobufCMessage *request,
             enum msg_type reply_type, uint32_t timeout_ms, ProtobufCMessage **ret_reply,
             struct gems_error *err);

/* call_open, call_ask, call_close. */
int call_once(const struct client *client, enum msg_type type, const ProtobufCMessage *request,
              enum msg_type reply_type, uint32_t timeout_ms, ProtobufCMessage **ret_reply,
              struct gems_error *err);

/* One frame of a stream: 0 to go on, 1 to end it, or a negative status. The
 * message is borrowed. */
typedef int (*call_chunk_fn)(void *arg, const ProtobufCMessage *chunk, struct gems_error *err);

/* Asks and hands on every frame of chunk_type until the last one. idle_ms: the
 * longest silence; 0: any. */
int call_stream(struct call *call, enum msg_type type, const ProtobufCMessage *request,
                enum msg_type chunk_type, uint32_t idle_ms, call_chunk_fn chunk, void *arg,
                struct gems_error *err);

/* Waits, for a connection to come back. GEMS_E_CANCELLED by a signal. */
int call_sleep(uint32_t ms, struct gems_error *err);

#endif
