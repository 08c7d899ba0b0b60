/* Followed logs look for new lines. */
#ifndef GEMS_DAEMON_LOGS_H
#define GEMS_DAEMON_LOGS_H

#include "daemon/jobs.h"

void logs_tick(struct daemon *daemon);

#endif
