/* Weights on their way out: to clients (fetch) and to ranks (restore). The file
 * is read in the reader thread, one chunk at a time, no faster than the peer
 * takes it. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bg.h"
#include "common/error.h"
#include "common/log.h"
#include "daemon/checkpoint_file.h"
#include "daemon/checkpoints.h"
#include "daemon/handlers.h"
#include "daemon/launch.h"

/* What a reader of the weights must know beside the tensors: metadata of the
 * safetensors file. */
enum { MAX_NOTES = 12, NOTE_BYTES = 80 };
struct notes {
    size_t n;
    char values[MAX_NOTES][NOTE_BYTES];
    const char *keys[MAX_NOTES];
};

struct transfer {
    struct stream stream;
    struct daemon *daemon;
    uint64_t job;
    bool is_fetch, is_gone, is_working, is_headed;
    char owner[STORE_NAME_BYTES];
    struct notes notes;
    /* fetch: which one */
    bool has_step, is_best;
    uint64_t step;
    /* restore: which tensors */
    size_t n_names;
    char (*names)[CHECKPOINT_NAME_BYTES];
    char (*kinds)[CHECKPOINT_KIND_BYTES];
    /* reader thread */
    struct checkpoint_reader *reader;
    uint32_t n, at;    /* tensors to send, current one */
    uint32_t *tensors; /* owned, indexes into the file */
    uint64_t offset, chunk_i;
    uint8_t *data;
    size_t n_data;
    uint64_t data_offset;
    uint32_t data_at;
    int result;
    struct gems_error err;
};

static void transfer_free(struct transfer *transfer)
{
    checkpoint_reader_close(transfer->reader);
    free(transfer->tensors);
    free(transfer->names);
    free(transfer->kinds);
    free(transfer->data);
    free(transfer);
}

static void on_gone(struct stream *stream)
{
    struct transfer *transfer = list_item(stream, struct transfer, stream);

    transfer->is_gone = true;
    if (!transfer->is_working) {
        transfer_free(transfer);
    }
}

static void fail(struct transfer *transfer)
{
    peer_error(transfer->stream.peer, transfer->stream.call, &transfer->err);
    stream_end(&transfer->stream);
}

