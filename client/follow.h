/* Watches a job to its end; for watch and submit --wait. */
#ifndef GEMS_CLIENT_FOLLOW_H
#define GEMS_CLIENT_FOLLOW_H

#include <stdio.h>

#include "client/command.h"

struct follow {
    uint64_t job;
    bool is_json;  /* every status as a line of JSON on stdout */
    FILE *lines;   /* where lines go when there is no terminal; NULL: nowhere */
    bool is_known; /* gemsd has answered before: a lost connection is retried at once */
};

/* Exit code of the job, or a negative status. A connection that breaks is made
 * again for two minutes: gemsd may be restarting, the job goes on without it. */
int follow_job(const struct client *client, const struct follow *follow, struct gems_error *err);

#endif
