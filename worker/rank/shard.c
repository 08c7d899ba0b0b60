#include "worker/rank/shard.h"

#include <inttypes.h>

#include "common/error.h"
#include "common/hash.h"
#include "common/log.h"

enum { EARLIER_MS = 10000 };

/* One checkpoint at a time: a rank that is ahead would mix two of them at
 * gemsd. Bounded, since another rank may have left the earlier one out. */
static void wait_for_earlier(struct shard *shard)
{
    struct gems_error err;

    if (shard->sent_step != 0 && control_is_attached(shard->control) &&
        control_wait_ack(shard->control, shard->sent_step, EARLIER_MS, &err) < 0) {
        log_warning("checkpoint of step %" PRIu64 ": %s", shard->sent_step, err.text);
    }
    shard->sent_step = 0;
}

int shard_begin(struct shard *shard, const struct trainer_position *position, uint32_t epoch,
                bool is_final)
{
    shard->position = *position;
    shard->epoch = epoch;
    shard->is_final = is_final;
    shard->is_broken = false;
    wait_for_earlier(shard);
    if (is_final) {
        control_wait_attached(shard->control);
    } else if (!control_is_attached(shard->control)) {
        log_warning("checkpoint of step %" PRIu64 " left out: gemsd is gone", position->step);
        shard->is_broken = true;
    }
    return GEMS_OK;
}

/* A lost connection ends the checkpoint, not the run. */
static int note_result(struct shard *shard, int status, const struct gems_error *err)
{
    if (status == GEMS_E_PEER) {
        log_warning("checkpoint of step %" PRIu64 " broken off: %s", shard->position.step,
                    err->text);
        shard->is_broken = true;
        return GEMS_OK;
    }
    if (status < 0) {
        log_error("checkpoint of step %" PRIu64 ": %s", shard->position.step, err->text);
    }
    return status;
}

int shard_tensor(struct shard *shard, const struct trainer_tensor *tensor, const void *data)
{
    Gems__Shard message = GEMS__SHARD__INIT;
    uint64_t dims[4];
    uint8_t hash[HASH_BYTES];
    int status = GEMS_OK;

    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        dims[i] = tensor->dims[i];
    }
    message.step = shard->position.step;
    message.name = (char *)tensor->name;
    message.kind = (char *)tensor->kind;
    message.order = tensor->order;
    message.n_dims = tensor->n_dims;
    message.dims = dims;
    message.total = tensor->bytes;
    message.hash.data = hash;
    message.hash.len = sizeof hash;
    for (uint64_t at = 0; at < tensor->bytes && status == GEMS_OK && !shard->is_broken;
         at += SHARD_CHUNK_BYTES) {
        uint64_t left = tensor->bytes - at;
        struct gems_error err;

        message.offset = at;
        message.data.data = (uint8_t *)data + at;
        message.data.len = left < SHARD_CHUNK_BYTES ? left : SHARD_CHUNK_BYTES;
        hash_of(message.data.data, message.data.len, hash);
        status = control_send(shard->control, MSG_SHARD, &message.base, &err);
        status = note_result(shard, status, &err);
    }
    return status;
}

int shard_end(struct shard *shard, uint32_t n_tensors)
{
    Gems__ShardEnd message = GEMS__SHARD_END__INIT;
    struct gems_error err;
    int status;

    message.step = shard->position.step;
    message.epoch = shard->epoch;
    message.samples = shard->position.samples;
    message.tensors = n_tensors;
    message.final = shard->is_final;
    if (!shard->is_broken) {
        status = control_send(shard->control, MSG_SHARD_END, &message.base, &err);
        if (status == GEMS_OK && shard->is_final) {
            status = control_wait_ack(shard->control, shard->position.step, 0, &err);
        }
        shard->sent_step = status == GEMS_OK ? shard->position.step : 0;
        status = note_result(shard, status, &err);
        if (status < 0) {
            return status;
        }
    }
    return shard->is_final && shard->is_broken ? 1 : GEMS_OK;
}
