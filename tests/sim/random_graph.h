/* Seeded random networks and facts for property tests. */
#ifndef GEMS_TESTS_SIM_RANDOM_GRAPH_H
#define GEMS_TESTS_SIM_RANDOM_GRAPH_H

#include "plan/plan.h"

/* A stream of numbers that depends on the seed alone. */
struct draw {
    uint64_t seed, n;
};
/* Uniform in [low, high]. */
uint32_t draw_between(struct draw *draw, uint32_t low, uint32_t high);
bool draw_chance(struct draw *draw, uint32_t percent);

/* A correct network: convolutions with and without residuals, sums, joins,
 * pools, batch-norm, dropout, tensors with several readers near and far, one to some forty
 * layers. Aborts on failure (no memory). */
void random_graph(struct draw *draw, struct graph *ret_graph);

/* Bytes as a back end might state them: padded tensors, kept blocks, scratch,
 * second weight layouts. The same for the same (graph, node, batch). */
void random_facts(const struct graph *graph, uint32_t batch, struct facts *ret_facts);

#endif
