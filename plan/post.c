#include "plan/post.h"

#include <stdlib.h>

#include "common/error.h"
#include "plan/hold.h"

static bool slots_overlap(const struct memory_map *map, uint32_t a, uint32_t b)
{
    const struct memory_slot *x = &map->slots[a], *y = &map->slots[b];

    return a == b || (x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes);
}

int neighbours_make(const struct memory_map *map, uint32_t n_slots,
                    struct neighbours *ret_neighbours, struct gems_error *err)
{
    struct neighbours made = { .n_slots = n_slots };
    uint32_t n = 0, capacity = n_slots + 1;

    made.first = calloc(n_slots + 1, sizeof *made.first);
    made.items = calloc(capacity, sizeof *made.items);
    for (uint32_t a = 0; a < n_slots && made.first && made.items; a++) {
        made.first[a] = n;
        for (uint32_t b = map ? 0 : a; b < (map ? n_slots : a + 1); b++) {
            bool is_planned = !map || (a < map->n_slots && b < map->n_slots);

            if (a != b && (!is_planned || !slots_overlap(map, a, b))) {
                continue;
            }
            if (n == capacity) {
                uint32_t *items = realloc(made.items, 2 * (size_t)capacity * sizeof *items);

                if (!items) {
                    free(made.items);
                    made.items = NULL;
                    break;
                }
                made.items = items;
                capacity *= 2;
            }
            made.items[n++] = b;
        }
    }
    if (!made.first || !made.items) {
        neighbours_fini(&made);
        return gems_error_set(err, GEMS_E_NOMEM, "%u slots: no memory", n_slots);
    }
    made.first[n_slots] = n;
    *ret_neighbours = made;
    return GEMS_OK;
}

void neighbours_fini(struct neighbours *neighbours)
{
    free(neighbours->first);
    free(neighbours->items);
    *neighbours = (struct neighbours){ 0 };
}

static bool is_pass_or_send(const struct instr *instr)
{
    return instr->op == INSTR_FORWARD || instr->op == INSTR_EVALUATE ||
           instr->op == INSTR_BACKWARD || instr->op == INSTR_BACKWARD_INPUT ||
           instr->op == INSTR_BACKWARD_WEIGHT || instr->op == INSTR_RECOMPUTE ||
           instr->op == INSTR_SEND_ACT;
}

int post_make(const struct neighbours *neighbours, const struct instr_list *list,
              int64_t *ret_after, struct gems_error *err)
{
    int64_t *slot_used = malloc((neighbours->n_slots + 1) * sizeof *slot_used);
    int64_t *buffer_used = malloc((UINT16_MAX + 1) * sizeof *buffer_used);
    uint32_t buffer = UINT32_MAX; /* received into since the last pass */

    if (!slot_used || !buffer_used) {
        free(slot_used);
        free(buffer_used);
        return gems_error_set(err, GEMS_E_NOMEM, "receives of a program: no memory");
    }
    for (uint32_t s = 0; s < neighbours->n_slots; s++) {
        slot_used[s] = -1;
    }
    for (uint32_t s = 0; s <= UINT16_MAX; s++) {
        buffer_used[s] = -1;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        const struct instr *instr = &list->items[i];

        ret_after[i] = -1;
        if (instr->op == INSTR_RECV_GRAD) {
            ret_after[i] = buffer_used[instr->slot];
            buffer = instr->slot;
        } else if (instr->op == INSTR_RECV_ACT) {
            for (uint32_t k = neighbours->first[instr->slot];
                 k < neighbours->first[instr->slot + 1]; k++) {
                int64_t used = slot_used[neighbours->items[k]];

                ret_after[i] = used > ret_after[i] ? used : ret_after[i];
            }
        } else if (is_pass_or_send(instr)) {
            slot_used[instr->slot] = i;
        }
        if ((instr->op == INSTR_BACKWARD || instr->op == INSTR_BACKWARD_INPUT) &&
            buffer != UINT32_MAX) {
            buffer_used[buffer] = i;
            buffer = UINT32_MAX;
        }
    }
    free(slot_used);
    free(buffer_used);
    return GEMS_OK;
}

/* Does the backward pass at items[i] read GRAD_IN buffer `buffer`? Its receives
 * stand directly before it. */
static bool reads_buffer(const struct instr_list *list, uint32_t i, uint32_t buffer)
{
    while (i > 0 && list->items[i - 1].op == INSTR_RECV_GRAD) {
        if (list->items[--i].slot == buffer) {
            return true;
        }
    }
    return false;
}

int64_t memory_recv_after(const struct memory_map *map, const struct instr_list *list, uint32_t i)
{
    const struct instr *recv = &list->items[i];

    for (int64_t j = (int64_t)i - 1; j >= 0; j--) {
        const struct instr *before = &list->items[j];
        bool is_own = (before->op == INSTR_LOAD || before->op == INSTR_RECV_ACT) &&
                      before->slot == recv->slot && before->chain == recv->chain &&
                      before->microbatch == recv->microbatch;

        if (recv->op == INSTR_RECV_ACT && hold_is_on_slot(before) && !is_own &&
            slots_overlap(map, before->slot, recv->slot)) {
            return j;
        }
        if (recv->op == INSTR_RECV_GRAD &&
            (before->op == INSTR_BACKWARD || before->op == INSTR_BACKWARD_INPUT) &&
            reads_buffer(list, (uint32_t)j, recv->slot)) {
            return j;
        }
    }
    return -1;
}
