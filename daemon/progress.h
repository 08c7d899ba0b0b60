/* How far a job is: sums over the ranks that know, rate and remaining time.
 * Pure: reports and times come in as values.
 *
 * Every rank that holds a last stage reports its own micro-batches of a step;
 * a step counts when all of them have. Reports may come again after a broken
 * connection and in any order between ranks.
 */
#ifndef GEMS_DAEMON_PROGRESS_H
#define GEMS_DAEMON_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROGRESS_PENDING = 64, PROGRESS_TIMES = 64, PROGRESS_SOURCES = 512, PROGRESS_SKIP = 2 };

struct progress_report {
    bool is_eval;
    uint64_t step, samples, n_correct, n_counted;
    uint32_t epoch;
    double loss_sum, seconds;
};

struct progress {
    uint32_t n_sources; /* 0: no attempt */
    struct progress_pending {
        struct progress_report sum;
        uint32_t n_seen;
        uint64_t seen[PROGRESS_SOURCES / 64];
    } pending[PROGRESS_PENDING];
    uint32_t n_pending;
    uint64_t first_step;          /* of this attempt; 0: none yet */
    double times[PROGRESS_TIMES]; /* ring of the last steps */
    uint32_t n_times;
    double eval_seconds, checkpoint_seconds; /* last ones, NaN: none yet */
    /* What is shown. */
    uint64_t step, samples;
    uint32_t epoch;
    double loss, accuracy, eval_loss, eval_accuracy; /* NaN: none yet */
    uint64_t done_step, eval_step;                   /* last complete ones of this attempt */
    uint64_t epoch_correct, epoch_counted;
};

struct progress_rest {
    uint64_t steps_total, steps_per_epoch;
    uint64_t checkpoint_every_steps;
    uint32_t checkpoint_every_epochs;
    bool has_eval;
};

void progress_init(struct progress *progress);
/* A new attempt with that many reporting ranks, behind a step: rates start
 * afresh, results stay. */
void progress_begin(struct progress *progress, uint32_t n_sources, uint64_t step);
/* True if something that is shown has changed. */
bool progress_add(struct progress *progress, uint32_t source, const struct progress_report *report);
/* A step was seen by heartbeat. */
bool progress_step(struct progress *progress, uint64_t step);
/* NaN before there are enough steps. */
double progress_median(const struct progress *progress);
double progress_eta(const struct progress *progress, const struct progress_rest *rest);

#endif
