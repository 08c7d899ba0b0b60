/* Places for things that share memory: two may overlap unless they meet.
 *
 * Largest first, each at the lowest offset where nothing it meets lies (equal
 * sizes in the order given). Deterministic: plan and rank get equal offsets from
 * equal input. Pure. */
#ifndef GEMS_PLAN_PACK_H
#define GEMS_PLAN_PACK_H

#include <stdbool.h>
#include <stdint.h>

struct gems_error;

/* Are a and b needed at the same time? Symmetric. */
typedef bool (*pack_meet_fn)(const void *arg, uint32_t a, uint32_t b);

/* bytes[n], rounded up to align here; ret_offsets[n] and *ret_total are
 * multiples of align. GEMS_E_NOMEM. */
int pack_place(const uint64_t *bytes, uint32_t n, uint64_t align, pack_meet_fn meet,
               const void *arg, uint64_t *ret_offsets, uint64_t *ret_total, struct gems_error *err);

/* Needed from first to last, both included. */
struct pack_item {
    uint64_t bytes;
    uint32_t first, last;
    uint64_t offset; /* result */
};

int pack_intervals(struct pack_item *items, uint32_t n, uint64_t align, uint64_t *ret_total,
                   struct gems_error *err);

uint64_t pack_round(uint64_t bytes, uint64_t align);

#endif
