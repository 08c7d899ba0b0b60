/* Receives weights and writes them as a safetensors file.
 *
 * The file appears under its name as a whole or not at all: it is written to a
 * temporary name beside it, synced, renamed. Every tensor's hash is checked.
 */
#ifndef GEMS_CLIENT_FETCH_H
#define GEMS_CLIENT_FETCH_H

#include "client/call.h"

struct fetch;

/* path is borrowed. */
struct fetch *fetch_create(const char *path, struct gems_error *err);
/* A call_chunk_fn for MSG_FETCH_CHUNK; arg is the struct fetch. */
int fetch_chunk(void *arg, const ProtobufCMessage *chunk, struct gems_error *err);
/* All tensors are there: sync and rename. */
int fetch_commit(struct fetch *fetch, struct gems_error *err);
/* Removes what is not committed; also NULL. */
void fetch_destroy(struct fetch *fetch);

/* For the answer: bytes of the file, tensors, and a note ("" if not there). */
uint64_t fetch_bytes(const struct fetch *fetch);
uint32_t fetch_tensors(const struct fetch *fetch);
const char *fetch_note(const struct fetch *fetch, const char *key);

#endif
