/* The gradients of a step with symbols: a buffer holds the hash of the sum that it
 * stands for, built by adding and combining as the program does. Part of check.c. */
#ifndef GEMS_PLAN_CHECK_SUM_H
#define GEMS_PLAN_CHECK_SUM_H

#include "plan/plan.h"

enum { CHECK_MAX_BUFFERS = 64 };

/* Sums of one stage on one rank. Zeroed at the start of a step. */
struct check_sum {
    uint64_t buffers[CHECK_MAX_BUFFERS]; /* 0: empty */
    bool is_reduced, is_updated, is_gathered;
    uint32_t mask; /* copies with gradients, as its REDUCE says */
};

/* Each returns NULL, or what is wrong. */
const char *check_sum_backward(struct check_sum *sum, const struct instr *backward);
const char *check_sum_combine(struct check_sum *sum, const struct instr *combine);
/* REDUCE, UPDATE, GATHER on copy `own` of n. */
const char *check_sum_finish(struct check_sum *sum, const struct instr *instr, uint32_t own,
                             uint32_t n);
/* After the step: are the copies of the stage updated with the sum of the tree
 * over the blocks? sums: by rank * n_stages + stage. */
const char *check_sum_stage(const struct plan *plan, const struct program *program,
                            const struct check_sum *sums, uint32_t stage);

#endif
