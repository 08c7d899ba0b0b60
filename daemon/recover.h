/* gemsd's start: jobs as the store has them, attempts that may still run. */
#ifndef GEMS_DAEMON_RECOVER_H
#define GEMS_DAEMON_RECOVER_H

#include "daemon/jobs.h"

/* Loads nodes, live jobs, their attempts and catalogues. Before the threads
 * run and before anybody can connect. */
int recover_load(struct daemon *daemon, struct gems_error *err);
/* Lets every job go on from its state. Ranks of the current attempt are adopted
 * when they join again; who does not come back within the time is lost. */
void recover_begin(struct daemon *daemon);

#endif
