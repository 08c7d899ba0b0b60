#include "daemon/checkpoint_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fsutil.h"
#include "daemon/store_sql.h"

struct pending {
    struct checkpoint_tensor tensor;
    struct hash_stream *stream;
    uint64_t done;   /* bytes so far */
    uint64_t chunks; /* so far */
};

struct checkpoint_writer {
    sqlite3 *db;
    char dir[768], temporary[1024], path[1024];
    struct pending *tensors; /* owned; tensor id is index + 1 */
    uint32_t n, capacity, last;
};

void checkpoint_path(const char *dir, uint64_t step, char *ret_path, size_t n)
{
    snprintf(ret_path, n, "%s/%012llu.ckpt", dir, (unsigned long long)step);
}

static const char schema[] =
    "PRAGMA page_size=65536;"
    "PRAGMA journal_mode=DELETE;"
    "PRAGMA synchronous=FULL;"
    "PRAGMA cache_size=-16384;"
    "BEGIN;"
    "PRAGMA application_id=1195724099;"
    "PRAGMA user_version=1;"
    "CREATE TABLE meta("
    " job INTEGER NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL, samples INTEGER NOT "
    "NULL,"
    " seed INTEGER NOT NULL, attempt INTEGER NOT NULL, when_us INTEGER NOT NULL, is_final INTEGER "
    "NOT NULL,"
    " spec BLOB NOT NULL, weights_hash TEXT NOT NULL, n_tensors INTEGER NOT NULL);"
    "CREATE TABLE tensors("
    " id INTEGER PRIMARY KEY, kind TEXT NOT NULL, ord INTEGER NOT NULL, name TEXT NOT NULL,"
    " dims TEXT NOT NULL, bytes INTEGER NOT NULL, hash BLOB NOT NULL, UNIQUE(kind, name));"
    "CREATE TABLE chunks("
    " id INTEGER PRIMARY KEY, position INTEGER NOT NULL, hash BLOB NOT NULL, data BLOB NOT NULL);";

static int open_file(struct checkpoint_writer *writer, const struct checkpoint_meta *meta,
                     const void *spec, size_t n_spec, struct gems_error *err)
{
    int code, status;

    unlink(writer->temporary);
    code = sqlite3_open_v2(writer->temporary, &writer->db,
                           SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK) {
        return sql_error(writer->db, code, writer->temporary, err);
    }
    status = sql_exec(writer->db, schema, err);
    if (status < 0) {
        return status;
    }
    return sql_run(writer->db, err, "INSERT INTO meta VALUES(?, ?, 0, 0, ?, ?, ?, 0, ?, '', 0)",
                   "iiiiib", (int64_t)meta->job, (int64_t)meta->step, (int64_t)meta->seed,
                   (int64_t)meta->attempt, meta->when_us, n_spec ? spec : "", n_spec);
}

int checkpoint_writer_create(const char *dir, const struct checkpoint_meta *meta, const void *spec,
                             size_t n_spec, struct checkpoint_writer **ret_writer,
                             struct gems_error *err)
{
    struct checkpoint_writer *writer = calloc(1, sizeof *writer);
    int status;

    if (!writer) {
        return gems_error_set(err, GEMS_E_NOMEM, "checkpoint: no memory");
    }
    snprintf(writer->dir, sizeof writer->dir, "%s", dir);
    snprintf(writer->temporary, sizeof writer->temporary, "%s/.%012llu.tmp", writer->dir,
             (unsigned long long)meta->step);
    checkpoint_path(writer->dir, meta->step, writer->path, sizeof writer->path);
    status = fs_mkdirs(dir, 0750, err);
    if (status >= 0) {
        status = open_file(writer, meta, spec, n_spec, err);
    }
    if (status < 0) {
        checkpoint_writer_destroy(writer);
        return status;
    }
    *ret_writer = writer;
    return GEMS_OK;
}

