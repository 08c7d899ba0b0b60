/* Generators of programs: one file and one row of the table each.
 *
 * A generator says in which order each rank runs its forward and backward
 * passes, and on which slots; sched_forward and sched_backward write what
 * belongs to a pass (load, receives, the pass, sends, sums of gradients), and
 * sched_make ends every program with reduction and update. So what is common to
 * all schedules stands here once, and a generator is its order alone. */
#ifndef GEMS_PLAN_SCHED_H
#define GEMS_PLAN_SCHED_H

#include "plan/blocks.h"
#include "plan/plan.h"

/* What a program is made from. */
struct sched_input {
    const struct plan *plan;  /* stages, chains, blocks, edges */
    const bool *has_gradient; /* by node of an edge: does a gradient come back? */
    bool is_eval;
    uint32_t n_microbatches, microbatch, last_microbatch;
    uint32_t first_slot; /* slots are numbered from here */
};

/* A program being written. */
struct sched {
    const struct sched_input *input;
    const struct plan *plan;
    struct program *program;
    struct blocks *sums; /* by rank * n_stages + stage */
    struct gems_error *err;
};

/* Pass of a stage of a chain on a micro-batch. grad_buffer: GRAD_IN and
 * GRAD_OUT buffer of the pass. */
int sched_forward(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch,
                  uint32_t slot);
int sched_backward(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch,
                   uint32_t slot, uint32_t grad_buffer);

struct schedule {
    const char *name; /* in the job file */
    uint32_t n_chains;
    bool is_one_stage;                /* runs on one device only */
    bool is_pipelined;                /* more than one stage works at a time: the slowest decides */
    int (*generate)(struct sched *s); /* NULL: not in this version */
};

/* Row of a kind; NULL for SCHEDULE_AUTO and unknown ones. */
const struct schedule *schedule_find(enum schedule_kind kind);

/* Program of a step; *ret_program is owned by the caller. */
int sched_make(const struct sched_input *input, struct program *ret_program,
               struct gems_error *err);

int sched_single(struct sched *s);
int sched_layer(struct sched *s);
int sched_gpipe(struct sched *s);
int sched_gems_mast(struct sched *s);
int sched_eval(struct sched *s); /* evaluation, for all of them */

#endif
