/* Proof that a program does what a step is: refuses anything else. */
#ifndef GEMS_PLAN_CHECK_H
#define GEMS_PLAN_CHECK_H

#include "plan/memory.h"
#include "plan/plan.h"

/* Checks that
 *   every stage runs every micro-batch once: forward, then (in training)
 *     backward in ascending order on each copy, with the receives and sends of
 *     exactly its edges and, at the ends, its load;
 *   every message has one sender and one receiver that agree on it;
 *   no slot and no buffer is used by two micro-batches at once, also where slots
 *     overlap in memory (maps, by rank; NULL: numbers alone), and nothing is
 *     read that was not written;
 *   the sums of gradients are those of the tree over the blocks, over all copies,
 *     and every resident stage is reduced among all its copies, updated once, and
 *     gathered;
 *   no order of events can stop it, on any machine.
 * has_gradient: by node of an edge, does a gradient come back. GEMS_E_INTERNAL
 * names rank and instruction. */
int program_check(const struct plan *plan, const bool *has_gradient, const struct program *program,
                  const struct memory_map *maps, struct gems_error *err);

#endif
