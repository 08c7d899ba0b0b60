/* Backward half of a layout: places of gradients and the order of additions.
 * Internal to layout.c, which fills in the places of the forward pass. */
#ifndef GEMS_PLAN_LAYOUT_GRAD_H
#define GEMS_PLAN_LAYOUT_GRAD_H

#include "plan/layout.h"

/* Forward places, indexed by node; y of nodes that enter the stage too. */
struct layout_places {
    const struct place *y, *kept;
};

/* Which inputs of a node its backward reads, as a mask. */
unsigned layout_reads_x(const struct node *node);

/* By node: does its output have a gradient? Owned by the caller. */
int layout_gradients(const struct graph *graph, bool **ret_has_gradient, struct gems_error *err);

/* Fills in the backward steps, the gradients of the edges (layout->in and out
 * hold their edges already), grad_in_bytes and grad_out_bytes; *ret_temp_bytes is
 * what the gradients in TEMP need. has_gradient: by node, layout_gradients(). */
int layout_backward(const struct graph *graph, const struct plan *plan, uint32_t stage,
                    const struct facts *facts, const struct layout_places *places,
                    const bool *has_gradient, struct layout *layout, uint64_t *ret_temp_bytes,
                    struct gems_error *err);

#endif
