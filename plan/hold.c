#include "plan/hold.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "plan/pack.h"

struct holding {
    uint32_t slot, first, last; /* in the common time */
    uint32_t chain, microbatch;
    bool is_sent_last; /* it ends with a send, which nobody in the program waits for */
};

struct hold {
    uint32_t n_slots, time;
    struct holding *holdings;
    uint32_t n_holdings;
    uint32_t *newest;     /* by slot: 1 + its latest holding in this program, 0: none */
    uint32_t *slot_first; /* by slot: its first holding, once sorted */
};

bool hold_is_on_slot(const struct instr *instr)
{
    switch ((enum instr_op)instr->op) {
    case INSTR_LOAD:
    case INSTR_FORWARD:
    case INSTR_EVALUATE:
    case INSTR_BACKWARD:
    case INSTR_BACKWARD_INPUT:
    case INSTR_BACKWARD_WEIGHT:
    case INSTR_RECOMPUTE:
    case INSTR_SEND_ACT:
    case INSTR_RECV_ACT:
        return true;
    default:
        return false;
    }
}

struct hold *hold_create(uint32_t n_slots, uint32_t n_instrs, struct gems_error *err)
{
    struct hold *hold = calloc(1, sizeof *hold);

    if (hold) {
        hold->n_slots = n_slots;
        hold->holdings = calloc(n_instrs + 1, sizeof *hold->holdings);
        hold->newest = calloc(n_slots + 1, sizeof *hold->newest);
        hold->slot_first = calloc(n_slots + 2, sizeof *hold->slot_first);
    }
    if (!hold || !hold->holdings || !hold->newest || !hold->slot_first) {
        hold_destroy(hold);
        gems_error_set(err, GEMS_E_NOMEM, "%u slots: no memory", n_slots);
        return NULL;
    }
    return hold;
}

void hold_destroy(struct hold *hold)
{
    if (!hold) {
        return;
    }
    free(hold->holdings);
    free(hold->newest);
    free(hold->slot_first);
    free(hold);
}

/* Notes that the slot is held now, by the micro-batch that held it or a new one. */
static void hold_now(struct hold *hold, const struct instr *instr)
{
    uint32_t newest = hold->newest[instr->slot];
    struct holding *held = newest ? &hold->holdings[newest - 1] : NULL;

    if (!held || held->chain != instr->chain || held->microbatch != instr->microbatch) {
        held = &hold->holdings[hold->n_holdings++];
        *held = (struct holding){
            .slot = instr->slot,
            .first = hold->time,
            .chain = instr->chain,
            .microbatch = instr->microbatch,
        };
        hold->newest[instr->slot] = hold->n_holdings;
    }
    held->last = hold->time;
    held->is_sent_last = instr->op == INSTR_SEND_ACT;
}

/* When a send ends is not known from the list, so its slot is held to the end of
 * the program for other slots; the next micro-batch on the same slot waits for it.
 * Otherwise two ranks that evaluate in both directions could each wait for the
 * other to make room. */
static void hold_sent(struct hold *hold, uint32_t first_holding)
{
    for (uint32_t h = first_holding; h < hold->n_holdings; h++) {
        if (hold->holdings[h].is_sent_last) {
            hold->holdings[h].last = hold->time - 1;
        }
    }
}

void hold_add(struct hold *hold, const struct instr_list *list)
{
    uint32_t first_holding = hold->n_holdings;

    memset(hold->newest, 0, hold->n_slots * sizeof *hold->newest);
    for (uint32_t i = 0; i < list->n; i++, hold->time++) {
        if (hold_is_on_slot(&list->items[i])) {
            hold_now(hold, &list->items[i]);
        }
    }
    hold_sent(hold, first_holding);
}

static int compare_holdings(const void *a, const void *b)
{
    const struct holding *x = a, *y = b;

    if (x->slot != y->slot) {
        return x->slot < y->slot ? -1 : 1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
}

static bool slots_meet(const void *arg, uint32_t a, uint32_t b)
{
    const struct hold *hold = arg;
    uint32_t i = hold->slot_first[a], j = hold->slot_first[b];

    while (i < hold->slot_first[a + 1] && j < hold->slot_first[b + 1]) {
        const struct holding *x = &hold->holdings[i], *y = &hold->holdings[j];

        if (x->first <= y->last && y->first <= x->last) {
            return true;
        }
        if (x->last < y->last) {
            i++;
        } else {
            j++;
        }
    }
    return false;
}

int hold_place(struct hold *hold, const uint64_t *bytes, uint64_t align, uint64_t *ret_offsets,
               uint64_t *ret_total, struct gems_error *err)
{
    uint32_t h = 0;

    qsort(hold->holdings, hold->n_holdings, sizeof *hold->holdings, compare_holdings);
    for (uint32_t slot = 0; slot <= hold->n_slots; slot++) {
        while (h < hold->n_holdings && hold->holdings[h].slot < slot) {
            h++;
        }
        hold->slot_first[slot] = h;
    }
    return pack_place(bytes, hold->n_slots, align, slots_meet, hold, ret_offsets, ret_total, err);
}
