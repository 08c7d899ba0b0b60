/* Watchers of a job: its status on every change, at most four times a second,
 * and once more when it has ended. */
#ifndef GEMS_DAEMON_WATCH_H
#define GEMS_DAEMON_WATCH_H

#include "daemon/jobs.h"

void watch_tick(struct daemon *daemon);
/* The job has ended: last frames. */
void watch_ended(struct job *job);

#endif
