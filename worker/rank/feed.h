/* What a rank will load, in order: the loader's sequence, from the programs.
 *
 * The loader reads ahead over steps, epochs and evaluation passes. It asks in
 * its own threads, one at a time; nothing else touches a feed meanwhile.
 */
#ifndef GEMS_WORKER_RANK_FEED_H
#define GEMS_WORKER_RANK_FEED_H

#include "worker/data/loader.h"
#include "worker/rank/prepare.h"

/* One LOAD of a program. */
struct feed_load {
    uint64_t first; /* sample, from the program's first */
    uint32_t n;
    bool has_images, has_labels;
};

struct feed_program {
    struct feed_load *loads; /* owned */
    uint32_t n;
    uint64_t samples; /* of one run */
};

struct feed {
    const struct job_spec *spec;
    const struct plan *plan;
    struct feed_program programs[PROGRAM_KIND_COUNT];
    bool has_images, has_labels; /* any of them */
    /* where the next item is */
    uint64_t step; /* of training, from 1; the evaluation behind it has the same */
    bool is_eval;
    uint64_t sample; /* first of the run, within its epoch or evaluation */
    uint32_t load_i;
};

int feed_init(struct feed *feed, const struct job_spec *spec, const struct plan *plan,
              uint32_t rank, struct gems_error *err);
void feed_fini(struct feed *feed); /* also of a zeroed one */
/* Next: the first load of the step behind `step`. */
void feed_start(struct feed *feed, uint64_t step);
/* A loader_sequence_fn; arg is the feed. */
bool feed_next(void *arg, uint64_t i, struct loader_item *ret_item);

/* Program of a training step (from 1), and of an evaluation run that starts at
 * a sample. */
enum program_kind feed_train_kind(const struct plan *plan, uint64_t step);
enum program_kind feed_eval_kind(const struct plan *plan, uint64_t sample);
/* First sample of a training step (from 1), counted within its epoch. */
uint64_t feed_first_sample(const struct plan *plan, uint64_t step);
/* Samples of one run of a program. */
uint64_t feed_samples(const struct plan *plan, enum program_kind kind);

#endif
