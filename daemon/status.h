/* Jobs as their readers see them. */
#ifndef GEMS_DAEMON_STATUS_H
#define GEMS_DAEMON_STATUS_H

#include "daemon/jobs.h"
#include "daemon/server.h"

/* StatusReply without checkpoints, packed, for the store. */
int status_pack(const struct job *job, struct bytes *ret_status);
/* Sends a live job's status. */
void status_send(struct peer *peer, uint32_t call, uint16_t flags, const struct job *job);
/* Reads and sends the catalogue of a job. */
void status_checkpoints(struct peer *peer, uint32_t call, uint64_t job);
/* Says why a verb is not possible for a job that is not in memory. */
void status_refuse_verb(struct peer *peer, uint32_t call, uint64_t job, enum job_verb verb);
/* Keeps what is known of the ranks beyond the attempt. */
void status_keep_ranks(struct job *job);

#endif
