/* Starts gems-rank: fork, everything a rank inherits, exec. */
#ifndef GEMS_WORKER_AGENT_LAUNCH_H
#define GEMS_WORKER_AGENT_LAUNCH_H

#include <sys/types.h>

#include "proto/gems.pb-c.h"
#include "worker/agent/settings.h"

struct gems_error;

struct launched {
    pid_t pid;       /* also its process group */
    int output_fd;   /* reading end of its stdout and stderr, non-blocking */
    int lifeline_fd; /* open while the rank may live */
};

/* cgroup: path or "". The rank dies when this thread ends. GEMS_E_INTERNAL:
 * the program cannot be started. */
int launch_rank(const struct settings *settings, const Gems__Launch *launch, const char *cgroup,
                struct launched *ret_launched, struct gems_error *err);

#endif
