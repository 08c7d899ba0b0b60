#include "daemon/store_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fsutil.h"

static int configure(sqlite3 *db, struct gems_error *err)
{
    /* The order matters: EXCLUSIVE before WAL means that no shared-memory
     * index is ever made. The first read takes the lock. */
    return sql_exec(db,
                    "PRAGMA locking_mode=EXCLUSIVE;"
                    "PRAGMA journal_mode=WAL;"
                    "PRAGMA synchronous=FULL;"
                    "PRAGMA foreign_keys=ON;"
                    "PRAGMA trusted_schema=OFF;"
                    "PRAGMA journal_size_limit=16777216;"
                    "BEGIN EXCLUSIVE; COMMIT;",
                    err);
}

static int check_file(sqlite3 *db, struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    char verdict[256] = "";
    int status = sql_query(db, &stmt, err, "PRAGMA quick_check(1)", "");

    if (status >= 0) {
        status = sql_row(stmt, err);
        if (status > 0) {
            sql_text(stmt, 0, verdict, sizeof verdict);
        }
    }
    sql_done(stmt);
    if (status < 0) {
        return status;
    }
    return !strcmp(verdict, "ok")
               ? GEMS_OK
               : gems_error_set(err, GEMS_E_DATA, "database is damaged: %s", verdict);
}

int store_open(const char *dir, uint64_t ballast_bytes, struct store **ret_store,
               struct gems_error *err)
{
    struct store *store = calloc(1, sizeof *store);
    char path[1024];
    int status, code;

    if (!store) {
        return gems_error_set(err, GEMS_E_NOMEM, "store: no memory");
    }
    snprintf(path, sizeof path, "%s/gems.db", dir);
    snprintf(store->ballast, sizeof store->ballast, "%s/ballast", dir);
    store->ballast_bytes = ballast_bytes;
    store->has_ballast = access(store->ballast, F_OK) == 0;
    code = sqlite3_open_v2(path, &store->db,
                           SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                               SQLITE_OPEN_PRIVATECACHE,
                           NULL);
    status = code == SQLITE_OK ? GEMS_OK : sql_error(store->db, code, path, err);
    if (status >= 0) {
        sqlite3_extended_result_codes(store->db, 1);
        status = configure(store->db, err);
        if (status == GEMS_E_STATE) {
            gems_error_set(err, status, "%s: another gemsd uses this state directory", path);
        }
    }
    if (status >= 0) {
        status = check_file(store->db, err);
    }
    if (status >= 0) {
        status = store_migrate(store->db, err);
    }
    if (status < 0) {
        if (status == GEMS_E_DATA && err) {
            gems_error_hint(err, "%s is left as it is: restore a copy or move it away", path);
        }
        store_close(store);
        return status;
    }
    store_keep(store);
    *ret_store = store;
    return GEMS_OK;
}

void store_close(struct store *store)
{
    if (store) {
        sqlite3_close(store->db);
        free(store);
    }
}

void store_keep(struct store *store)
{
    int fd;

    if (store->has_ballast || store->ballast_bytes == 0) {
        return;
    }
    fd = open(store->ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return;
    }
    store->has_ballast = posix_fallocate(fd, 0, (off_t)store->ballast_bytes) == 0;
    close(fd);
    if (!store->has_ballast) {
        unlink(store->ballast);
    }
}

static int transact_once(struct store *store, store_body_fn *body, void *arg,
                         struct gems_error *err)
{
    int status = sql_exec(store->db, "BEGIN IMMEDIATE", err);

    if (status < 0) {
        return status;
    }
    status = body(store, arg, err);
    if (status >= 0) {
        int commit = sql_exec(store->db, "COMMIT", err);

        if (commit >= 0) {
            return status;
        }
        status = commit;
    }
    /* SQLite may have rolled back by itself (full disk). */
    if (!sqlite3_get_autocommit(store->db)) {
        sql_exec(store->db, "ROLLBACK", NULL);
    }
    return status;
}

int store_transact(struct store *store, store_body_fn *body, void *arg, struct gems_error *err)
{
    int status = transact_once(store, body, arg, err);

    if (status == GEMS_E_DISKFULL && store->has_ballast) {
        unlink(store->ballast);
        store->has_ballast = false;
        status = transact_once(store, body, arg, err);
        /* The room must come back to the log of the next transaction too. */
        sql_exec(store->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL);
    }
    return status;
}

void *store_grow(void *items, size_t n, size_t size)
{
    if (n & (n - 1) || (n == 0 && items)) {
        return items;
    }
    return realloc(items, (n ? 2 * n : 1) * size);
}
