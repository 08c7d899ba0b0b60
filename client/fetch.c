#include "client/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fsutil.h"
#include "common/hash.h"
#include "model/safetensors.h"

struct fetch {
    const char *path;
    char temporary[PATH_MAX];
    int fd;                /* negative: closed */
    bool is_written;       /* temporary exists */
    Gems__FetchHead *head; /* owned; NULL: not there yet */
    uint32_t tensor;       /* the one that is being received */
    uint64_t received;     /* bytes of it */
    struct hash_stream *hash;
    uint64_t bytes;
};

struct fetch *fetch_create(const char *path, struct gems_error *err)
{
    struct fetch *fetch = calloc(1, sizeof *fetch);
    int n;

    if (!fetch) {
        gems_error_set(err, GEMS_E_NOMEM, "%s: out of memory", path);
        return NULL;
    }
    fetch->path = path;
    n = snprintf(fetch->temporary, sizeof fetch->temporary, "%s.XXXXXX", path);
    fetch->fd = n < (int)sizeof fetch->temporary ? mkostemp(fetch->temporary, O_CLOEXEC) : -1;
    if (fetch->fd < 0) {
        gems_error_errno(err, n < (int)sizeof fetch->temporary ? errno : ENAMETOOLONG, "%s", path);
        free(fetch);
        return NULL;
    }
    fetch->is_written = true;
    return fetch;
}

void fetch_destroy(struct fetch *fetch)
{
    if (!fetch) {
        return;
    }
    if (fetch->fd >= 0) {
        close(fetch->fd);
    }
    if (fetch->is_written) {
        unlink(fetch->temporary);
    }
    if (fetch->head) {
        gems__fetch_head__free_unpacked(fetch->head, NULL);
    }
    hash_destroy(fetch->hash);
    free(fetch);
}

static int write_bytes(struct fetch *fetch, const void *data, size_t n, struct gems_error *err)
{
    int status = fs_write_all(fetch->fd, data, n);

    if (status < 0) {
        return gems_error_errno(err, -status, "%s", fetch->path);
    }
    fetch->bytes += n;
    return GEMS_OK;
}

static int read_tensor(const Gems__TensorHead *head, struct safetensors_tensor *ret_tensor,
                       struct gems_error *err)
{
    struct safetensors_tensor tensor = { .name = head->name, .n_dims = (uint32_t)head->n_dims };
    bool is_f64 = strcmp(head->dtype, "F64") == 0;

    tensor.type = is_f64 ? SAFETENSORS_F64 : SAFETENSORS_F32;
    if (head->n_dims > 4 || (!is_f64 && strcmp(head->dtype, "F32") != 0)) {
        return gems_error_set(err, GEMS_E_PEER, "gemsd: tensor %s is of a form unknown here",
                              head->name);
    }
    for (size_t i = 0; i < head->n_dims; i++) {
        tensor.dims[i] = head->dims[i];
    }
    if (safetensors_bytes(&tensor) != head->bytes) {
        return gems_error_set(err, GEMS_E_PEER,
                              "gemsd: tensor %s has %" PRIu64 " bytes, its shape %" PRIu64,
                              head->name, head->bytes, safetensors_bytes(&tensor));
    }
    *ret_tensor = tensor;
    return GEMS_OK;
}

/* A copy of the head that lives as long as the fetch. */
static Gems__FetchHead *copy_head(const Gems__FetchHead *head)
{
    size_t n = gems__fetch_head__get_packed_size(head);
    uint8_t *bytes = malloc(n + 1);
    Gems__FetchHead *copy = NULL;

    if (bytes) {
        gems__fetch_head__pack(head, bytes);
        copy = gems__fetch_head__unpack(NULL, n, bytes);
    }
    free(bytes);
    return copy;
}

static int write_header(struct fetch *fetch, struct gems_error *err)
{
    const Gems__FetchHead *head = fetch->head;
    size_t n_notes =
        head->n_meta_keys < head->n_meta_values ? head->n_meta_keys : head->n_meta_values;
    struct safetensors_tensor *tensors = calloc(head->n_tensors + 1, sizeof *tensors);
    struct safetensors_note *notes = calloc(n_notes + 1, sizeof *notes);
    void *bytes = NULL;
    size_t n = 0;
    int status = GEMS_OK;

    if (!tensors || !notes) {
        status = gems_error_set(err, GEMS_E_NOMEM, "%s: out of memory", fetch->path);
    }
    for (size_t i = 0; status == GEMS_OK && i < head->n_tensors; i++) {
        status = read_tensor(head->tensors[i], &tensors[i], err);
    }
    for (size_t i = 0; status == GEMS_OK && i < n_notes; i++) {
        notes[i] = (struct safetensors_note){ head->meta_keys[i], head->meta_values[i] };
    }
    if (status == GEMS_OK) {
        status = safetensors_header(tensors, (uint32_t)head->n_tensors, notes, (uint32_t)n_notes,
                                    &bytes, &n, err);
    }
    if (status == GEMS_OK) {
        status = write_bytes(fetch, bytes, n, err);
    }
    free(bytes);
    free(tensors);
    free(notes);
    return status;
}

