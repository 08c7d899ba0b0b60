/* The passes of a group in the order in which each rank runs them, for generators
 * that say when a pass is due rather than what comes next.
 *
 * A time only orders the passes of one rank. To find slots and buffers the passes are
 * run once with symbols: each rank takes its next pass when those it waits for are
 * done. A slot is free again when its backward is done and its tensors are received, a
 * gradient buffer when the gradients in it are received; so by this run, which is an
 * order that the ranks can follow, no pass waits for memory that comes free only after
 * it, however far tensors skip and wherever stages lie. Each stage of a rank has slots
 * of its own: memory finds out from their lifetimes which may lie over each other. */
#ifndef GEMS_PLAN_ORDER_H
#define GEMS_PLAN_ORDER_H

#include "plan/sched.h"

enum order_kind {
    ORDER_FORWARD,
    ORDER_BACKWARD,
    ORDER_INPUT, /* the halves of a backward */
    ORDER_WEIGHT
};

struct order_pass {
    int64_t time; /* differs from that of all others of its rank */
    enum order_kind kind;
    uint32_t chain, stage;
    uint32_t microbatch; /* from the first of the group */
    /* found by order_write */
    uint32_t turn, slot, grad_in, grad_out;
};

struct order {
    struct order_pass *passes; /* owned */
    uint32_t n, capacity;
};

/* GEMS_E_NOMEM. */
int order_add(struct order *order, const struct order_pass *pass, struct gems_error *err);

/* Writes all passes into the program. Changes their order here. GEMS_E_INTERNAL: the
 * ranks wait for each other. */
int order_write(struct order *order, struct sched *s);
void order_fini(struct order *order);

#endif
