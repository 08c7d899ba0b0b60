/* Operators that a back end cannot tell apart: deep networks repeat a few. */
#ifndef GEMS_WORKER_INSPECT_SHAPES_H
#define GEMS_WORKER_INSPECT_SHAPES_H

#include "model/graph.h"

/* For each node the lowest node of equal shape, attributes and kind of inputs
 * (itself, if it is the first). ret_first holds n_nodes entries. GEMS_E_NOMEM. */
int shapes_find(const struct graph *graph, uint32_t *ret_first, struct gems_error *err);

#endif
