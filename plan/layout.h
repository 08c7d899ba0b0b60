/* Where the tensors of a stage lie, and in which order its operators run.
 *
 * One layout per (stage, batch size, training or evaluation), from the
 * backward needs of the operators and the bytes the back end states. Used by
 * `memory` with the facts of gems-inspect, and by the rank with what its own
 * operators say: equal input, equal bytes. Pure.
 *
 * Spaces of a training layout:
 *   SLOT      one micro-batch: from its first receive to the end of backward.
 *             Holds input edges, labels, every tensor or kept block that
 *             backward needs, and output edges until they are sent.
 *   TEMP      shared by all passes of the rank; dead between instructions.
 *   GRAD_IN   gradient of the stage's output edges, as received (one buffer;
 *             programs alternate between several).
 *   GRAD_OUT  gradient of the stage's input edges, until sent (same).
 * Operator scratch is apart and not in the layout.
 */
#ifndef GEMS_PLAN_LAYOUT_H
#define GEMS_PLAN_LAYOUT_H

#include "model/graph.h"
#include "plan/plan.h"

enum space { SPACE_NONE, SPACE_SLOT, SPACE_TEMP, SPACE_GRAD_IN, SPACE_GRAD_OUT };

struct place {
    enum space space;
    uint64_t offset; /* bytes in its space, aligned to LAYOUT_ALIGN */
};
enum { LAYOUT_ALIGN = 256 };

enum step_kind {
    STEP_FORWARD,  /* node's forward: x, y, kept */
    STEP_BACKWARD, /* node's backward_input (if some dx is placed) and backward_weight */
    STEP_ADD,      /* dx[0] = x[0] + x[1], tensors of node's output; dx[0] may be x[0] */
    STEP_COPY      /* dx[0] = x[0], tensor of node's output */
};

/* Unused places are NONE. A place of a backward step may be read and written by
 * one step only where the two are the same tensor: dx of STEP_ADD, and dx of an
 * OP_RELU or OP_ADD in place of dy. OP_ADD with ReLU gets one dx placed, dx of the
 * other input being equal and shared. Node 0 has no step; `images` is its tensor. */
struct layout_step {
    enum step_kind kind;
    uint32_t node;
    struct place x[MODEL_MAX_INPUTS], y, kept, dy, dx[MODEL_MAX_INPUTS];
};

/* Place of one edge that enters or leaves the stage. A stage that only adds to
 * the gradient of a tensor on its way back (plan_grad_stage) has the later
 * stage's edge among its output edges with act NONE: nothing is sent forward. */
struct layout_edge {
    uint32_t edge;     /* index into plan's edges */
    struct place act;  /* in SLOT */
    struct place grad; /* output edge: in GRAD_IN; input edge: in GRAD_OUT; NONE if no gradient */
    uint64_t bytes;
};

struct layout {
    struct layout_step *forward, *backward; /* owned; backward empty for evaluation */
    uint32_t n_forward, n_backward;
    struct layout_edge *in, *out; /* owned */
    uint32_t n_in, n_out;
    struct place images; /* first stage: in SLOT, node 0's tensor; else NONE */
    struct place labels; /* last stage: in SLOT, uint32 [n]; else NONE */
    uint64_t slot_bytes, temp_bytes, grad_in_bytes, grad_out_bytes;
    uint64_t scratch_bytes; /* largest of the nodes */
};

/* Nodes of stage `stage` of the plan (stage_node and edges must be filled).
 * facts: of the stage's nodes and of those whose output enters it. */
int layout_make(const struct graph *graph, const struct plan *plan, uint32_t stage,
                const struct facts *facts, bool is_eval, struct layout *ret_layout,
                struct gems_error *err);
void layout_fini(struct layout *layout);

#endif
