/* Shared by store*.c. */
#ifndef GEMS_DAEMON_STORE_PRIVATE_H
#define GEMS_DAEMON_STORE_PRIVATE_H

#include "daemon/store.h"
#include "daemon/store_sql.h"

struct store {
    sqlite3 *db;
    char ballast[1024]; /* path */
    uint64_t ballast_bytes;
    bool has_ballast;
};

/* Runs body in one transaction; on a full disk gives the ballast up and tries
 * once more. body must be repeatable. */
typedef int store_body_fn(struct store *store, void *arg, struct gems_error *err);
int store_transact(struct store *store, store_body_fn *body, void *arg, struct gems_error *err);

/* Brings the schema to STORE_SCHEMA. */
int store_migrate(sqlite3 *db, struct gems_error *err);

/* Room for one more element of size bytes in a growing array. */
void *store_grow(void *items, size_t n, size_t size);

#endif
