/* Derivation of the backward pass of a range of nodes.
 *
 * Nodes are visited in reverse. A tensor that several nodes read gets the sum
 * of their contributions, in the order of the visit: this order is part of
 * the definition of the job's numbers and does not depend on the cut (a
 * stage boundary only moves where the addition is done).
 */
#ifndef GEMS_MODEL_BACKWARD_H
#define GEMS_MODEL_BACKWARD_H

#include "model/graph.h"

/* How input i of a node contributes to the gradient of the tensor it reads. */
enum grad_how {
    GRAD_NONE,  /* that tensor wants no gradient (images) */
    GRAD_WRITE, /* the operator writes a fresh dx */
    GRAD_PASS   /* dx is dy itself (residual, add without ReLU): no operator runs */
};

struct backward_step {
    uint32_t node;
    bool has_weights;                    /* backward_weight has something to do */
    enum grad_how how[MODEL_MAX_INPUTS]; /* per input */
    bool is_first[MODEL_MAX_INPUTS];     /* first contribution to that tensor (of the
                                            whole graph): nothing to add to yet */
};

/* Steps for nodes [first, last), in execution order, one per node that has
 * something to do. *ret_steps is owned by the caller (free). GEMS_E_NOMEM. */
int backward_derive(const struct graph *graph, uint32_t first, uint32_t last,
                    struct backward_step **ret_steps, uint32_t *ret_n, struct gems_error *err);

#endif