void checkpoint_writer_destroy(struct checkpoint_writer *writer)
{
    if (!writer) {
        return;
    }
    if (writer->db) {
        char journal[1040];

        /* Not committed: closing rolls back, and the file goes. */
        sqlite3_close(writer->db);
        snprintf(journal, sizeof journal, "%s-journal", writer->temporary);
        unlink(journal);
        unlink(writer->temporary);
    }
    for (uint32_t i = 0; i < writer->n; i++) {
        hash_destroy(writer->tensors[i].stream);
    }
    free(writer->tensors);
    free(writer);
}

static int check_shard(const struct checkpoint_shard *shard, struct gems_error *err)
{
    uint8_t hash[HASH_BYTES];
    uint64_t count = 1;

    if (!shard->name[0] || strlen(shard->name) >= CHECKPOINT_NAME_BYTES || !shard->kind[0] ||
        strlen(shard->kind) >= CHECKPOINT_KIND_BYTES) {
        return gems_error_set(err, GEMS_E_INVALID, "checkpoint: bad tensor name or kind");
    }
    for (uint32_t i = 0; i < shard->n_dims && i < CHECKPOINT_MAX_DIMS; i++) {
        if (shard->dims[i] == 0 || __builtin_mul_overflow(count, shard->dims[i], &count)) {
            count = 0;
            break;
        }
    }
    if (shard->n_dims > CHECKPOINT_MAX_DIMS || count == 0 ||
        (shard->total != count * 4 && shard->total != count * 8)) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "checkpoint: %s %s: %llu bytes do not fit its dimensions",
                              shard->kind, shard->name, (unsigned long long)shard->total);
    }
    if (shard->n == 0 || shard->n > CHECKPOINT_MAX_CHUNK || shard->offset > shard->total ||
        shard->n > shard->total - shard->offset) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "checkpoint: %s %s: %zu bytes at %llu are outside of %llu",
                              shard->kind, shard->name, shard->n, (unsigned long long)shard->offset,
                              (unsigned long long)shard->total);
    }
    hash_of(shard->data, shard->n, hash);
    if (memcmp(hash, shard->hash, sizeof hash) != 0) {
        return gems_error_set(err, GEMS_E_DATA,
                              "checkpoint: %s %s at %llu: checksum does not match", shard->kind,
                              shard->name, (unsigned long long)shard->offset);
    }
    return GEMS_OK;
}

static bool is_named(const struct pending *pending, const struct checkpoint_shard *shard)
{
    return !strcmp(pending->tensor.name, shard->name) && !strcmp(pending->tensor.kind, shard->kind);
}

static int new_tensor(struct checkpoint_writer *writer, const struct checkpoint_shard *shard,
                      struct gems_error *err)
{
    struct pending *pending;

    if (writer->n == CHECKPOINT_MAX_TENSORS) {
        return gems_error_set(err, GEMS_E_INVALID, "checkpoint: more than %d tensors",
                              CHECKPOINT_MAX_TENSORS);
    }
    if (writer->n == writer->capacity) {
        uint32_t capacity = writer->capacity ? 2 * writer->capacity : 64;
        struct pending *grown = realloc(writer->tensors, capacity * sizeof *grown);

        if (!grown) {
            return gems_error_set(err, GEMS_E_NOMEM, "checkpoint: no memory");
        }
        writer->tensors = grown;
        writer->capacity = capacity;
    }
    pending = &writer->tensors[writer->n];
    memset(pending, 0, sizeof *pending);
    pending->stream = hash_create(err);
    if (!pending->stream) {
        return GEMS_E_NOMEM;
    }
    snprintf(pending->tensor.name, sizeof pending->tensor.name, "%s", shard->name);
    snprintf(pending->tensor.kind, sizeof pending->tensor.kind, "%s", shard->kind);
    pending->tensor.order = shard->order;
    pending->tensor.n_dims = shard->n_dims;
    memcpy(pending->tensor.dims, shard->dims, sizeof shard->dims);
    pending->tensor.bytes = shard->total;
    writer->last = writer->n++;
    return GEMS_OK;
}

