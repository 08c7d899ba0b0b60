/* Memory under the slots of a rank, as the order of a list sees it: which slots
 * lie over which, and from when on a receive may be posted. */
#ifndef GEMS_PLAN_POST_H
#define GEMS_PLAN_POST_H

#include "plan/memory.h"

/* Slots that overlap with each slot, itself among them. */
struct neighbours {
    uint32_t n_slots;
    uint32_t *first; /* of slot s: items[first[s]] to items[first[s + 1]] */
    uint32_t *items;
};

/* map NULL: n_slots slots that do not overlap. */
int neighbours_make(const struct memory_map *map, uint32_t n_slots,
                    struct neighbours *ret_neighbours, struct gems_error *err);
void neighbours_fini(struct neighbours *neighbours);

/* memory_recv_after for every receive of a list that program_check accepts, in
 * one walk; ret_after[list->n]. */
int post_make(const struct neighbours *neighbours, const struct instr_list *list,
              int64_t *ret_after, struct gems_error *err);

#endif
