/* Everything that reads gems.db. */
#include "daemon/store_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

#define JOB_COLUMNS                                                                                \
    "id, name, user, key, state, attempt, restarts, ending, failure, reason, submitted_us,"        \
    " started_us, finished_us, used_ms, spec, status"

void store_job_fini(struct store_job *job)
{
    free(job->spec.data);
    free(job->status.data);
    memset(job, 0, sizeof *job);
}

void store_attempt_fini(struct store_attempt *attempt)
{
    free(attempt->plan.data);
    free(attempt->ranks);
    memset(attempt, 0, sizeof *attempt);
}

static int read_name(sqlite3_stmt *stmt, int column, int (*from_name)(const char *),
                     struct gems_error *err)
{
    char name[32];
    int value;

    sql_text(stmt, column, name, sizeof name);
    value = from_name(name);
    return value >= 0 ? value
                      : gems_error_set(err, GEMS_E_DATA, "database: unknown %s \"%s\" of job %lld",
                                       sqlite3_column_name(stmt, column), name,
                                       (long long)sql_int(stmt, 0));
}

static int read_job(sqlite3_stmt *stmt, struct store_job *ret_job, struct gems_error *err)
{
    struct store_job job = { .id = (uint64_t)sql_int(stmt, 0) };
    int state = read_name(stmt, 4, job_state_from_name, err);
    int ending = read_name(stmt, 7, job_ending_from_name, err);
    int failure = read_name(stmt, 8, failure_from_name, err);
    int status;

    if (state < 0 || ending < 0 || failure < 0) {
        return GEMS_E_DATA;
    }
    sql_text(stmt, 1, job.name, sizeof job.name);
    sql_text(stmt, 2, job.user, sizeof job.user);
    sql_text(stmt, 3, job.key, sizeof job.key);
    job.core.state = (enum job_state)state;
    job.core.attempt = (uint32_t)sql_int(stmt, 5);
    job.core.restarts = (uint32_t)sql_int(stmt, 6);
    job.core.ending = (enum job_ending)ending;
    job.core.failure = (enum failure_class)failure;
    sql_text(stmt, 9, job.core.reason, sizeof job.core.reason);
    job.submitted_us = sql_int(stmt, 10);
    job.started_us = sql_int(stmt, 11);
    job.finished_us = sql_int(stmt, 12);
    job.used_ms = sql_int(stmt, 13);
    status = sql_blob(stmt, 14, &job.spec.data, &job.spec.n, err);
    if (status >= 0) {
        status = sql_blob(stmt, 15, &job.status.data, &job.status.n, err);
    }
    if (status < 0) {
        store_job_fini(&job);
        return status;
    }
    *ret_job = job;
    return GEMS_OK;
}

static int read_jobs(sqlite3_stmt *stmt, struct store_job **ret_jobs, size_t *ret_n,
                     struct gems_error *err)
{
    struct store_job *jobs = NULL;
    size_t n = 0;
    int status;

    while ((status = sql_row(stmt, err)) > 0) {
        struct store_job *grown = store_grow(jobs, n, sizeof *jobs);

        if (!grown) {
            status = gems_error_set(err, GEMS_E_NOMEM, "database: no memory for %zu jobs", n + 1);
            break;
        }
        jobs = grown;
        status = read_job(stmt, &jobs[n], err);
        if (status < 0) {
            break;
        }
        n++;
    }
    if (status < 0) {
        for (size_t i = 0; i < n; i++) {
            store_job_fini(&jobs[i]);
        }
        free(jobs);
        return status;
    }
    *ret_jobs = jobs;
    *ret_n = n;
    return GEMS_OK;
}

int store_job(struct store *store, uint64_t id, struct store_job *ret_job, struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    int status = sql_query(store->db, &stmt, err, "SELECT " JOB_COLUMNS " FROM jobs WHERE id=?",
                           "i", (int64_t)id);

    if (status >= 0) {
        status = sql_row(stmt, err);
        if (status > 0) {
            status = read_job(stmt, ret_job, err);
        } else if (status == 0) {
            status = gems_error_set(err, GEMS_E_NOTFOUND, "job %llu: no such job",
                                    (unsigned long long)id);
        }
    }
    sql_done(stmt);
    return status;
}

int store_live_jobs(struct store *store, struct store_job **ret_jobs, size_t *ret_n,
                    struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    int status = sql_query(store->db, &stmt, err,
                           "SELECT " JOB_COLUMNS " FROM jobs WHERE state NOT IN"
                           " ('SUCCEEDED', 'FAILED', 'CANCELLED') ORDER BY id",
                           "");

    if (status >= 0) {
        status = read_jobs(stmt, ret_jobs, ret_n, err);
    }
    sql_done(stmt);
    return status;
}

