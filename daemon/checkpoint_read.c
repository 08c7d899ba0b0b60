#include "daemon/checkpoint_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "daemon/store_sql.h"

struct checkpoint_reader {
    sqlite3 *db;
    char path[1024];
    struct checkpoint_meta meta;
    char weights_hash[HASH_HEX_BYTES];
    struct checkpoint_tensor *tensors; /* owned */
    int64_t *ids;                      /* owned, parallel: keys of the tensors */
    uint32_t n;
};

/* Whatever SQLite says about a file that should be whole means damage. */
static int damaged(const struct checkpoint_reader *reader, const char *what, struct gems_error *err)
{
    return gems_error_set(err, GEMS_E_DATA, "%s: damaged: %s", reader->path, what);
}

static int damaged_by(const struct checkpoint_reader *reader, int status, struct gems_error *err)
{
    char text[256];

    if (status == GEMS_E_NOMEM) {
        return status;
    }
    snprintf(text, sizeof text, "%.200s", sqlite3_errmsg(reader->db));
    return damaged(reader, text, err);
}

static int read_int(struct checkpoint_reader *reader, const char *sql, int64_t *ret_value,
                    struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    int status = sql_query(reader->db, &stmt, err, sql, "");

    if (status >= 0) {
        status = sql_row(stmt, err);
        if (status > 0) {
            *ret_value = sql_int(stmt, 0);
        } else if (status == 0) {
            status = GEMS_E_DATA;
        }
    }
    sql_done(stmt);
    return status < 0 ? damaged_by(reader, status, err) : GEMS_OK;
}

static int read_meta(struct checkpoint_reader *reader, struct gems_error *err)
{
    struct checkpoint_meta *meta = &reader->meta;
    sqlite3_stmt *stmt = NULL;
    int status = sql_query(
        reader->db, &stmt, err,
        "SELECT job, step, epoch, samples, seed, attempt, when_us, is_final, weights_hash,"
        " n_tensors FROM meta",
        "");

    if (status >= 0) {
        status = sql_row(stmt, err);
    }
    if (status > 0) {
        meta->job = (uint64_t)sql_int(stmt, 0);
        meta->step = (uint64_t)sql_int(stmt, 1);
        meta->end.epoch = (uint32_t)sql_int(stmt, 2);
        meta->end.samples = (uint64_t)sql_int(stmt, 3);
        meta->seed = (uint64_t)sql_int(stmt, 4);
        meta->attempt = (uint32_t)sql_int(stmt, 5);
        meta->when_us = sql_int(stmt, 6);
        meta->end.is_final = sql_int(stmt, 7) != 0;
        sql_text(stmt, 8, reader->weights_hash, sizeof reader->weights_hash);
        reader->n = meta->end.n_tensors = (uint32_t)sql_int(stmt, 9);
    }
    sql_done(stmt);
    if (status < 0) {
        return damaged_by(reader, status, err);
    }
    if (status == 0 || reader->n > CHECKPOINT_MAX_TENSORS) {
        return damaged(reader, "table meta is empty or wrong", err);
    }
    return GEMS_OK;
}

static bool parse_dims(const char *text, struct checkpoint_tensor *tensor)
{
    while (*text) {
        char *end;

        if (tensor->n_dims == CHECKPOINT_MAX_DIMS) {
            return false;
        }
        tensor->dims[tensor->n_dims++] = strtoull(text, &end, 10);
        if (end == text || (*end != ',' && *end != '\0')) {
            return false;
        }
        text = *end ? end + 1 : end;
    }
    return true;
}

static int read_tensor(struct checkpoint_reader *reader, sqlite3_stmt *stmt, uint32_t i,
                       struct gems_error *err)
{
    struct checkpoint_tensor *tensor = &reader->tensors[i];
    char dims[96];

    reader->ids[i] = sql_int(stmt, 0);
    sql_text(stmt, 1, tensor->kind, sizeof tensor->kind);
    tensor->order = (uint32_t)sql_int(stmt, 2);
    sql_text(stmt, 3, tensor->name, sizeof tensor->name);
    sql_text(stmt, 4, dims, sizeof dims);
    tensor->bytes = (uint64_t)sql_int(stmt, 5);
    if (!parse_dims(dims, tensor) || sqlite3_column_bytes(stmt, 6) != HASH_BYTES) {
        return damaged(reader, "a row of tensors is wrong", err);
    }
    memcpy(tensor->hash, sqlite3_column_blob(stmt, 6), HASH_BYTES);
    return GEMS_OK;
}

