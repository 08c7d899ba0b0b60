/* Replies of gemsd as JSON (INTERFACE.md) and as text. */
#ifndef GEMS_CLIENT_VIEW_H
#define GEMS_CLIENT_VIEW_H

#include <jansson.h>

#include "client/output.h"
#include "proto/gems.pb-c.h"

json_t *view_job_json(const Gems__JobInfo *job);
json_t *view_status_json(const Gems__StatusReply *status);
json_t *view_checkpoint_json(const Gems__CheckpointInfo *checkpoint);
json_t *view_jobs_json(Gems__JobInfo *const *jobs, size_t n);
json_t *view_checkpoints_json(Gems__CheckpointInfo *const *checkpoints, size_t n);
json_t *view_nodes_json(Gems__NodeInfo *const *nodes, size_t n);

void view_status(const Gems__StatusReply *status);
void view_jobs(Gems__JobInfo *const *jobs, size_t n);
void view_checkpoints(Gems__CheckpointInfo *const *checkpoints, size_t n);
void view_nodes(Gems__NodeInfo *const *nodes, size_t n);

/* The job is over: SUCCEEDED, FAILED, CANCELLED. */
bool view_is_over(const Gems__JobInfo *job);
/* Exit code of a job that is over. */
int view_exit(const Gems__JobInfo *job);
/* What the progress line shows of a job. */
struct progress view_progress(const Gems__JobInfo *job);

#endif
