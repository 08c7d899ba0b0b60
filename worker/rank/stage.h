/* A stage that is resident on this rank: its operators and parameters.
 *
 * A stage has one block of parameters, in the order of its nodes, and as many
 * gradient blocks of the same layout as the programs use. Batch sizes and
 * modes differ only in operators and in where tensors lie: each pair is a
 * variant. Both chains of a mirrored pair share the stage where they meet on
 * one rank (odd number of stages). Thread: compute.
 */
#ifndef GEMS_WORKER_RANK_STAGE_H
#define GEMS_WORKER_RANK_STAGE_H

#include "plan/layout.h"
#include "worker/backend/backend.h"
#include "worker/rank/arena.h"

struct stage_variant {
    uint32_t batch;
    bool is_eval;
    const struct facts *facts; /* borrowed */
    struct be_op **ops;        /* owned; by node from the stage's first; NULL: nothing to run */
    struct layout layout;
};

struct stage {
    const struct graph *graph;
    const struct plan *plan;
    const struct backend *backend;
    struct be_device *device;
    uint32_t index;                 /* number of the stage */
    uint32_t first, n_nodes;        /* nodes [first, first + n_nodes) */
    uint64_t *block_offset;         /* [n_nodes + 1], bytes from the start of params */
    uint64_t *block2_offset;        /* [n_nodes + 1], same for params2 */
    struct stage_variant *variants; /* owned; a training one first */
    uint32_t n_variants;
    void *params, *params2;
    void **grads; /* [n_blocks] */
    uint32_t n_blocks;
};

/* An empty stage; block offsets come with the first variant. */
int stage_init(struct stage *stage, const struct graph *graph, const struct plan *plan,
               uint32_t index, const struct backend *backend, struct be_device *device,
               struct gems_error *err);
void stage_fini(struct stage *stage); /* also of a zeroed one */

/* Makes the operators for a batch size and mode, unless they are there. The
 * first one must be for training; facts must outlive the stage. GEMS_E_INTERNAL if an operator says
 * something else than its description did. */
int stage_add_variant(struct stage *stage, const struct facts *facts, bool is_eval,
                      struct gems_error *err);
const struct stage_variant *stage_variant_find(const struct stage *stage, uint32_t batch,
                                               bool is_eval);

/* Asks for parameters, second layouts and n_blocks gradient blocks. */
int stage_ask(struct stage *stage, struct arena *arena, uint32_t n_blocks, struct gems_error *err);

/* Makes the second layouts from the parameters. */
int stage_derive(struct stage *stage, struct gems_error *err);

/* Operator of a node (counted from the first) for work on parameters; NULL if
 * the node has none. */
struct be_op *stage_param_op(const struct stage *stage, uint32_t node_i);

#endif
