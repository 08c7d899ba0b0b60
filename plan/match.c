#include "plan/match.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

/* A message as both sides see it, and the instruction that has to do with it. */
struct end {
    uint32_t from, to, is_grad, chain, edge, microbatch; /* the key, in this order */
    uint32_t rank, index;
};

static int compare(const void *a, const void *b)
{
    const struct end *x = a, *y = b;
    const uint32_t keys[][2] = {
        { x->from, y->from },   { x->to, y->to },     { x->is_grad, y->is_grad },
        { x->chain, y->chain }, { x->edge, y->edge }, { x->microbatch, y->microbatch },
    };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (keys[i][0] != keys[i][1]) {
            return keys[i][0] < keys[i][1] ? -1 : 1;
        }
    }
    return 0;
}

static struct end end_of(const struct instr *instr, uint32_t rank, uint32_t index)
{
    bool is_send = instr_is_send(instr);

    return (struct end){
        .from = is_send ? rank : instr->peer,
        .to = is_send ? instr->peer : rank,
        .is_grad = instr->op == INSTR_SEND_GRAD || instr->op == INSTR_RECV_GRAD,
        .chain = instr->chain,
        .edge = instr->edge,
        .microbatch = instr->microbatch,
        .rank = rank,
        .index = index,
    };
}

static int refuse(const struct program *program, const struct end *end, const char *what,
                  struct gems_error *err)
{
    const struct instr *instr = &program->ranks[end->rank].items[end->index];

    return gems_error_set(err, GEMS_E_INTERNAL,
                          "program: rank %u instruction %u (%s chain %u edge %u micro-batch %u, "
                          "rank %u to %u): %s",
                          end->rank, end->index, instr_name(instr->op), end->chain, end->edge,
                          end->microbatch, end->from, end->to, what);
}

static int pair_up(const struct program *program, bool is_lenient, const struct end *sends,
                   uint32_t n_sends, const struct end *recvs, uint32_t n_recvs, struct match *match,
                   struct gems_error *err)
{
    uint32_t i = 0, j = 0;

    while (i < n_sends || j < n_recvs) {
        int order = i == n_sends ? 1 : j == n_recvs ? -1 : compare(&sends[i], &recvs[j]);
        const struct end *lonely = order < 0 ? &sends[i] : &recvs[j];

        if (order == 0) {
            match->partner[sends[i].rank][sends[i].index] = recvs[j].index;
            match->partner[recvs[j].rank][recvs[j].index] = sends[i].index;
            i++;
            j++;
            continue;
        }
        if (!is_lenient) {
            bool is_twice = order < 0 ? i > 0 && !compare(&sends[i - 1], lonely)
                                      : j > 0 && !compare(&recvs[j - 1], lonely);

            return refuse(program, lonely,
                          is_twice    ? "is there twice"
                          : order < 0 ? "nobody receives it"
                                      : "nobody sends it",
                          err);
        }
        i += order < 0;
        j += order > 0;
    }
    return GEMS_OK;
}

int match_make(const struct program *program, bool is_lenient, struct match *ret_match,
               struct gems_error *err)
{
    struct match match = { 0 };
    struct end *sends = NULL, *recvs = NULL;
    uint32_t n = 0, n_sends = 0, n_recvs = 0;
    int status;

    for (uint32_t rank = 0; rank < program->n_ranks; rank++) {
        n += program->ranks[rank].n;
    }
    match.partner = calloc(program->n_ranks + 1, sizeof *match.partner);
    match.storage = malloc((n + 1) * sizeof *match.storage);
    sends = calloc(n + 1, sizeof *sends);
    recvs = calloc(n + 1, sizeof *recvs);
    if (!match.partner || !match.storage || !sends || !recvs) {
        status = gems_error_set(err, GEMS_E_NOMEM, "messages of a program: no memory");
        goto out;
    }
    memset(match.storage, 0xff, (n + 1) * sizeof *match.storage); /* MATCH_NONE */
    n = 0;
    for (uint32_t rank = 0; rank < program->n_ranks; rank++) {
        const struct instr_list *list = &program->ranks[rank];

        match.partner[rank] = match.storage + n;
        n += list->n;
        for (uint32_t i = 0; i < list->n; i++) {
            if (instr_is_send(&list->items[i])) {
                sends[n_sends++] = end_of(&list->items[i], rank, i);
            } else if (instr_is_recv(&list->items[i])) {
                recvs[n_recvs++] = end_of(&list->items[i], rank, i);
            }
        }
    }
    qsort(sends, n_sends, sizeof *sends, compare);
    qsort(recvs, n_recvs, sizeof *recvs, compare);
    status = pair_up(program, is_lenient, sends, n_sends, recvs, n_recvs, &match, err);
out:
    free(sends);
    free(recvs);
    if (status == GEMS_OK) {
        *ret_match = match;
    } else {
        match_fini(&match);
    }
    return status;
}

void match_fini(struct match *match)
{
    free(match->partner);
    free(match->storage);
    *match = (struct match){ 0 };
}
