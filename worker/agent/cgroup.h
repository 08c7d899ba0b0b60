/* A control group for each rank, where systemd has delegated ours (v2 only).
 *
 * It makes a kill reach whatever the rank has started, and tells whether the
 * kernel ended it for memory. Everywhere else the functions do nothing and the
 * process group has to do. */
#ifndef GEMS_WORKER_AGENT_CGROUP_H
#define GEMS_WORKER_AGENT_CGROUP_H

#include <stdbool.h>

enum { CGROUP_PATH_BYTES = 512 };

/* Moves this process into a leaf of its own so that there may be others.
 * ret_base is "" without delegation. */
void cgroup_prepare(char ret_base[CGROUP_PATH_BYTES]);
/* Makes base/name; ret_path is "" if there is none. */
void cgroup_create(const char *base, const char *name, char ret_path[CGROUP_PATH_BYTES]);
/* In the child, before exec. Async-signal-safe. */
void cgroup_enter(const char *path);
void cgroup_kill(const char *path);
bool cgroup_had_oom(const char *path);
void cgroup_remove(const char *path);

#endif
