/* Backward half of a layout: places of gradients and the order of additions.
 * Internal to layout.c, which fills in the places of the forward pass. */
#ifndef GEMS_PLAN_LAYOUT_GRAD_H
#define GEMS_PLAN_LAYOUT_GRAD_H

#include "plan/layout.h"
#include "plan/pack.h"

/* The forward pass as backward finds it, indexed by node; y of nodes that enter the
 * stage too. What lies in TEMP for backward (RECOMPUTE_ALL) has no place yet but an
 * item (bytes not 0) with its times in the forward pass: it is placed together with the
 * gradients. */
struct layout_places {
    const struct place *y, *kept; /* NONE: nothing, or an item */
    struct pack_item *y_item, *kept_item;
    const bool *is_rebuilt; /* by a STEP_REBUILD */
    uint32_t start;         /* time of the first backward step */
};

/* Which inputs of a node its backward reads, as a mask. */
unsigned layout_reads_x(const struct node *node);

/* By node: does its output have a gradient? Owned by the caller. */
int layout_gradients(const struct graph *graph, bool **ret_has_gradient, struct gems_error *err);

/* Fills in the backward and weight steps, the gradients of the edges (layout->in and
 * out hold their edges already), grad_in_bytes and grad_out_bytes; adds to slot_bytes the
 * gradients that wait there for the weight steps; *ret_temp_bytes is what lies in TEMP.
 * has_gradient: by node, layout_gradients(). */
int layout_backward(const struct graph *graph, const struct plan *plan, uint32_t stage,
                    const struct facts *facts, const struct layout_places *places,
                    const bool *has_gradient, struct layout *layout, uint64_t *ret_temp_bytes,
                    struct gems_error *err);

#endif