static int read_tensors(struct checkpoint_reader *reader, struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    uint32_t i = 0;
    int status;

    reader->tensors = calloc(reader->n + 1, sizeof *reader->tensors);
    reader->ids = calloc(reader->n + 1, sizeof *reader->ids);
    if (!reader->tensors || !reader->ids) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory", reader->path);
    }
    status = sql_query(
        reader->db, &stmt, err,
        "SELECT id, kind, ord, name, dims, bytes, hash FROM tensors ORDER BY kind, ord", "");
    while (status >= 0 && (status = sql_row(stmt, err)) > 0) {
        if (i == reader->n) {
            status = damaged(reader, "more tensors than announced", err);
            break;
        }
        status = read_tensor(reader, stmt, i, err);
        i++;
    }
    sql_done(stmt);
    if (status < 0) {
        return status == GEMS_E_DATA && err && err->status == GEMS_E_DATA
                   ? status
                   : damaged_by(reader, status, err);
    }
    return i == reader->n ? GEMS_OK : damaged(reader, "tensors are missing", err);
}

static int check_head(struct checkpoint_reader *reader, struct gems_error *err)
{
    int64_t application = 0, version = 0;
    int status = read_int(reader, "PRAGMA application_id", &application, err);

    if (status >= 0) {
        status = read_int(reader, "PRAGMA user_version", &version, err);
    }
    if (status < 0) {
        return status;
    }
    if (application != CHECKPOINT_APPLICATION) {
        return damaged(reader, "not a checkpoint of gems", err);
    }
    if (version > CHECKPOINT_VERSION) {
        return gems_error_set(err, GEMS_E_UNSUPPORTED,
                              "%s: format version %lld, this gemsd knows up to %d", reader->path,
                              (long long)version, CHECKPOINT_VERSION);
    }
    return GEMS_OK;
}

int checkpoint_reader_open(const char *path, struct checkpoint_reader **ret_reader,
                           struct gems_error *err)
{
    struct checkpoint_reader *reader;
    int code, status;

