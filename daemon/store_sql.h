/* SQLite in few words, for store*.c and checkpoint*.c only: prepare, bind,
 * step and reset in one call each, and one place that turns SQLite's codes
 * into ours.
 *
 * Formats of parameters, one letter each, bound in order:
 *   i int64_t   s const char * (NULL: null)   d double (NaN: null)
 *   b const void *, size_t (blob)
 */
#ifndef GEMS_DAEMON_STORE_SQL_H
#define GEMS_DAEMON_STORE_SQL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gems_error;

/* Status of an SQLite code, with the text of db: FULL is GEMS_E_DISKFULL,
 * damage GEMS_E_DATA, the rest GEMS_E_IO. */
int sql_error(sqlite3 *db, int code, const char *what, struct gems_error *err);

/* Statements without parameters and results, separated by semicolons. */
int sql_exec(sqlite3 *db, const char *sql, struct gems_error *err);

/* One statement without results. */
int sql_run(sqlite3 *db, struct gems_error *err, const char *sql, const char *format, ...);

/* Prepares and binds; step with sql_row until 0, then sql_done. */
int sql_query(sqlite3 *db, sqlite3_stmt **ret_stmt, struct gems_error *err, const char *sql,
              const char *format, ...);
/* 1: a row; 0: no more; negative: error. */
int sql_row(sqlite3_stmt *stmt, struct gems_error *err);
void sql_done(sqlite3_stmt *stmt); /* also NULL */

/* Columns. Text is copied and cut to n bytes; null is "". */
void sql_text(sqlite3_stmt *stmt, int column, char *ret_text, size_t n);
int64_t sql_int(sqlite3_stmt *stmt, int column);
double sql_double(sqlite3_stmt *stmt, int column); /* null: NaN */
/* Copy of a blob, owned by the caller; NULL and 0 for null. GEMS_E_NOMEM. */
int sql_blob(sqlite3_stmt *stmt, int column, uint8_t **ret_bytes, size_t *ret_n,
             struct gems_error *err);

#endif