/* The tensor of a shard; a new one if its name is new. */
static int find_tensor(struct checkpoint_writer *writer, const struct checkpoint_shard *shard,
                       struct pending **ret_pending, struct gems_error *err)
{
    int status = GEMS_OK;

    if (writer->n == 0 || !is_named(&writer->tensors[writer->last], shard)) {
        uint32_t i = 0;

        while (i < writer->n && !is_named(&writer->tensors[i], shard)) {
            i++;
        }
        if (i == writer->n) {
            status = new_tensor(writer, shard, err);
        } else {
            writer->last = i;
        }
    }
    *ret_pending = &writer->tensors[writer->last];
    return status;
}

/* A rank that lost its connection sends its tensors again. */
static int restart_tensor(struct checkpoint_writer *writer, struct pending *pending, int64_t id,
                          struct gems_error *err)
{
    hash_destroy(pending->stream);
    pending->done = pending->chunks = 0;
    pending->stream = hash_create(err);
    if (!pending->stream) {
        return GEMS_E_NOMEM;
    }
    return sql_run(writer->db, err, "DELETE FROM chunks WHERE id >= ? AND id < ?", "ii",
                   checkpoint_chunk_key(id, 0), checkpoint_chunk_key(id + 1, 0));
}

int checkpoint_writer_add(struct checkpoint_writer *writer, const struct checkpoint_shard *shard,
                          struct gems_error *err)
{
    struct pending *pending;
    int64_t id;
    int status = check_shard(shard, err);

    if (status >= 0) {
        status = find_tensor(writer, shard, &pending, err);
    }
    if (status < 0) {
        return status;
    }
    id = (int64_t)writer->last + 1;
    if (shard->offset == 0 && pending->done > 0) {
        status = restart_tensor(writer, pending, id, err);
        if (status < 0) {
            return status;
        }
    }
    if (shard->offset != pending->done || shard->total != pending->tensor.bytes ||
        shard->order != pending->tensor.order || shard->n_dims != pending->tensor.n_dims ||
        memcmp(shard->dims, pending->tensor.dims, sizeof shard->dims) != 0) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "checkpoint: %s %s: piece at %llu does not follow %llu", shard->kind,
                              shard->name, (unsigned long long)shard->offset,
                              (unsigned long long)pending->done);
    }
    status = sql_run(writer->db, err, "INSERT INTO chunks VALUES(?, ?, ?, ?)", "iibb",
                     checkpoint_chunk_key(id, pending->chunks), (int64_t)shard->offset, shard->hash,
                     sizeof shard->hash, shard->data, shard->n);
    if (status < 0) {
        return status;
    }
    hash_add(pending->stream, shard->data, shard->n);
    pending->done += shard->n;
    pending->chunks++;
    return GEMS_OK;
}

static int compare_tensors(const void *a, const void *b)
{
    const struct checkpoint_tensor *x = a, *y = b;
    int kind = strcmp(x->kind, y->kind);

    return kind ? kind : x->order < y->order ? -1 : x->order > y->order;
}

int checkpoint_weights_hash(const struct checkpoint_tensor *tensors, uint32_t n,
                            char ret_hash[HASH_HEX_BYTES], struct gems_error *err)
{
    struct hash_stream *stream = hash_create(err);
    uint8_t hash[HASH_BYTES];
    uint32_t order = 0;

    if (!stream) {
        return GEMS_E_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(tensors[i].kind, "weight") != 0) {
            continue;
        }
        if (tensors[i].order != order) {
            hash_destroy(stream);
            return gems_error_set(err, GEMS_E_INVALID,
                                  "checkpoint: weight number %u is missing or twice there", order);
        }
        hash_add(stream, tensors[i].name, strlen(tensors[i].name) + 1);
        hash_add(stream, tensors[i].hash, HASH_BYTES);
        order++;
    }
    hash_value(stream, hash);
    hash_destroy(stream);
    hash_to_hex(hash, sizeof hash, ret_hash);
    return GEMS_OK;
}

