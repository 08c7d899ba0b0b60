/* Which send belongs to which receive of a program. */
#ifndef GEMS_PLAN_MATCH_H
#define GEMS_PLAN_MATCH_H

#include "plan/program.h"

enum { MATCH_NONE = UINT32_MAX };

struct match {
    uint32_t **partner; /* by rank, instruction: index in the peer's list, or MATCH_NONE */
    uint32_t *storage;
};

/* Pairs each SEND with the RECV of its peer of the same kind, chain, edge and
 * micro-batch. GEMS_E_INTERNAL names a message that has no partner or is there
 * twice, unless is_lenient: such stay without. */
int match_make(const struct program *program, bool is_lenient, struct match *ret_match,
               struct gems_error *err);
void match_fini(struct match *match);

static inline bool instr_is_send(const struct instr *instr)
{
    return instr->op == INSTR_SEND_ACT || instr->op == INSTR_SEND_GRAD;
}

static inline bool instr_is_recv(const struct instr *instr)
{
    return instr->op == INSTR_RECV_ACT || instr->op == INSTR_RECV_GRAD;
}

#endif
