/* Configuration files: `key = value` lines under [section] headings.
 *
 * Every key stands in a table; an unknown key, a second value for a key and a
 * bad value are refused with file:line:column and what would be right. A
 * comment is a line that starts with # (or ;). A value may stand in double
 * quotes, with \" and \\ inside. Keys before the first heading have section "".
 */
#ifndef GEMS_COMMON_CONF_H
#define GEMS_COMMON_CONF_H

#include <stddef.h>
#include <stdint.h>

#include "common/units.h"

struct gems_error;

enum conf_kind {
    CONF_STRING,   /* char *, owned by the struct */
    CONF_PATH,     /* char *, owned; must be absolute */
    CONF_LIST,     /* struct conf_list: items separated by spaces or commas */
    CONF_BOOL,     /* bool: yes, no, true, false, on, off */
    CONF_UINT,     /* uint64_t within min..max */
    CONF_SIZE,     /* uint64_t bytes within min..max */
    CONF_DURATION, /* uint64_t ms within min..max */
    CONF_CHOICE    /* int: index into choices */
};

struct conf_list {
    char **items; /* owned, and each of them */
    size_t n;
};

struct conf_key {
    const char *section, *name;
    enum conf_kind kind;
    size_t offset;                /* of the member in the struct that is filled */
    uint64_t min, max;            /* numbers; max 0: no upper limit */
    const char *const *choices;   /* CONF_CHOICE; ends with NULL */
};

struct conf_table {
    const struct conf_key *keys;
    size_t n_keys;
};

/* Fills in what the file gives; the rest of *settings stays (defaults). Strings
 * in *settings must be NULL or malloc'ed. On failure *settings may be partly
 * filled: conf_fini is still right. GEMS_E_NOTFOUND if there is no such file. */
int conf_load(const char *path, const struct conf_table *table, void *settings, struct gems_error *err);

/* Same from memory; name stands for the file in messages. */
int conf_parse(const char *text, size_t n, const char *name, const struct conf_table *table,
               void *settings, struct gems_error *err);

/* One value, as for a command line option. key is "section.name" or "name". */
int conf_set(const struct conf_table *table, void *settings, const char *key, const char *value,
             struct gems_error *err);

/* Frees all strings and lists and clears their members. */
void conf_fini(const struct conf_table *table, void *settings);

#endif