int store_list(struct store *store, unsigned states, size_t limit, struct store_job **ret_jobs,
               size_t *ret_n, struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    char sql[512];
    size_t n = (size_t)snprintf(sql, sizeof sql, "SELECT " JOB_COLUMNS " FROM jobs");
    int status;

    for (int i = 0, k = 0; states && i < JOB_STATE_COUNT; i++) {
        if (states & 1u << i) {
            n += (size_t)snprintf(sql + n, sizeof sql - n, "%s'%s'",
                                  k++ ? ", " : " WHERE state IN (",
                                  job_state_name((enum job_state)i));
        }
    }
    snprintf(sql + n, sizeof sql - n, "%s ORDER BY id DESC LIMIT ?", states ? ")" : "");
    status = sql_query(store->db, &stmt, err, sql, "i", (int64_t)limit);
    if (status >= 0) {
        status = read_jobs(stmt, ret_jobs, ret_n, err);
    }
    sql_done(stmt);
    return status;
}

static int read_ranks(struct store *store, uint64_t job, uint32_t number,
                      struct store_attempt *attempt, struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    int status = sql_query(store->db, &stmt, err,
                           "SELECT node, device, backend, threads, memory_bytes FROM ranks"
                           " WHERE job=? AND attempt=? ORDER BY rank",
                           "ii", (int64_t)job, (int64_t)number);

    while (status >= 0 && (status = sql_row(stmt, err)) > 0) {
        struct store_rank *grown = store_grow(attempt->ranks, attempt->n_ranks, sizeof *grown);
        struct store_rank *rank;

        if (!grown) {
            status = gems_error_set(err, GEMS_E_NOMEM, "database: no memory for ranks");
            break;
        }
        attempt->ranks = grown;
        rank = &grown[attempt->n_ranks++];
        sql_text(stmt, 0, rank->node, sizeof rank->node);
        sql_text(stmt, 1, rank->device, sizeof rank->device);
        sql_text(stmt, 2, rank->backend, sizeof rank->backend);
        rank->threads = (uint32_t)sql_int(stmt, 3);
        rank->memory_bytes = (uint64_t)sql_int(stmt, 4);
    }
    sql_done(stmt);
    return status;
}

static int read_attempt(sqlite3_stmt *stmt, struct store_attempt *attempt, struct gems_error *err)
{
    const void *secret = sqlite3_column_blob(stmt, 1);

    if (sqlite3_column_bytes(stmt, 1) != (int)sizeof attempt->secret) {
        return gems_error_set(err, GEMS_E_DATA,
                              "database: secret of an attempt has a wrong length");
    }
    memcpy(attempt->secret, secret, sizeof attempt->secret);
    sql_text(stmt, 2, attempt->token, sizeof attempt->token);
    attempt->has_restore = sqlite3_column_type(stmt, 3) != SQLITE_NULL;
    attempt->restore_step = (uint64_t)sql_int(stmt, 3);
    return sql_blob(stmt, 0, &attempt->plan.data, &attempt->plan.n, err);
}

int store_attempt(struct store *store, uint64_t job, uint32_t attempt,
                  struct store_attempt *ret_attempt, struct gems_error *err)
{
    struct store_attempt row = { 0 };
    sqlite3_stmt *stmt = NULL;
    int status = sql_query(
        store->db, &stmt, err,
        "SELECT plan, secret, token, restore_step FROM attempts WHERE job=? AND attempt=?", "ii",
        (int64_t)job, (int64_t)attempt);

    if (status >= 0) {
        status = sql_row(stmt, err);
        if (status > 0) {
            status = read_attempt(stmt, &row, err);
        } else if (status == 0) {
            status = gems_error_set(err, GEMS_E_NOTFOUND, "job %llu: no attempt %u is stored",
                                    (unsigned long long)job, attempt);
        }
    }
    sql_done(stmt);
    if (status >= 0) {
        status = read_ranks(store, job, attempt, &row, err);
    }
    if (status < 0) {
        store_attempt_fini(&row);
        return status;
    }
    *ret_attempt = row;
    return GEMS_OK;
}

