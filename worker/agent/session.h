/* The agent's connection to gemsd, made again whenever it breaks.
 *
 * Hello, Register, then requests in both directions. Calls of a connection die
 * with it: whoever made them sends again when session_is_online() after the
 * next Register (ranks_online).
 */
#ifndef GEMS_WORKER_AGENT_SESSION_H
#define GEMS_WORKER_AGENT_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/messages.h"

struct agent;
struct gems_error;
struct session;

struct session *session_create(struct agent *agent, struct gems_error *err);
void session_destroy(struct session *session);
void session_start(struct session *session);

bool session_is_online(const struct session *session);
/* Sends a request; its call id, 0 if offline. ranks_answered gets the answer. */
uint32_t session_call(struct session *session, enum msg_type type, const ProtobufCMessage *message);
/* Answers a request of the connection it came by; nothing if that is gone. */
void session_reply(struct session *session, uint32_t connection, uint32_t call, enum msg_type type,
                   const void *payload, size_t bytes);
void session_reply_error(struct session *session, uint32_t connection, uint32_t call,
                         const struct gems_error *err);

#endif
