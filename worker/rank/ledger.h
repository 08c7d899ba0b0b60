/* Where the time of the compute thread goes in a program: compute, wait, reduce,
 * copy (plan/timeline.h).
 *
 * A clock with four hands of which always one runs: it is moved on at the borders
 * of instructions and around waits, so the four add up to the time of the program
 * by construction, and an instruction that costs no clock of its own cannot hide.
 * A wait is where link_wait blocks (a message that is there already costs none) or
 * the loader does.
 *
 * Thread: compute. */
#ifndef GEMS_WORKER_RANK_LEDGER_H
#define GEMS_WORKER_RANK_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "plan/timeline.h"

struct ledger {
    bool is_open;            /* between begin and end */
    enum timeline_kind kind; /* what runs now */
    uint64_t since_ns;       /* since when */
    uint64_t program_ns[TIMELINE_SPENT];
    uint64_t total_ns[TIMELINE_SPENT]; /* over all programs, up to since_ns */
    /* Training steps: all but the first two, unless there are no others. */
    uint64_t n_steps, steps_ns[TIMELINE_SPENT];
};

void ledger_begin(struct ledger *ledger);
/* The next instruction; its time counts as its kind from here on. */
void ledger_next(struct ledger *ledger, enum instr_op op);
/* From here on time counts as kind; returns what it counted as before. Without
 * effect outside of a program. */
enum timeline_kind ledger_turn(struct ledger *ledger, enum timeline_kind kind);
/* is_step: it was a step of training, which ledger_step_ns counts. */
void ledger_end(struct ledger *ledger, bool is_step);

/* Mean of a training step so far, by kind. */
uint64_t ledger_step_ns(const struct ledger *ledger, enum timeline_kind kind);

#endif
