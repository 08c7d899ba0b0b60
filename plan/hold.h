/* Which slots of a rank are held at the same time, and so where they may lie.
 * Part of memory.c.
 *
 * Time runs over the instructions of all programs of the rank, one program after
 * the other: a slot is held from the first to the last instruction of each
 * micro-batch on it, and two slots may overlap if they are never held at once.
 * This is where gems-mast gets its memory back: the generator numbers the slots of
 * its two chains apart and leaves it to their lifetimes to share. */
#ifndef GEMS_PLAN_HOLD_H
#define GEMS_PLAN_HOLD_H

#include "plan/program.h"

struct hold;

/* Does the instruction use its activation slot? */
bool hold_is_on_slot(const struct instr *instr);

/* For n_slots slots and programs of n_instrs instructions in all. */
struct hold *hold_create(uint32_t n_slots, uint32_t n_instrs, struct gems_error *err);
void hold_destroy(struct hold *hold);

/* The next program of the rank. */
void hold_add(struct hold *hold, const struct instr_list *list);

/* Offsets of all slots, given their bytes; after the last program. */
int hold_place(struct hold *hold, const uint64_t *bytes, uint64_t align, uint64_t *ret_offsets,
               uint64_t *ret_total, struct gems_error *err);

#endif
