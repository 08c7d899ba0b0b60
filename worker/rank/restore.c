#include "worker/rank/restore.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

/* A tensor as it comes; chunks in order. */
struct incoming {
    const struct trainer_tensor *tensor;
    uint8_t *bytes; /* owned by restore_run */
    uint64_t n;
};

/* Communication thread, while restore_run waits. */
static int take_chunk(void *arg, enum msg_type type, const ProtobufCMessage *message)
{
    struct incoming *incoming = arg;
    const Gems__RestoreChunk *chunk = (const Gems__RestoreChunk *)message;

    if (type != MSG_RESTORE_CHUNK || strcmp(chunk->name, incoming->tensor->name) ||
        strcmp(chunk->kind, incoming->tensor->kind) || chunk->total != incoming->tensor->bytes ||
        chunk->offset != incoming->n || chunk->data.len > incoming->tensor->bytes - incoming->n) {
        return GEMS_E_INVALID;
    }
    if (chunk->data.len) {
        memcpy(incoming->bytes + incoming->n, chunk->data.data, chunk->data.len);
        incoming->n += chunk->data.len;
    }
    return GEMS_OK;
}

static int fetch(struct control *control, uint64_t step, struct incoming *incoming,
                 struct gems_error *err)
{
    const struct trainer_tensor *tensor = incoming->tensor;
    Gems__RestoreRequest request = GEMS__RESTORE_REQUEST__INIT;
    char *name = (char *)tensor->name, *kind = (char *)tensor->kind;
    struct gems_error cause;
    int status;

    request.step = step;
    request.n_names = request.n_kinds = 1;
    request.names = &name;
    request.kinds = &kind;
    do {
        control_wait_attached(control);
        incoming->n = 0;
        status = control_call(control, MSG_RESTORE, &request.base, take_chunk, incoming, &cause);
    } while (status == GEMS_E_PEER);
    if (status == GEMS_OK && incoming->n != tensor->bytes) {
        status = gems_error_set(&cause, GEMS_E_INVALID, "%llu of %llu bytes came",
                                (unsigned long long)incoming->n, (unsigned long long)tensor->bytes);
    }
    return status < 0
               ? gems_error_set(err, (enum gems_status)status, "checkpoint of step %llu, %s %s: %s",
                                (unsigned long long)step, tensor->kind, tensor->name, cause.text)
               : GEMS_OK;
}

int restore_run(struct control *control, struct trainer *trainer, uint64_t step,
                struct gems_error *err)
{
    struct trainer_tensor tensor;
    struct incoming incoming = { .tensor = &tensor };
    int status = GEMS_OK;

    for (uint32_t i = 0; status == GEMS_OK && trainer_tensor_at(trainer, i, &tensor); i++) {
        uint8_t *bytes = realloc(incoming.bytes, tensor.bytes + 1);

        if (!bytes) {
            status = gems_error_set(err, GEMS_E_NOMEM, "restore: no memory for %s", tensor.name);
            break;
        }
        incoming.bytes = bytes;
        status = fetch(control, step, &incoming, err);
        if (status == GEMS_OK) {
            status = trainer_import(trainer, i, bytes, err);
        }
    }
    free(incoming.bytes);
    return status;
}
