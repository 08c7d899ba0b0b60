/* The schema, as steps: step i takes version i to i + 1. A step that has been
 * released is never changed; a new version appends one. */
#include "daemon/store_private.h"

#include "common/error.h"

static const char *const steps[STORE_SCHEMA] = {
    "CREATE TABLE jobs("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, user TEXT NOT NULL, key TEXT NOT "
    "NULL,"
    " state TEXT NOT NULL, attempt INTEGER NOT NULL, restarts INTEGER NOT NULL, ending TEXT NOT "
    "NULL,"
    " failure TEXT NOT NULL, reason TEXT NOT NULL, submitted_us INTEGER NOT NULL,"
    " started_us INTEGER NOT NULL, finished_us INTEGER NOT NULL, used_ms INTEGER NOT NULL,"
    " spec BLOB NOT NULL, status BLOB);"
    "CREATE UNIQUE INDEX jobs_by_key ON jobs(user, key) WHERE key <> '';"
    "CREATE INDEX jobs_by_state ON jobs(state);"
    "CREATE TABLE attempts("
    " job INTEGER NOT NULL REFERENCES jobs(id), attempt INTEGER NOT NULL, plan BLOB NOT NULL,"
    " secret BLOB NOT NULL, token TEXT NOT NULL, restore_step INTEGER, PRIMARY KEY(job, attempt));"
    "CREATE TABLE ranks("
    " job INTEGER NOT NULL, attempt INTEGER NOT NULL, rank INTEGER NOT NULL, node TEXT NOT NULL,"
    " device TEXT NOT NULL, backend TEXT NOT NULL, threads INTEGER NOT NULL, memory_bytes INTEGER "
    "NOT NULL,"
    " PRIMARY KEY(job, attempt, rank), FOREIGN KEY(job, attempt) REFERENCES attempts(job, "
    "attempt));"
    "CREATE TABLE events("
    " id INTEGER PRIMARY KEY, job INTEGER NOT NULL REFERENCES jobs(id), when_us INTEGER NOT NULL,"
    " who TEXT NOT NULL, event TEXT NOT NULL, state TEXT NOT NULL, attempt INTEGER NOT NULL,"
    " why TEXT NOT NULL);"
    "CREATE INDEX events_by_job ON events(job);"
    "CREATE TABLE checkpoints("
    " job INTEGER NOT NULL REFERENCES jobs(id), step INTEGER NOT NULL, epoch INTEGER NOT NULL,"
    " samples INTEGER NOT NULL, bytes INTEGER NOT NULL, when_us INTEGER NOT NULL,"
    " attempt INTEGER NOT NULL, is_final INTEGER NOT NULL, trust TEXT NOT NULL,"
    " weights_hash TEXT NOT NULL, eval_accuracy REAL, PRIMARY KEY(job, step));"
    "CREATE TABLE nodes(name TEXT PRIMARY KEY, is_drained INTEGER NOT NULL, reason TEXT NOT NULL);"
    "PRAGMA application_id=1195724115;",
};

static int read_version(sqlite3 *db, int64_t *ret_version, struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    int status = sql_query(db, &stmt, err, "PRAGMA user_version", "");

    if (status >= 0) {
        status = sql_row(stmt, err);
        if (status > 0) {
            *ret_version = sql_int(stmt, 0);
            status = GEMS_OK;
        }
    }
    sql_done(stmt);
    return status;
}

int store_migrate(sqlite3 *db, struct gems_error *err)
{
    int64_t version = 0;
    int status = read_version(db, &version, err);

    if (status < 0) {
        return status;
    }
    if (version < 0 || version > STORE_SCHEMA) {
        gems_error_set(err, GEMS_E_UNSUPPORTED,
                       "database has schema version %lld, this gemsd knows versions up to %d",
                       (long long)version, STORE_SCHEMA);
        gems_error_hint(err, "use the gems version that wrote it, or a newer one");
        return GEMS_E_UNSUPPORTED;
    }
    for (; status >= 0 && version < STORE_SCHEMA; version++) {
        char *sql = sqlite3_mprintf("BEGIN IMMEDIATE; %s PRAGMA user_version=%lld; COMMIT;",
                                    steps[version], (long long)version + 1);

        status =
            sql ? sql_exec(db, sql, err) : gems_error_set(err, GEMS_E_NOMEM, "database: no memory");
        sqlite3_free(sql);
    }
    return status;
}
