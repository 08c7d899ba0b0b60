/* One step as it was simulated or measured: what every rank did when. Pure.
 *
 * Both come in the same form, so that one drawing and one writer serve both and
 * they can be laid side by side: spans of the rank's list of instructions, in
 * order and without a gap that is not a wait, and beside them its messages. */
#ifndef GEMS_PLAN_TIMELINE_H
#define GEMS_PLAN_TIMELINE_H

#include "plan/program.h"

/* What a span is. The first four are where a rank's time goes; together they are
 * the step. */
enum timeline_kind {
    TIMELINE_COMPUTE,                  /* passes, updates */
    TIMELINE_WAIT,                     /* for a message, or for samples */
    TIMELINE_REDUCE,                   /* sums of gradients, and handing them over */
    TIMELINE_COPY,                     /* samples into their slot; handing over of messages */
    TIMELINE_SPENT,                    /* their number */
    TIMELINE_MESSAGE = TIMELINE_SPENT, /* from where its receive is posted to its arrival */
    TIMELINE_KIND_COUNT
};

/* "compute", "wait", "reduce", "copy", "message" */
const char *timeline_kind_name(enum timeline_kind kind);

/* What the time of an instruction counts as, waits apart. */
enum timeline_kind timeline_kind_of(enum instr_op op);

#endif
