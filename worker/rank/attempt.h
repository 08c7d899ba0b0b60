/* One attempt of a job on one device: from the launch message to End. */
#ifndef GEMS_WORKER_RANK_ATTEMPT_H
#define GEMS_WORKER_RANK_ATTEMPT_H

#include "proto/gems.pb-c.h"

struct gems_error;

/* Joins, trains and reports. GEMS_OK: the job is done and its last checkpoint
 * durable; GEMS_E_CANCELLED: stopped behind a durable checkpoint, as gemsd
 * wished; else it failed. gemsd has been told each of them, as far as it could be
 * reached. Messages and memory are left to the end of the process, which must
 * follow. */
int attempt_run(const Gems__LaunchInfo *info, struct gems_error *err);

#endif
