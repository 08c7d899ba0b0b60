/* Which job gets devices, and how it will run on them.
 *
 * In order of submission; a job whose devices are registered but busy holds
 * back those behind it, so that small jobs cannot starve a large one. Devices
 * are reserved all or none before the plan is made. Thread: the loop.
 */
#ifndef GEMS_DAEMON_PLACE_H
#define GEMS_DAEMON_PLACE_H

#include "daemon/jobs.h"

/* Entry action of PLACING. */
void place_begin(struct daemon *daemon, struct job *job);
/* Looks through the queue; a job that must wait gets its reason. */
void place_pass(struct daemon *daemon);

#endif
