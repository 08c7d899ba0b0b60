/* The agent as a whole: one thread, one event loop, these parts.
 *
 *   session  connection to gemsd: registers, takes orders, carries reports
 *   ranks    processes that run or whose end gemsd does not know yet
 *   inspect  short-lived children that answer a planner's questions
 *
 * If gemsd goes away the ranks go on; if the agent goes away they die.
 */
#ifndef GEMS_WORKER_AGENT_AGENT_H
#define GEMS_WORKER_AGENT_AGENT_H

#include "common/list.h"
#include "worker/agent/cgroup.h"
#include "worker/agent/devices.h"
#include "worker/agent/settings.h"

struct event_base;
struct session;

struct agent {
    struct settings settings;
    struct devices devices;
    struct event_base *base;
    struct session *session;
    struct list ranks, inspects;
    int state_fd; /* holds the state folder until the process ends */
    char cgroup_base[CGROUP_PATH_BYTES];
    char kind_cpu[128];                      /* kind of the cpu devices, in gems-inspect's words */
    void (*kind_ready)(struct agent *agent); /* of inspect_kind */
    bool is_stopping;
};

/* Something ended; leaves the loop if the agent stops and nothing is left. */
void agent_check_stop(struct agent *agent);

#endif
