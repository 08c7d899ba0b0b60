/* Ranks of an attempt as processes: launched, joined, started, stopped, gone.
 *
 * An attempt is all or nothing: the first rank that fails ends it and every
 * rank is killed. A rank counts as gone when its agent says so, or when its
 * node is lost. Thread: the loop.
 */
#ifndef GEMS_DAEMON_LAUNCH_H
#define GEMS_DAEMON_LAUNCH_H

#include "daemon/jobs.h"
#include "daemon/nodes.h"

/* Entry actions of STARTING, RUNNING, STOPPING and of the ends. */
void launch_begin(struct daemon *daemon, struct job *job);
void launch_start(struct daemon *daemon, struct job *job);
void launch_stop(struct daemon *daemon, struct job *job);
void launch_end(struct daemon *daemon, struct job *job);

/* An agent is back and says which ranks run. */
void launch_node_back(struct daemon *daemon, struct cluster_node *node,
                      const Gems__Register *message);
void launch_node_lost(struct daemon *daemon, struct cluster_node *node);
void launch_peer_closed(struct peer *peer);
/* The job and rank that a rank's connection speaks for, now seen alive; NULL:
 * its attempt is over. */
struct job *launch_job_of(struct peer *peer, struct rank **ret_rank);

/* No process of this rank is left. */
void launch_rank_gone(struct daemon *daemon, struct job *job, uint32_t rank);
/* Looks whether the attempt has come to its end. */
void launch_check(struct daemon *daemon, struct job *job);

/* Sends a command to every rank that is attached. */
void launch_command(struct job *job, bool is_stop, bool is_checkpoint, const char *reason);
/* Again a Kill to every agent whose rank is not gone. */
void launch_kill(struct daemon *daemon, struct job *job);
/* Launches what no agent has been told yet. */
void launch_retry(struct daemon *daemon, struct job *job);

#endif
