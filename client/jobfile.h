/* A job file (YAML) and --set options into a struct job_spec.
 *
 * Every key, type and range is checked here, with file, line and column in
 * the message; combinations are spec_check's, whose messages name a key, and
 * jobfile_locate puts the place of that key in front. Unknown and repeated
 * keys are refused. Relative paths in the file start from the file's folder,
 * those of --set from the current one.
 */
#ifndef GEMS_CLIENT_JOBFILE_H
#define GEMS_CLIENT_JOBFILE_H

#include "plan/spec.h"

struct gems_error;

enum { JOBFILE_MAX_KEYS = 64 };

struct jobfile {
    struct job_spec spec;
    const char *label; /* file name as given; borrowed */
    struct jobfile_mark {
        bool is_given, is_option;
        uint32_t line, column; /* from 1 */
    } marks[JOBFILE_MAX_KEYS]; /* by key */
};

/* Reads file ("-" is the standard input) and then applies sets[n_sets], each
 * "key.path=value". Both are borrowed as long as the jobfile is used.
 * GEMS_E_INVALID, GEMS_E_UNSUPPORTED ("not in this version"), GEMS_E_NOMEM. */
int jobfile_load(const char *file, const char *const *sets, size_t n_sets, struct jobfile *ret_job,
                 struct gems_error *err);

/* If err's text begins with a key of the job file, puts "FILE:LINE:COLUMN: "
 * or "--set " in front of it: for messages of spec_check, the planner, gemsd. */
void jobfile_locate(const struct jobfile *job, struct gems_error *err);

#endif
