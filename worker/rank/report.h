/* What a rank tells gemsd by itself: step reports and heartbeats.
 *
 * Reports go from the compute thread to the communication thread through a
 * ring (one writer, one reader), and from there into a backlog that is sent
 * while gemsd listens. While it does not, the backlog keeps up to
 * REPORT_MAX_KEPT; beyond that the older half of the training steps is
 * dropped, evaluations never.
 */
#ifndef GEMS_WORKER_RANK_REPORT_H
#define GEMS_WORKER_RANK_REPORT_H

#include "common/rpc.h"
#include "worker/rank/trainer.h"

enum { REPORT_RING = 1024, REPORT_MAX_KEPT = 1 << 18 };

struct report {
    struct trainer_step ring[REPORT_RING];
    _Atomic uint32_t written, read;
    struct trainer_step *kept; /* owned; communication thread */
    uint32_t n_kept, first_kept, capacity;
};

void report_fini(struct report *report);
/* Compute thread. Yields while the ring is full. */
void report_push(struct report *report, const struct trainer_step *step);
/* Communication thread: ring to backlog; false: no memory, the rest stays in the ring. */
bool report_collect(struct report *report);
/* Sends the backlog until the connection is full. */
void report_send(struct report *report, struct rpc_conn *conn);

struct report_pulse {
    const struct trainer_watch *watch; /* NULL: not running yet */
    const char *phase;                 /* while there is no watch */
    uint64_t allocated_bytes, bytes_in, bytes_out;
    double busy_fraction;
};
/* Mean seconds of a training step by kind of time; their number, 0: none yet. */
size_t report_step_seconds(const struct trainer_watch *watch, double ret_seconds[TIMELINE_SPENT]);
void report_heartbeat(const struct report_pulse *pulse, struct rpc_conn *conn);

/* Resident bytes now, and at most so far. */
uint64_t report_rss_bytes(void);
uint64_t report_peak_rss_bytes(void);

#endif
