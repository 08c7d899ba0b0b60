/* The keys of a job file: one const table that says for each its type, range
 * and place in struct job_spec, and the conversion of a YAML node into it.
 *
 * client/jobfile walks documents and asks here; nothing else in the client
 * knows a key by name. Internal to jobfile. Pure but for realpath of the base.
 */
#ifndef GEMS_CLIENT_JOBKEY_H
#define GEMS_CLIENT_JOBKEY_H

#include <stdbool.h>

#include <yaml.h>

#include "plan/spec.h"

enum { JOBKEY_COUNT = 54, JOBKEY_PATH_BYTES = 64 };

/* Where the values come from, for messages and relative paths. */
struct jobkey_source {
    yaml_document_t *document;
    const char *label; /* file name as the user gave it, or "--set" */
    bool has_lines;    /* messages carry line and column */
    const char *base;  /* absolute directory that relative paths start from */
};

/* Index of a full path ("model.depth"), or negative. */
int jobkey_find(const char *path);
const char *jobkey_path(int key);
/* Number of a section ("model": 0, ...), or negative. */
int jobkey_section(const char *name);

/* "schedule, stages, ..." of a section ("" for the top level); what this
 * version does not have is left out. */
void jobkey_list(const char *section, char *text, size_t n);
/* The key of that section that is spelled most like name, or NULL. */
const char *jobkey_nearest(const char *section, const char *name);

/* Converts node and stores it. GEMS_E_INVALID, or GEMS_E_UNSUPPORTED for a
 * value that a later version will have. */
int jobkey_read(int key, const struct jobkey_source *source, yaml_node_t *node,
                struct job_spec *spec, struct gems_error *err);

/* GEMS_E_INVALID (or status) at a node: "FILE:3:5: PATH: ...". */
int jobkey_error(const struct jobkey_source *source, const yaml_node_t *node, int status,
                 const char *path, struct gems_error *err, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

#endif
