/* Rewrites of a graph before it is cut.
 *
 * fuse: BATCHNORM + RELU -> BATCHNORM (is_relu); ADD + RELU -> ADD (is_relu);
 * DENSE + RELU -> DENSE (is_relu); CONV + ADD -> CONV (is_residual), where the
 * convolution's output has the ADD as its only reader and the other summand
 * comes before it. Only inside one layer, so that no cut can split a fused
 * operator. Values, parameter names and their order are unchanged, bit for bit.
 */
#ifndef GEMS_MODEL_PASSES_H
#define GEMS_MODEL_PASSES_H

#include "model/graph.h"

/* In place. On failure the graph is as before. */
int graph_fuse(struct graph *graph, struct gems_error *err);

#endif
