/* Time against ranks: who does not start, is silent, hangs or does not end. */
#ifndef GEMS_DAEMON_WATCHDOG_H
#define GEMS_DAEMON_WATCHDOG_H

#include "daemon/jobs.h"

void watchdog_tick(struct daemon *daemon);
/* gemsd itself did not run for a while: nobody was silent. */
void watchdog_forgive(struct daemon *daemon, int64_t gap_us);

#endif