static void add_note(struct notes *notes, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_note(struct notes *notes, const char *key, const char *format, ...)
{
    va_list args;

    if (notes->n < MAX_NOTES) {
        va_start(args, format);
        vsnprintf(notes->values[notes->n], NOTE_BYTES, format, args);
        va_end(args);
        notes->keys[notes->n++] = key;
    }
}

static void note_job(struct notes *notes, const Gems__JobSpec *spec)
{
    const Gems__ZooSpec *model = spec->model;
    const Gems__DataSpec *data = spec->data;

    if (model) {
        add_note(notes, "gems.model", "%s", model->zoo);
        add_note(notes, "gems.version", "%u", model->version);
        add_note(notes, "gems.depth", "%u", model->depth);
        add_note(notes, "gems.classes", "%u", model->classes);
    }
    if (data) {
        add_note(notes, "gems.size", "%ux%ux%u", data->channels, data->height, data->width);
        add_note(notes, "gems.mean", "%.17g", data->mean);
        add_note(notes, "gems.std", "%.17g", data->std);
    }
}

/* ---- reader thread ---- */

static int select_weights(struct transfer *transfer, uint32_t n_all)
{
    for (uint32_t i = 0; i < n_all; i++) {
        if (!strcmp(checkpoint_reader_tensor(transfer->reader, i)->kind, "weight")) {
            transfer->tensors[transfer->n++] = i;
        }
    }
    return GEMS_OK;
}

static int select_named(struct transfer *transfer)
{
    for (size_t i = 0; i < transfer->n_names; i++) {
        int found =
            checkpoint_reader_find(transfer->reader, transfer->kinds[i], transfer->names[i]);

        if (found < 0) {
            return gems_error_set(
                &transfer->err, GEMS_E_NOTFOUND, "checkpoint of step %llu has no %s %s",
                (unsigned long long)transfer->step, transfer->kinds[i], transfer->names[i]);
        }
        transfer->tensors[transfer->n++] = (uint32_t)found;
    }
    return GEMS_OK;
}

static int open_file(struct transfer *transfer)
{
    char dir[900], path[1024];
    uint32_t n_all = 0;
    int status;

    checkpoints_dir(transfer->daemon, transfer->job, dir, sizeof dir);
    checkpoint_path(dir, transfer->step, path, sizeof path);
    status = checkpoint_reader_open(path, &transfer->reader, &transfer->err);
    if (status < 0) {
        return status;
    }
    while (checkpoint_reader_tensor(transfer->reader, n_all)) {
        n_all++;
    }
    n_all = n_all > transfer->n_names ? n_all : (uint32_t)transfer->n_names;
    transfer->tensors = calloc(n_all + 1, sizeof *transfer->tensors);
    if (!transfer->tensors) {
        return gems_error_set(&transfer->err, GEMS_E_NOMEM, "fetch: no memory");
    }
    return transfer->is_fetch ? select_weights(transfer, n_all) : select_named(transfer);
}

static void read_work(void *arg)
{
    struct transfer *transfer = arg;
    const struct checkpoint_tensor *tensor;

    if (!transfer->reader) {
        transfer->result = open_file(transfer);
    }
    if (transfer->result < 0 || transfer->at == transfer->n ||
        (transfer->is_fetch && !transfer->is_headed)) {
        return;
    }
    tensor = checkpoint_reader_tensor(transfer->reader, transfer->tensors[transfer->at]);
    transfer->result = checkpoint_reader_chunk(transfer->reader, transfer->tensors[transfer->at],
                                               transfer->chunk_i, transfer->offset, &transfer->data,
                                               &transfer->n_data, &transfer->err);
    if (transfer->result < 0) {
        return;
    }
    transfer->data_offset = transfer->offset;
    transfer->data_at = transfer->at;
    transfer->offset += transfer->n_data;
    transfer->chunk_i++;
    if (transfer->offset >= tensor->bytes) {
        transfer->at++;
        transfer->offset = transfer->chunk_i = 0;
    }
}

/* ---- sending ---- */

static const char *dtype_of(const struct checkpoint_tensor *tensor)
{
    uint64_t count = 1;

    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        count *= tensor->dims[i];
    }
    return tensor->bytes == 8 * count ? "F64" : "F32";
}

static int send_head(struct transfer *transfer)
{
    const struct checkpoint_meta *meta = checkpoint_reader_meta(transfer->reader);
    uint32_t n = transfer->n;
    Gems__FetchHead head = GEMS__FETCH_HEAD__INIT;
    Gems__FetchChunk chunk = GEMS__FETCH_CHUNK__INIT;
    Gems__TensorHead *tensors = calloc(n + 1, sizeof *tensors),
                     **pointers = calloc(n + 1, sizeof *pointers);
    char(*hashes)[HASH_HEX_BYTES] = calloc(n + 1, sizeof *hashes);
    struct notes *notes = &transfer->notes;
    char *values[MAX_NOTES];
    int full = 0;

    add_note(notes, "format", "gems");
    add_note(notes, "gems.job", "%llu", (unsigned long long)meta->job);
    add_note(notes, "gems.step", "%llu", (unsigned long long)meta->step);
    add_note(notes, "gems.epoch", "%u", meta->end.epoch);
    add_note(notes, "gems.weights_hash", "%s", checkpoint_reader_weights_hash(transfer->reader));
    for (size_t i = 0; i < notes->n; i++) {
        values[i] = notes->values[i];
    }
    for (uint32_t i = 0; tensors && pointers && hashes && i < n; i++) {
        const struct checkpoint_tensor *from =
            checkpoint_reader_tensor(transfer->reader, transfer->tensors[i]);

        gems__tensor_head__init(&tensors[i]);
        hash_to_hex(from->hash, HASH_BYTES, hashes[i]);
        tensors[i].name = (char *)from->name;
        tensors[i].dims = (uint64_t *)from->dims;
        tensors[i].n_dims = from->n_dims;
        tensors[i].dtype = (char *)dtype_of(from);
        tensors[i].bytes = from->bytes;
        tensors[i].hash = hashes[i];
        pointers[head.n_tensors++] = &tensors[i];
    }
    head.tensors = pointers;
    head.meta_keys = (char **)notes->keys;
    head.meta_values = values;
    head.n_meta_keys = head.n_meta_values = notes->n;
    chunk.head = &head;
    chunk.last = n == 0;
    full =
        peer_send(transfer->stream.peer, MSG_FETCH_CHUNK,
                  (uint16_t)(RPC_REPLY | (n ? 0 : RPC_LAST)), transfer->stream.call, &chunk.base);
    free(tensors);
    free(pointers);
    free(hashes);
    return full;
}

