/* The ranks of this node, from Launch until gemsd knows of their end. */
#ifndef GEMS_WORKER_AGENT_RANKS_H
#define GEMS_WORKER_AGENT_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "proto/gems.pb-c.h"

struct agent;
struct gems_error;

/* Starts a rank. GEMS_OK also if it is there already (a repeated Launch).
 * GEMS_E_STATE: device taken, or a newer attempt of the job was here. */
int ranks_launch(struct agent *agent, const Gems__Launch *launch, struct gems_error *err);
/* SIGTERM, and SIGKILL after grace_ms; 0: SIGKILL at once. No such rank: nothing. */
void ranks_kill(struct agent *agent, const Gems__RankRef *ref, uint32_t grace_ms);
void ranks_kill_all(struct agent *agent);
/* A child ended; false: not a rank. */
bool ranks_reaped(struct agent *agent, pid_t pid, int wait_status, const struct rusage *usage);

/* All that gemsd must hear of at Register: borrowed until the next change.
 * refs has room for ranks_count. */
size_t ranks_count(const struct agent *agent);
void ranks_refs(const struct agent *agent, Gems__RankRef *refs);
/* Registered: sends what is not acknowledged. */
void ranks_online(struct agent *agent);
/* The connection is gone, and the calls on it. */
void ranks_offline(struct agent *agent);
/* An answer came; false: no rank waits for it. */
bool ranks_answered(struct agent *agent, uint32_t call, bool is_ok);
/* Whether any process lives, or an end is not known to gemsd. */
bool ranks_any(const struct agent *agent);
void ranks_destroy_all(struct agent *agent);

#endif