/* Reads all rows into an array of `size`-byte elements. */
static int read_all(sqlite3_stmt *stmt, size_t size,
                    int (*read)(sqlite3_stmt *, void *, struct gems_error *), void **ret_rows,
                    size_t *ret_n, struct gems_error *err)
{
    char *rows = NULL;
    size_t n = 0;
    int status;

    while ((status = sql_row(stmt, err)) > 0) {
        char *grown = store_grow(rows, n, size);

        if (!grown) {
            status = gems_error_set(err, GEMS_E_NOMEM, "database: no memory for %zu rows", n + 1);
            break;
        }
        rows = grown;
        memset(rows + n * size, 0, size);
        status = read(stmt, rows + n * size, err);
        if (status < 0) {
            break;
        }
        n++;
    }
    if (status < 0) {
        free(rows);
        return status;
    }
    *ret_rows = rows;
    *ret_n = n;
    return GEMS_OK;
}

static int read_event(sqlite3_stmt *stmt, void *row, struct gems_error *err)
{
    struct store_event *event = row;

    (void)err;
    event->when_us = sql_int(stmt, 0);
    sql_text(stmt, 1, event->who, sizeof event->who);
    sql_text(stmt, 2, event->event, sizeof event->event);
    sql_text(stmt, 3, event->state, sizeof event->state);
    event->attempt = (uint32_t)sql_int(stmt, 4);
    sql_text(stmt, 5, event->why, sizeof event->why);
    return GEMS_OK;
}

int store_events(struct store *store, uint64_t job, struct store_event **ret_events, size_t *ret_n,
                 struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    void *rows = NULL;
    int status = sql_query(
        store->db, &stmt, err,
        "SELECT when_us, who, event, state, attempt, why FROM events WHERE job=? ORDER BY id", "i",
        (int64_t)job);

    if (status >= 0) {
        status = read_all(stmt, sizeof(struct store_event), read_event, &rows, ret_n, err);
    }
    sql_done(stmt);
    *ret_events = rows;
    return status;
}

static int read_checkpoint(sqlite3_stmt *stmt, void *row, struct gems_error *err)
{
    struct store_checkpoint *checkpoint = row;
    char trust[16];

    checkpoint->job = (uint64_t)sql_int(stmt, 0);
    checkpoint->step = (uint64_t)sql_int(stmt, 1);
    checkpoint->epoch = (uint32_t)sql_int(stmt, 2);
    checkpoint->samples = (uint64_t)sql_int(stmt, 3);
    checkpoint->bytes = (uint64_t)sql_int(stmt, 4);
    checkpoint->when_us = sql_int(stmt, 5);
    checkpoint->attempt = (uint32_t)sql_int(stmt, 6);
    checkpoint->is_final = sql_int(stmt, 7) != 0;
    sql_text(stmt, 8, trust, sizeof trust);
    sql_text(stmt, 9, checkpoint->weights_hash, sizeof checkpoint->weights_hash);
    checkpoint->eval_accuracy = sql_double(stmt, 10);
    if (!strcmp(trust, "written")) {
        checkpoint->trust = CHECKPOINT_WRITTEN;
    } else if (!strcmp(trust, "verified")) {
        checkpoint->trust = CHECKPOINT_VERIFIED;
    } else if (!strcmp(trust, "damaged")) {
        checkpoint->trust = CHECKPOINT_DAMAGED;
    } else {
        return gems_error_set(err, GEMS_E_DATA, "database: unknown trust \"%s\" of a checkpoint",
                              trust);
    }
    return GEMS_OK;
}

int store_checkpoints(struct store *store, uint64_t job, struct store_checkpoint **ret_rows,
                      size_t *ret_n, struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    void *rows = NULL;
    int status =
        sql_query(store->db, &stmt, err,
                  "SELECT job, step, epoch, samples, bytes, when_us, attempt, is_final, trust,"
                  " weights_hash, eval_accuracy FROM checkpoints WHERE job=? ORDER BY step DESC",
                  "i", (int64_t)job);

    if (status >= 0) {
        status =
            read_all(stmt, sizeof(struct store_checkpoint), read_checkpoint, &rows, ret_n, err);
    }
    sql_done(stmt);
    *ret_rows = rows;
    return status;
}

static int read_node(sqlite3_stmt *stmt, void *row, struct gems_error *err)
{
    struct store_node *node = row;

    (void)err;
    sql_text(stmt, 0, node->name, sizeof node->name);
    node->is_drained = sql_int(stmt, 1) != 0;
    sql_text(stmt, 2, node->reason, sizeof node->reason);
    return GEMS_OK;
}

int store_nodes(struct store *store, struct store_node **ret_nodes, size_t *ret_n,
                struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    void *rows = NULL;
    int status = sql_query(store->db, &stmt, err, "SELECT name, is_drained, reason FROM nodes", "");

    if (status >= 0) {
        status = read_all(stmt, sizeof(struct store_node), read_node, &rows, ret_n, err);
    }
    sql_done(stmt);
    *ret_nodes = rows;
    return status;
}