static int send_data(struct transfer *transfer)
{
    bool is_last = transfer->at == transfer->n;
    uint16_t flags = (uint16_t)(RPC_REPLY | (is_last ? RPC_LAST : 0));
    int full;

    if (transfer->is_fetch) {
        Gems__FetchChunk chunk = GEMS__FETCH_CHUNK__INIT;

        chunk.data.data = transfer->data;
        chunk.data.len = transfer->n_data;
        chunk.last = is_last;
        full = peer_send(transfer->stream.peer, MSG_FETCH_CHUNK, flags, transfer->stream.call,
                         &chunk.base);
    } else {
        const struct checkpoint_tensor *tensor =
            checkpoint_reader_tensor(transfer->reader, transfer->tensors[transfer->data_at]);
        Gems__RestoreChunk chunk = GEMS__RESTORE_CHUNK__INIT;

        chunk.name = (char *)tensor->name;
        chunk.kind = (char *)tensor->kind;
        chunk.offset = transfer->data_offset;
        chunk.total = tensor->bytes;
        chunk.data.data = transfer->data;
        chunk.data.len = transfer->n_data;
        chunk.last = is_last;
        full = peer_send(transfer->stream.peer, MSG_RESTORE_CHUNK, flags, transfer->stream.call,
                         &chunk.base);
    }
    free(transfer->data);
    transfer->data = NULL;
    return full;
}

static void read_done(void *arg, bool is_run);

static void read_next(struct transfer *transfer)
{
    transfer->is_working = true;
    if (bg_submit(transfer->daemon->read_bg, read_work, read_done, transfer, &transfer->err) < 0) {
        transfer->is_working = false;
        fail(transfer);
    }
}

static void on_room(struct stream *stream)
{
    struct transfer *transfer = list_item(stream, struct transfer, stream);

    if (!transfer->is_working) {
        read_next(transfer);
    }
}

static void read_done(void *arg, bool is_run)
{
    struct transfer *transfer = arg;
    bool is_over;
    int full;

    transfer->is_working = false;
    if (transfer->is_gone) {
        transfer_free(transfer);
        return;
    }
    if (!is_run) {
        return; /* the connection is about to be closed, and this with it */
    }
    if (transfer->result < 0) {
        fail(transfer);
        return;
    }
    if (transfer->is_fetch && !transfer->is_headed) {
        transfer->is_headed = true;
        full = send_head(transfer);
        is_over = transfer->n == 0;
    } else {
        full = send_data(transfer);
        is_over = transfer->at == transfer->n;
    }
    if (is_over || full < 0) {
        stream_end(&transfer->stream);
    } else if (full == 0) {
        read_next(transfer);
    }
}

/* ---- FETCH ---- */

static int choose(struct transfer *transfer, const struct store_checkpoint *rows, size_t n)
{
    const struct store_checkpoint *chosen = NULL;
    struct gems_error *err = &transfer->err;

    for (size_t i = 0; i < n; i++) {
        bool is_damaged = rows[i].trust == CHECKPOINT_DAMAGED;

        if (transfer->has_step && rows[i].step == transfer->step) {
            chosen = &rows[i];
        } else if (transfer->has_step || is_damaged) {
            continue;
        } else if (!chosen ||
                   (transfer->is_best && rows[i].eval_accuracy > chosen->eval_accuracy) ||
                   (transfer->is_best && isnan(chosen->eval_accuracy))) {
            chosen = &rows[i];
        }
    }
    if (!chosen && transfer->has_step) {
        return gems_error_set(err, GEMS_E_NOTFOUND, "job %llu: no checkpoint of step %llu",
                              (unsigned long long)transfer->job,
                              (unsigned long long)transfer->step);
    }
    if (!chosen) {
        return gems_error_set(err, GEMS_E_NOTFOUND, "job %llu: no checkpoint yet",
                              (unsigned long long)transfer->job);
    }
    transfer->step = chosen->step;
    return GEMS_OK;
}

