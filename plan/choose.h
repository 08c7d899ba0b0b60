/* The best plan for a given schedule and number of stages: where to cut. */
#ifndef GEMS_PLAN_CHOOSE_H
#define GEMS_PLAN_CHOOSE_H

#include "plan/make.h"

/* input->counts is ignored. Cuts are tried balanced by time and by memory, or as
 * parallel.balance says. One that fits beats one that does not; of two that fit
 * the faster one wins, but a difference below 2 % is left to memory; of two that
 * do not, the one that lacks less. GEMS_E_INVALID: more stages than layers. */
int choose_cut(const struct make_input *input, struct plan *ret_plan, struct gems_error *err);

/* Is a a better plan than b? By the same rule. */
bool choose_is_better(const struct plan *a, const struct plan *b);

/* Bytes of the rank that has most, and what it lacks. */
uint64_t choose_peak(const struct plan *plan);
uint64_t choose_excess(const struct plan *plan);

#endif
