/* A timeline in the trace format of Chrome (chrome://tracing, Perfetto): JSON with
 * one process a rank, its instructions on thread 0, its messages beside them. The
 * same names, categories and numbers for simulated and measured steps, so that two
 * files can be laid side by side. */
#ifndef GEMS_CLIENT_CHROME_H
#define GEMS_CLIENT_CHROME_H

#include <jansson.h>

#include "plan/timeline.h"

/* about (taken): what is traced, for "otherData". NULL if memory ran out. */
json_t *chrome_json(const struct timeline *timeline, json_t *about);

/* Writes it to a file, "-": stdout. */
int chrome_write(const struct timeline *timeline, json_t *about, const char *path,
                 struct gems_error *err);

#endif
