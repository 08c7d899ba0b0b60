/* One step as it was simulated or measured: what every rank did when. Pure.
 *
 * Both come in the same form, so that one drawing and one writer serve both and
 * they can be laid side by side: spans of the rank's list of instructions, in
 * order and without a gap that is not a wait, and beside them its messages.
 * RECV has no span of its own, only its message: posting takes no time. */
#ifndef GEMS_PLAN_TIMELINE_H
#define GEMS_PLAN_TIMELINE_H

#include "plan/program.h"

struct sim_result;

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

struct timeline_span {
    double start, end; /* seconds since the step began */
    enum timeline_kind kind;
    struct instr instr; /* whose time it is; of a message its RECV */
};

struct timeline_rank {
    struct timeline_span *spans; /* owned; in order, a message where it was noticed */
    uint32_t n, capacity;
    char label[160]; /* where it ran; empty: nowhere */
};

struct timeline {
    uint32_t n_ranks;
    struct timeline_rank *ranks; /* owned */
    double seconds;              /* of the whole step */
};

/* "compute", "wait", "reduce", "copy", "message" */
const char *timeline_kind_name(enum timeline_kind kind);

/* What the time of an instruction counts as, waits apart. */
enum timeline_kind timeline_kind_of(enum instr_op op);

/* "FORWARD s1 m2" (stage, micro-batch), "UPDATE s1", of a message "ACT e0 m2" (edge):
 * the names in every trace. */
enum { TIMELINE_NAME_BYTES = 64 };
const char *timeline_name(const struct timeline_span *span, char ret_name[TIMELINE_NAME_BYTES]);

int timeline_init(struct timeline *timeline, uint32_t n_ranks, struct gems_error *err);
void timeline_fini(struct timeline *timeline); /* also of a zeroed one */
/* Spans come in order; one that goes on where an equal one ended lengthens it. */
int timeline_add(struct timeline *timeline, uint32_t rank, const struct timeline_span *span,
                 struct gems_error *err);

/* Of a simulated program; owned by the caller. Times are multiplied by scale. */
int timeline_simulated(const struct program *program, const struct sim_result *result, double scale,
                       struct timeline *ret_timeline, struct gems_error *err);

#endif