static int write_tensors(struct checkpoint_writer *writer, struct gems_error *err)
{
    for (uint32_t i = 0; i < writer->n; i++) {
        struct pending *pending = &writer->tensors[i];
        struct checkpoint_tensor *tensor = &pending->tensor;
        char dims[96] = "";
        size_t k = 0;
        int status;

        if (pending->done != tensor->bytes) {
            return gems_error_set(err, GEMS_E_INVALID, "checkpoint: %s %s has %llu of %llu bytes",
                                  tensor->kind, tensor->name, (unsigned long long)pending->done,
                                  (unsigned long long)tensor->bytes);
        }
        hash_value(pending->stream, tensor->hash);
        for (uint32_t d = 0; d < tensor->n_dims; d++) {
            k += (size_t)snprintf(dims + k, sizeof dims - k, "%s%llu", d ? "," : "",
                                  (unsigned long long)tensor->dims[d]);
        }
        status =
            sql_run(writer->db, err, "INSERT INTO tensors VALUES(?, ?, ?, ?, ?, ?, ?)", "isissib",
                    (int64_t)i + 1, tensor->kind, (int64_t)tensor->order, tensor->name, dims,
                    (int64_t)tensor->bytes, tensor->hash, sizeof tensor->hash);
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

static int hash_weights(struct checkpoint_writer *writer, char ret_hash[HASH_HEX_BYTES],
                        struct gems_error *err)
{
    struct checkpoint_tensor *sorted = calloc(writer->n ? writer->n : 1, sizeof *sorted);
    int status;

    if (!sorted) {
        return gems_error_set(err, GEMS_E_NOMEM, "checkpoint: no memory");
    }
    for (uint32_t i = 0; i < writer->n; i++) {
        sorted[i] = writer->tensors[i].tensor;
    }
    qsort(sorted, writer->n, sizeof *sorted, compare_tensors);
    status = checkpoint_weights_hash(sorted, writer->n, ret_hash, err);
    free(sorted);
    return status;
}

/* Everything is in the file: give it its name, durably. */
static int name_file(struct checkpoint_writer *writer, struct checkpoint_result *ret_result,
                     struct gems_error *err)
{
    struct stat st;
    int code = sqlite3_close(writer->db);

    writer->db = NULL;
    if (code != SQLITE_OK) {
        return sql_error(NULL, code, writer->temporary, err);
    }
    if (stat(writer->temporary, &st) < 0 || rename(writer->temporary, writer->path) < 0) {
        int status = gems_error_errno(err, errno, "%s", writer->temporary);

        unlink(writer->temporary);
        return status;
    }
    ret_result->bytes = (uint64_t)st.st_size;
    return fs_sync_dir(writer->dir, err);
}

int checkpoint_writer_commit(struct checkpoint_writer *writer, const struct checkpoint_end *end,
                             struct checkpoint_result *ret_result, struct gems_error *err)
{
    struct checkpoint_result result = { 0 };
    int status;

    if (writer->n != end->n_tensors) {
        return gems_error_set(err, GEMS_E_INVALID, "checkpoint: %u tensors came, %u were announced",
                              writer->n, end->n_tensors);
    }
    status = write_tensors(writer, err);
    if (status >= 0) {
        status = hash_weights(writer, result.weights_hash, err);
    }
    if (status >= 0) {
        status = sql_run(writer->db, err,
                         "UPDATE meta SET epoch=?, samples=?, is_final=?, weights_hash=?, n_tensors=?",
                         "iiisi", (int64_t)end->epoch, (int64_t)end->samples, (int64_t)end->is_final,
                         result.weights_hash, (int64_t)writer->n);
    }
    if (status >= 0) {
        status = sql_exec(writer->db, "COMMIT", err);
    }
    if (status >= 0) {
        status = name_file(writer, &result, err);
    }
    if (status >= 0) {
        *ret_result = result;
    }
    return status;
}
