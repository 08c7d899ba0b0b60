#include "daemon/store_sql.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

int sql_error(sqlite3 *db, int code, const char *what, struct gems_error *err)
{
    enum gems_status status = GEMS_E_IO;

    switch (code & 0xff) {
    case SQLITE_FULL:
        status = GEMS_E_DISKFULL;
        break;
    case SQLITE_NOMEM:
        status = GEMS_E_NOMEM;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
        status = GEMS_E_DATA;
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        status = GEMS_E_STATE;
        break;
    default:
        break;
    }
    return gems_error_set(err, status, "%s: %s", what,
                          db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
}

int sql_exec(sqlite3 *db, const char *sql, struct gems_error *err)
{
    int code = sqlite3_exec(db, sql, NULL, NULL, NULL);

    return code == SQLITE_OK ? GEMS_OK : sql_error(db, code, "database", err);
}

static int bind_all(sqlite3_stmt *stmt, const char *format, va_list args)
{
    for (int i = 1; *format; format++, i++) {
        int code = SQLITE_MISUSE;

        if (*format == 'i') {
            code = sqlite3_bind_int64(stmt, i, va_arg(args, int64_t));
        } else if (*format == 's') {
            code = sqlite3_bind_text(stmt, i, va_arg(args, const char *), -1, SQLITE_TRANSIENT);
        } else if (*format == 'd') {
            double value = va_arg(args, double);

            code = isnan(value) ? sqlite3_bind_null(stmt, i) : sqlite3_bind_double(stmt, i, value);
        } else if (*format == 'b') {
            const void *bytes = va_arg(args, const void *);
            size_t n = va_arg(args, size_t);

            /* Alive until the statement is done: the caller's for sql_run,
             * which steps at once; queries bind no blobs. */
            code = sqlite3_bind_blob64(stmt, i, bytes, n, SQLITE_STATIC);
        }
        if (code != SQLITE_OK) {
            return code;
        }
    }
    return SQLITE_OK;
}

static int prepare(sqlite3 *db, sqlite3_stmt **ret_stmt, const char *sql, const char *format,
                   va_list args, struct gems_error *err)
{
    int code = sqlite3_prepare_v2(db, sql, -1, ret_stmt, NULL);

    if (code == SQLITE_OK) {
        code = bind_all(*ret_stmt, format, args);
    }
    if (code != SQLITE_OK) {
        int status = sql_error(db, code, "database", err);

        sqlite3_finalize(*ret_stmt);
        *ret_stmt = NULL;
        return status;
    }
    return GEMS_OK;
}

int sql_run(sqlite3 *db, struct gems_error *err, const char *sql, const char *format, ...)
{
    sqlite3_stmt *stmt = NULL;
    va_list args;
    int status;

    va_start(args, format);
    status = prepare(db, &stmt, sql, format, args, err);
    va_end(args);
    if (status < 0) {
        return status;
    }
    if (sqlite3_step(stmt) != SQLITE_DONE) {
        status = sql_error(db, sqlite3_errcode(db), "database", err);
    }
    sqlite3_finalize(stmt);
    return status;
}

int sql_query(sqlite3 *db, sqlite3_stmt **ret_stmt, struct gems_error *err, const char *sql,
              const char *format, ...)
{
    va_list args;
    int status;

    va_start(args, format);
    status = prepare(db, ret_stmt, sql, format, args, err);
    va_end(args);
    return status;
}

int sql_row(sqlite3_stmt *stmt, struct gems_error *err)
{
    int code = sqlite3_step(stmt);

    if (code == SQLITE_ROW) {
        return 1;
    }
    if (code == SQLITE_DONE) {
        return 0;
    }
    return sql_error(sqlite3_db_handle(stmt), code, "database", err);
}

void sql_done(sqlite3_stmt *stmt)
{
    sqlite3_finalize(stmt);
}

void sql_text(sqlite3_stmt *stmt, int column, char *ret_text, size_t n)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);

    snprintf(ret_text, n, "%s", text ? text : "");
}

int64_t sql_int(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_int64(stmt, column);
}

double sql_double(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL ? NAN
                                                            : sqlite3_column_double(stmt, column);
}

int sql_blob(sqlite3_stmt *stmt, int column, uint8_t **ret_bytes, size_t *ret_n,
             struct gems_error *err)
{
    const void *bytes = sqlite3_column_blob(stmt, column);
    size_t n = (size_t)sqlite3_column_bytes(stmt, column);
    uint8_t *copy = NULL;

    if (n > 0) {
        copy = malloc(n);
        if (!copy) {
            return gems_error_set(err, GEMS_E_NOMEM, "database: no memory for %zu bytes", n);
        }
        memcpy(copy, bytes, n);
    }
    *ret_bytes = copy;
    *ret_n = n;
    return GEMS_OK;
}
