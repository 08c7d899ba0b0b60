/* Which data sets jobs may name on this node.
 *
 * Ranks run as the agent's user, so a job could read with them what its
 * submitter may not. With data_roots a data set lies under one of them;
 * without, the submitter must be the agent's user. Links on the way to a data
 * set are followed first; those inside of it are up to who writes there.
 */
#ifndef GEMS_WORKER_AGENT_ROOTS_H
#define GEMS_WORKER_AGENT_ROOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/conf.h"

struct gems_error;

/* Who has submitted the job: a user of the nodes, or of nowhere. */
struct submitter {
    bool has_uid;
    uint32_t uid;
};

/* GEMS_E_DENIED names path and roots. A path without a file passes under a
 * root: whoever opens it says what is missing. */
int roots_check(const struct conf_list *roots, const struct submitter *who, const char *path,
                struct gems_error *err);

#endif