static void choose_work(void *arg)
{
    struct transfer *transfer = arg;
    struct store *store = transfer->daemon->store;
    struct store_checkpoint *rows = NULL;
    struct store_job job;
    Gems__JobSpec *spec;
    size_t n = 0;

    transfer->result = store_job(store, transfer->job, &job, &transfer->err);
    if (transfer->result < 0) {
        return;
    }
    snprintf(transfer->owner, sizeof transfer->owner, "%s", job.user);
    spec = gems__job_spec__unpack(NULL, job.spec.n, job.spec.data);
    if (spec) {
        note_job(&transfer->notes, spec);
        gems__job_spec__free_unpacked(spec, NULL);
    }
    store_job_fini(&job);
    transfer->result = store_checkpoints(store, transfer->job, &rows, &n, &transfer->err);
    if (transfer->result >= 0) {
        transfer->result = choose(transfer, rows, n);
    }
    free(rows);
}

static void choose_done(void *arg, bool is_run)
{
    struct transfer *transfer = arg;

    transfer->is_working = false;
    if (transfer->is_gone) {
        transfer_free(transfer);
        return;
    }
    if (!is_run) {
        return;
    }
    if (transfer->owner[0] &&
        peer_may_act(transfer->stream.peer, transfer->owner, &transfer->err) < 0) {
        transfer->result = transfer->err.status;
    }
    if (transfer->result < 0) {
        fail(transfer);
    } else {
        read_next(transfer);
    }
}

static struct transfer *transfer_create(struct peer *peer, uint32_t call, uint64_t job)
{
    struct transfer *transfer = calloc(1, sizeof *transfer);
    struct gems_error err;

    if (!transfer || stream_begin(&transfer->stream, peer, call, &err) < 0) {
        if (!transfer) {
            gems_error_set(&err, GEMS_E_NOMEM, "fetch: no memory");
        }
        free(transfer);
        peer_error(peer, call, &err);
        return NULL;
    }
    transfer->daemon = peer->daemon;
    transfer->job = job;
    transfer->stream.ended = on_gone;
    transfer->stream.drained = on_room;
    return transfer;
}

void on_fetch(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__FetchRequest *message = (const Gems__FetchRequest *)base;
    struct transfer *transfer = transfer_create(peer, call, message->job);

    if (!transfer) {
        return;
    }
    transfer->is_fetch = true;
    transfer->has_step = message->has_step;
    transfer->step = message->step;
    transfer->is_best = message->best;
    transfer->is_working = true;
    if (bg_submit(peer->daemon->store_bg, choose_work, choose_done, transfer, &transfer->err) < 0) {
        transfer->is_working = false;
        fail(transfer);
    }
}

/* ---- RESTORE ---- */

static int take_names(struct transfer *transfer, const Gems__RestoreRequest *message)
{
    size_t n = message->n_names;

    if (n == 0 || n != message->n_kinds) {
        return gems_error_set(&transfer->err, GEMS_E_INVALID, "restore: %zu names and %zu kinds", n,
                              message->n_kinds);
    }
    transfer->names = calloc(n, sizeof *transfer->names);
    transfer->kinds = calloc(n, sizeof *transfer->kinds);
    if (!transfer->names || !transfer->kinds) {
        return gems_error_set(&transfer->err, GEMS_E_NOMEM, "restore: no memory");
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(transfer->names[i], sizeof transfer->names[i], "%s", message->names[i]);
        snprintf(transfer->kinds[i], sizeof transfer->kinds[i], "%s", message->kinds[i]);
    }
    transfer->n_names = n;
    transfer->step = message->step;
    return GEMS_OK;
}

void on_restore(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__RestoreRequest *message = (const Gems__RestoreRequest *)base;
    struct rank *rank;
    struct job *job = launch_job_of(peer, &rank);
    struct transfer *transfer;
    struct gems_error err;

    if (!job) {
        gems_error_set(&err, GEMS_E_STATE, "the attempt is over");
        peer_error(peer, call, &err);
        return;
    }
    rank->moved_us = rank->seen_us;
    transfer = transfer_create(peer, call, job->id);
    if (!transfer) {
        return;
    }
    if (take_names(transfer, message) < 0) {
        fail(transfer);
    } else {
        read_next(transfer);
    }
}
