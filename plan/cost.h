/* What passes cost: seconds as measured, or estimated from arithmetic and bytes. */
#ifndef GEMS_PLAN_COST_H
#define GEMS_PLAN_COST_H

#include "plan/plan.h"

struct cost_pass {
    double forward, backward; /* seconds */
    double weight;            /* part of backward: gradients of the weights */
};

/* Floating-point operations of a node for n samples: forward, and backward with
 * both its halves. */
double cost_forward_flops(const struct graph *graph, uint32_t node, uint32_t n);
double cost_backward_flops(const struct graph *graph, uint32_t node, uint32_t n);

/* Seconds of a node at the batch size of the facts: the facts' own where they
 * have any, else the larger of what the arithmetic and what the traffic of its
 * tensors takes on one CPU core of today. Good for comparing plans. */
struct cost_pass cost_node(const struct graph *graph, const struct facts *facts, uint32_t node);

/* Of the nodes [first, last). */
struct cost_pass cost_range(const struct graph *graph, const struct facts *facts, uint32_t first,
                            uint32_t last);

/* Seconds to stream bytes through memory once, in and out. */
double cost_stream(uint64_t bytes);

/* A link between two ranks, on one node or between nodes. */
struct cost_link {
    double latency, bytes_second;
};
struct cost_link cost_link(bool is_remote);

#endif
