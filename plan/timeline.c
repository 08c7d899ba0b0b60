#include "plan/timeline.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "plan/match.h"
#include "plan/sim.h"

const char *timeline_kind_name(enum timeline_kind kind)
{
    static const char *const names[TIMELINE_KIND_COUNT] = {
        [TIMELINE_COMPUTE] = "compute", [TIMELINE_WAIT] = "wait",
        [TIMELINE_REDUCE] = "reduce",   [TIMELINE_COPY] = "copy",
        [TIMELINE_MESSAGE] = "message",
    };

    return names[kind];
}

enum timeline_kind timeline_kind_of(enum instr_op op)
{
    switch (op) {
    case INSTR_LOAD:
    case INSTR_SEND_ACT:
    case INSTR_RECV_ACT:
    case INSTR_SEND_GRAD:
    case INSTR_RECV_GRAD:
        return TIMELINE_COPY;
    case INSTR_COMBINE:
    case INSTR_REDUCE:
    case INSTR_GATHER:
        return TIMELINE_REDUCE;
    default:
        return TIMELINE_COMPUTE;
    }
}

static const char *message_name(const struct instr *instr)
{
    return instr->op == INSTR_SEND_ACT || instr->op == INSTR_RECV_ACT ? "ACT" : "GRAD";
}

const char *timeline_name(const struct timeline_span *span, char ret_name[TIMELINE_NAME_BYTES])
{
    const struct instr *instr = &span->instr;
    const char *op = instr_name((enum instr_op)instr->op);

    if (span->kind == TIMELINE_MESSAGE) {
        snprintf(ret_name, TIMELINE_NAME_BYTES, "%s e%u m%u", message_name(instr), instr->edge,
                 instr->microbatch);
    } else if (span->kind == TIMELINE_WAIT) {
        snprintf(ret_name, TIMELINE_NAME_BYTES, "wait");
    } else if (instr_is_send(instr) || instr_is_recv(instr)) {
        snprintf(ret_name, TIMELINE_NAME_BYTES, "%s e%u m%u", op, instr->edge, instr->microbatch);
    } else if (instr->op == INSTR_COMBINE || instr->op == INSTR_REDUCE ||
               instr->op == INSTR_UPDATE || instr->op == INSTR_GATHER) {
        snprintf(ret_name, TIMELINE_NAME_BYTES, "%s s%u", op, instr->stage);
    } else {
        snprintf(ret_name, TIMELINE_NAME_BYTES, "%s s%u m%u", op, instr->stage, instr->microbatch);
    }
    return ret_name;
}

int timeline_init(struct timeline *timeline, uint32_t n_ranks, struct gems_error *err)
{
    *timeline = (struct timeline){ .n_ranks = n_ranks };
    timeline->ranks = calloc(n_ranks + 1, sizeof *timeline->ranks);
    return timeline->ranks
               ? GEMS_OK
               : gems_error_set(err, GEMS_E_NOMEM, "timeline of %u ranks: no memory", n_ranks);
}

void timeline_fini(struct timeline *timeline)
{
    for (uint32_t r = 0; timeline->ranks && r < timeline->n_ranks; r++) {
        free(timeline->ranks[r].spans);
    }
    free(timeline->ranks);
    *timeline = (struct timeline){ 0 };
}

static bool is_same(const struct instr *a, const struct instr *b)
{
    return a->op == b->op && a->stage == b->stage && a->microbatch == b->microbatch &&
           a->edge == b->edge && a->block == b->block && a->slot == b->slot;
}

int timeline_add(struct timeline *timeline, uint32_t rank, const struct timeline_span *span,
                 struct gems_error *err)
{
    struct timeline_rank *to = &timeline->ranks[rank];
    struct timeline_span *last = to->n ? &to->spans[to->n - 1] : NULL;

    if (last && last->kind == span->kind && span->kind != TIMELINE_MESSAGE &&
        last->end >= span->start && is_same(&last->instr, &span->instr)) {
        last->end = span->end;
        return GEMS_OK;
    }
    if (to->n == to->capacity) {
        uint32_t capacity = to->capacity ? 2 * to->capacity : 64;
        struct timeline_span *spans = reallocarray(to->spans, capacity, sizeof *spans);

        if (!spans) {
            return gems_error_set(err, GEMS_E_NOMEM, "timeline of rank %u: no memory", rank);
        }
        to->spans = spans;
        to->capacity = capacity;
    }
    to->spans[to->n++] = *span;
    return GEMS_OK;
}

/* The instruction at index i of a rank, and the wait before it; *inout_now is where
 * the one before it ended. */
static int add_simulated(struct timeline *timeline, uint32_t rank, const struct instr *instr,
                         const struct sim_span *from, double *inout_now, struct gems_error *err)
{
    struct timeline_span span = { .start = from->start, .end = from->end, .instr = *instr };
    struct timeline_span wait = {
        .start = *inout_now, .end = from->start, .kind = TIMELINE_WAIT, .instr = *instr
    };
    int status = GEMS_OK;

    span.kind =
        instr_is_recv(instr) ? TIMELINE_MESSAGE : timeline_kind_of((enum instr_op)instr->op);
    if (instr_is_send(instr)) {
        span.end = span.start;
    }
    if (!instr_is_recv(instr)) {
        if (wait.end > wait.start) {
            status = timeline_add(timeline, rank, &wait, err);
        }
        *inout_now = span.end;
    }
    return status < 0 ? status : timeline_add(timeline, rank, &span, err);
}

int timeline_simulated(const struct program *program, const struct sim_result *result, double scale,
                       struct timeline *ret_timeline, struct gems_error *err)
{
    struct timeline timeline;
    int status = timeline_init(&timeline, program->n_ranks, err);

    if (status < 0) {
        return status;
    }
    timeline.seconds = scale * result->step_seconds;
    for (uint32_t r = 0; r < program->n_ranks; r++) {
        const struct instr_list *list = &program->ranks[r];
        double now = 0;

        for (uint32_t i = 0; i < list->n && status == GEMS_OK; i++) {
            struct sim_span span = { scale * result->spans[r][i].start,
                                     scale * result->spans[r][i].end };

            status = add_simulated(&timeline, r, &list->items[i], &span, &now, err);
        }
    }
    if (status < 0) {
        timeline_fini(&timeline);
        return status;
    }
    *ret_timeline = timeline;
    return GEMS_OK;
}
