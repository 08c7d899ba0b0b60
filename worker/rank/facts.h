/* What this rank's back end says about the operators of its stages.
 *
 * The same questions that gems-inspect asks for the planner, asked again of
 * the device that will run them: layouts and memory of the rank follow from
 * these answers, never from the facts behind the plan. Thread: compute.
 */
#ifndef GEMS_WORKER_RANK_FACTS_H
#define GEMS_WORKER_RANK_FACTS_H

#include "plan/plan.h"
#include "worker/backend/backend.h"

/* Batch sizes of all programs of a plan, each once; training sizes before
 * those that only evaluation has. Returns their number. */
uint32_t facts_batch_sizes(const struct plan *plan, uint32_t ret_sizes[FACTS_MAX_SIZES]);

/* Describes every node of the rank's stages, and every node whose output comes
 * into them, at every batch size; other nodes stay zero. *ret_facts is owned
 * by the caller (fact_set_fini), also after an error. */
int facts_describe(const struct graph *graph, const struct plan *plan, uint32_t rank,
                   const struct backend *backend, struct be_device *device,
                   struct fact_set *ret_facts, struct gems_error *err);

#endif