static int take_head(struct fetch *fetch, const Gems__FetchHead *head, struct gems_error *err)
{
    if (fetch->head) {
        return gems_error_set(err, GEMS_E_PEER, "gemsd: a second head of weights");
    }
    fetch->head = copy_head(head);
    fetch->hash = hash_create(err);
    if (!fetch->head || !fetch->hash) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: out of memory", fetch->path);
    }
    return write_header(fetch, err);
}

/* The tensor is complete: is it what was stored? */
static int check_hash(struct fetch *fetch, const Gems__TensorHead *tensor, struct gems_error *err)
{
    uint8_t value[HASH_BYTES];
    char hex[HASH_HEX_BYTES];

    hash_value(fetch->hash, value);
    hash_to_hex(value, sizeof value, hex);
    hash_destroy(fetch->hash);
    fetch->hash = hash_create(err);
    if (!fetch->hash) {
        return GEMS_E_NOMEM;
    }
    if (tensor->hash[0] && strcmp(tensor->hash, hex) != 0) {
        return gems_error_set(err, GEMS_E_PEER, "tensor %s: damaged on its way (hash %s, not %s)",
                              tensor->name, hex, tensor->hash);
    }
    return GEMS_OK;
}

static int take_data(struct fetch *fetch, const uint8_t *data, size_t n, struct gems_error *err)
{
    while (n > 0 || (fetch->tensor < fetch->head->n_tensors &&
                     fetch->received == fetch->head->tensors[fetch->tensor]->bytes)) {
        const Gems__TensorHead *tensor;
        uint64_t room;
        size_t part;
        int status = GEMS_OK;

        if (fetch->tensor == fetch->head->n_tensors) {
            return gems_error_set(err, GEMS_E_PEER, "gemsd: more bytes than its tensors have");
        }
        tensor = fetch->head->tensors[fetch->tensor];
        room = tensor->bytes - fetch->received;
        part = room < n ? (size_t)room : n;
        hash_add(fetch->hash, data, part);
        status = write_bytes(fetch, data, part, err);
        fetch->received += part;
        data += part;
        n -= part;
        if (status == GEMS_OK && fetch->received == tensor->bytes) {
            status = check_hash(fetch, tensor, err);
            fetch->tensor++;
            fetch->received = 0;
        }
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

int fetch_chunk(void *arg, const ProtobufCMessage *message, struct gems_error *err)
{
    struct fetch *fetch = arg;
    const Gems__FetchChunk *chunk = (const Gems__FetchChunk *)message;
    int status = chunk->head ? take_head(fetch, chunk->head, err) : GEMS_OK;

    if (status == GEMS_OK && !fetch->head) {
        status = gems_error_set(err, GEMS_E_PEER, "gemsd: weights without a head");
    }
    if (status == GEMS_OK) {
        status = take_data(fetch, chunk->data.data, chunk->data.len, err);
    }
    return status < 0 ? status : chunk->last;
}

int fetch_commit(struct fetch *fetch, struct gems_error *err)
{
    mode_t mask = umask(0);
    char folder[PATH_MAX];
    char *slash;

    umask(mask);
    if (!fetch->head || fetch->tensor != fetch->head->n_tensors) {
        return gems_error_set(err, GEMS_E_PEER,
                              "gemsd: the weights ended before their last tensor");
    }
    if (fchmod(fetch->fd, 0666 & ~mask) != 0 || fsync(fetch->fd) != 0) {
        return gems_error_errno(err, errno, "%s", fetch->path);
    }
    if (close(fetch->fd) != 0) {
        fetch->fd = -1;
        return gems_error_errno(err, errno, "%s", fetch->path);
    }
    fetch->fd = -1;
    if (rename(fetch->temporary, fetch->path) != 0) {
        return gems_error_errno(err, errno, "%s", fetch->path);
    }
    fetch->is_written = false;
    snprintf(folder, sizeof folder, "%s", fetch->path);
    slash = strrchr(folder, '/');
    if (slash) {
        slash[slash == folder] = '\0';
    }
    return fs_sync_dir(slash ? folder : ".", err);
}

uint64_t fetch_bytes(const struct fetch *fetch)
{
    return fetch->bytes;
}

uint32_t fetch_tensors(const struct fetch *fetch)
{
    return fetch->head ? (uint32_t)fetch->head->n_tensors : 0;
}

const char *fetch_note(const struct fetch *fetch, const char *key)
{
    for (size_t i = 0;
         fetch->head && i < fetch->head->n_meta_keys && i < fetch->head->n_meta_values; i++) {
        if (strcmp(fetch->head->meta_keys[i], key) == 0) {
            return fetch->head->meta_values[i];
        }
    }
    return "";
}
