/* Checkpoints of running jobs: received from ranks, made durable, catalogued,
 * acknowledged; kept, verified and dropped.
 *
 * Files lie in STATE/checkpoints/JOB. A session is one checkpoint on its way:
 * its file is written in the writer thread; ranks whose pieces pile up are
 * held back. Order of effects: file durable, row durable, ranks told.
 * Thread: the loop.
 */
#ifndef GEMS_DAEMON_CHECKPOINTS_H
#define GEMS_DAEMON_CHECKPOINTS_H

#include "daemon/jobs.h"

void checkpoints_dir(const struct daemon *daemon, uint64_t job, char *ret_path, size_t n);

/* NULL: no such checkpoint. */
struct store_checkpoint *checkpoints_row(struct job *job, uint64_t step);
/* A new one is durable: it is kept in mind, read again, and old ones may go. */
void checkpoints_add(struct daemon *daemon, struct job *job, const struct store_checkpoint *row);

/* sessions.c. Gives up what was received so far. */
void checkpoints_abandon(struct attempt *attempt);

/* Input of this rank is held back. */
bool checkpoints_is_holding(struct job *job, uint32_t rank);
void checkpoints_evaluated(struct daemon *daemon, struct job *job, uint64_t step, double accuracy);

/* Finds the newest checkpoint that is whole, reading each one completely;
 * damaged ones are marked and told. done: has_step false if there is none. */
typedef void checkpoints_pick_fn(struct daemon *daemon, uint64_t job, uint64_t serial,
                                 bool has_step, uint64_t step);
int checkpoints_pick(struct daemon *daemon, struct job *job, uint64_t serial,
                     checkpoints_pick_fn *done, struct gems_error *err);

/* Notes what a reading of a checkpoint has shown; damage NULL: whole. */
void checkpoints_verdict(struct daemon *daemon, struct job *job, uint64_t step, const char *damage);

/* Reads the catalogue of a live job; at start, before the threads run. Removes
 * half-written files. */
int checkpoints_load(struct daemon *daemon, struct job *job, struct gems_error *err);

#endif
