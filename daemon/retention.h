/* Which checkpoints of a job may go. Pure. */
#ifndef GEMS_DAEMON_RETENTION_H
#define GEMS_DAEMON_RETENTION_H

#include "daemon/store.h"

/* rows newest first. Kept: the newest `keep` that are not damaged (at least
 * one), and the `keep_best` with the best evaluation. ret_drop[n]: true for
 * those that may go. Damaged ones go as soon as a good one is newer. */
void retention_pick(const struct store_checkpoint *rows, size_t n, uint32_t keep,
                    uint32_t keep_best, bool *ret_drop);

#endif