    if (access(path, R_OK) < 0) {
        return gems_error_errno(err, errno, "%s", path);
    }
    reader = calloc(1, sizeof *reader);
    if (!reader) {
        return gems_error_set(err, GEMS_E_NOMEM, "checkpoint: no memory");
    }
    snprintf(reader->path, sizeof reader->path, "%s", path);
    code = sqlite3_open_v2(path, &reader->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
    status = code == SQLITE_OK ? GEMS_OK : sql_error(reader->db, code, path, err);
    if (status >= 0) {
        status = check_head(reader, err);
    }
    if (status >= 0) {
        status = read_meta(reader, err);
    }
    if (status >= 0) {
        status = read_tensors(reader, err);
    }
    if (status < 0) {
        checkpoint_reader_close(reader);
        return status;
    }
    *ret_reader = reader;
    return GEMS_OK;
}

void checkpoint_reader_close(struct checkpoint_reader *reader)
{
    if (reader) {
        sqlite3_close(reader->db);
        free(reader->tensors);
        free(reader->ids);
        free(reader);
    }
}

const struct checkpoint_meta *checkpoint_reader_meta(const struct checkpoint_reader *reader)
{
    return &reader->meta;
}

const char *checkpoint_reader_weights_hash(const struct checkpoint_reader *reader)
{
    return reader->weights_hash;
}

const struct checkpoint_tensor *checkpoint_reader_tensor(const struct checkpoint_reader *reader,
                                                         uint32_t i)
{
    return i < reader->n ? &reader->tensors[i] : NULL;
}

int checkpoint_reader_find(const struct checkpoint_reader *reader, const char *kind,
                           const char *name)
{
    for (uint32_t i = 0; i < reader->n; i++) {
        if (!strcmp(reader->tensors[i].name, name) && !strcmp(reader->tensors[i].kind, kind)) {
            return (int)i;
        }
    }
    return GEMS_E_NOTFOUND;
}

/* Takes a chunk row apart. */
static int take_chunk(struct checkpoint_reader *reader, sqlite3_stmt *stmt, uint32_t i,
                      uint64_t offset, uint8_t **ret_data, size_t *ret_n, struct gems_error *err)
{
    const struct checkpoint_tensor *tensor = &reader->tensors[i];
    uint8_t hash[HASH_BYTES], *data = NULL;
    size_t n = 0;
    int status;

    if ((uint64_t)sql_int(stmt, 0) != offset || sqlite3_column_bytes(stmt, 1) != HASH_BYTES) {
        return damaged(reader, tensor->name, err);
    }
    status = sql_blob(stmt, 2, &data, &n, err);
    if (status < 0) {
        return status;
    }
    hash_of(data, n, hash);
    if (n == 0 || n > tensor->bytes - offset ||
        memcmp(hash, sqlite3_column_blob(stmt, 1), HASH_BYTES) != 0) {
        free(data);
        return gems_error_set(err, GEMS_E_DATA,
                              "%s: damaged: %s %s at %llu: checksum does not match", reader->path,
                              tensor->kind, tensor->name, (unsigned long long)offset);
    }
    *ret_data = data;
    *ret_n = n;
    return GEMS_OK;
}

int checkpoint_reader_chunk(struct checkpoint_reader *reader, uint32_t i, uint64_t chunk_i,
                            uint64_t offset, uint8_t **ret_data, size_t *ret_n,
                            struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    int status;

    if (offset >= reader->tensors[i].bytes) {
        return gems_error_set(err, GEMS_E_INVALID, "%s: %s has no chunk at %llu", reader->path,
                              reader->tensors[i].name, (unsigned long long)offset);
    }
    status = sql_query(reader->db, &stmt, err, "SELECT position, hash, data FROM chunks WHERE id=?",
                       "i", checkpoint_chunk_key(reader->ids[i], chunk_i));
    if (status >= 0) {
        status = sql_row(stmt, err);
    }
    if (status < 0) {
        status = damaged_by(reader, status, err);
    } else if (status == 0) {
        status = damaged(reader, "a chunk is missing", err);
    } else {
        status = take_chunk(reader, stmt, i, offset, ret_data, ret_n, err);
    }
    sql_done(stmt);
    return status;
}

static int verify_tensor(struct checkpoint_reader *reader, uint32_t i, struct gems_error *err)
{
    const struct checkpoint_tensor *tensor = &reader->tensors[i];
    struct hash_stream *stream = hash_create(err);
    uint8_t hash[HASH_BYTES];
    int status = stream ? GEMS_OK : GEMS_E_NOMEM;

    for (uint64_t offset = 0, chunk_i = 0; status >= 0 && offset < tensor->bytes; chunk_i++) {
        uint8_t *data = NULL;
        size_t n = 0;

        status = checkpoint_reader_chunk(reader, i, chunk_i, offset, &data, &n, err);
        if (status >= 0) {
            hash_add(stream, data, n);
            offset += n;
        }
        free(data);
    }
    if (status >= 0) {
        hash_value(stream, hash);
        if (memcmp(hash, tensor->hash, sizeof hash) != 0) {
            status = gems_error_set(err, GEMS_E_DATA, "%s: damaged: %s %s: hash does not match",
                                    reader->path, tensor->kind, tensor->name);
        }
    }
    hash_destroy(stream);
    return status;
}

int checkpoint_verify(const char *path, struct gems_error *err)
{
    struct checkpoint_reader *reader;
    char hash[HASH_HEX_BYTES];
    int status = checkpoint_reader_open(path, &reader, err);

    if (status < 0) {
        return status;
    }
    for (uint32_t i = 0; status >= 0 && i < reader->n; i++) {
        status = verify_tensor(reader, i, err);
    }
    if (status >= 0 && (checkpoint_weights_hash(reader->tensors, reader->n, hash, err) < 0 ||
                        strcmp(hash, reader->weights_hash) != 0)) {
        status = damaged(reader, "weights_hash does not match", err);
    }
    checkpoint_reader_close(reader);
    return status;
}
