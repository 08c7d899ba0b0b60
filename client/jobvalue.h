/* Conversion of a YAML node into one field of struct job_spec, by the type of
 * its key. The texts of errors are made here. Internal to jobkey. */
#ifndef GEMS_CLIENT_JOBVALUE_H
#define GEMS_CLIENT_JOBVALUE_H

#include "client/jobkey.h"

enum key_type {
    KEY_U32, /* whole number in [min, max]; "auto" stands for 0 if has_auto */
    KEY_U64,
    KEY_REAL,     /* number in [min, max] */
    KEY_BOOL,     /* true or false */
    KEY_TEXT,     /* free text that fits `bytes` */
    KEY_PATH,     /* file or prefix, made absolute */
    KEY_CHOICE,   /* one of `choices` */
    KEY_SCHEDULE, /* parallel.schedule: the names of plan/spec */
    KEY_SIZE,     /* bytes: 16GiB */
    KEY_DURATION, /* seconds: 4h */
    KEY_HEIGHT_WIDTH,
    KEY_HIDDEN,
    KEY_AUGMENT,
    KEY_BETAS,
    KEY_BALANCE,
    KEY_DEVICES,
    KEY_LATER /* known, but not in this version */
};

struct choice {
    const char *name;
    int value; /* negative: a later version */
};

struct key {
    const char *path;
    enum key_type type;
    size_t offset;
    double min, max;
    bool has_auto;
    size_t bytes;                 /* KEY_TEXT */
    const struct choice *choices; /* KEY_CHOICE, ends with a NULL name */
};

/* "a, b, c" grows at the end of text. */
struct name_list {
    char *text;
    size_t n, used;
};
void name_list_add(void *list, const char *name);

int jobvalue_read(const struct key *key, const struct jobkey_source *source, yaml_node_t *node,
                  struct job_spec *spec, struct gems_error *err);

#endif
