#include "plan/timeline.h"

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
