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
    struct blocks *sums; /* by (rank * n_stages + stage) * 2 + chain; see sched.c */
    struct gems_error *err;
    /* What generate() is to write: the passes of one group, whose chain 0 takes the
     * micro-batches [first, middle) and chain 1 [middle, last). With one chain middle
     * is last. */
    uint32_t group, width; /* width: devices of the group */
    uint32_t first, middle, last;
};

/* Pass of a stage of a chain on a micro-batch. grad_in, grad_out:
 * GRAD_IN and GRAD_OUT buffer of the pass. */
int sched_forward(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch,
                  uint32_t slot);
int sched_backward(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch,
                   uint32_t slot, uint32_t grad_in, uint32_t grad_out);

/* The same in halves: what the stage before waits for, and the gradients of the
 * weights, in ascending order of the micro-batches. */
int sched_backward_input(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch,
                         uint32_t slot, uint32_t grad_in, uint32_t grad_out);
int sched_backward_weight(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch,
                          uint32_t slot);

struct schedule {
    const char *name; /* in the job file */
    uint32_t n_chains;
    uint32_t chunks;                  /* stages of a device and chain; 0: the job says */
    bool is_one_stage;                /* runs on one device only */
    bool is_available;                /* the executor runs it; others are simulated only */
    bool is_v;                        /* stages lie there and back over the devices */
    bool is_split;                    /* backwards run in halves */
    bool is_even;                     /* on an even number of devices only */
    int (*generate)(struct sched *s); /* NULL: not in this version */
};

/* Row of a kind; NULL for SCHEDULE_AUTO and unknown ones. */
const struct schedule *schedule_find(enum schedule_kind kind);

/* Stages of a device and chain for a job. */
uint32_t schedule_chunks(const struct schedule *schedule, const struct parallel_spec *parallel);

/* GEMS_E_INVALID where the schedule does not run on so many devices. */
int schedule_check_width(const struct schedule *schedule, uint32_t width, struct gems_error *err);

/* Micro-batches of one pass of gems-master, for n passes (0: 2) in a whole step. */
uint32_t sched_pass_microbatches(const struct plan *plan, uint32_t n_passes);

/* Program of a step; *ret_program is owned by the caller. */
int sched_make(const struct sched_input *input, struct program *ret_program,
               struct gems_error *err);

int sched_single(struct sched *s);
int sched_layer(struct sched *s);
int sched_gpipe(struct sched *s);
int sched_gems_mast(struct sched *s);
int sched_gems_master(struct sched *s);
int sched_1f1b(struct sched *s);
int sched_1f1b_interleaved(struct sched *s);
int sched_zb_h1(struct sched *s);
int sched_v_half(struct sched *s);
int sched_v_min(struct sched *s);
int sched_chimera(struct sched *s);
int sched_eval(struct sched *s); /* evaluation, for all of them */

#endif
