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
 *   TEMP      shared by all passes of the rank; dead between instructions, but for
 *             RECOMPUTE, which leaves in it what the backward behind it reads.
 *   GRAD_IN   gradient of the stage's output edges, as received (one buffer;
 *             programs alternate between several).
 *   GRAD_OUT  gradient of the stage's input edges, until sent (same).
 * Operator scratch is apart and not in the layout.
 *
 * Recomputation (plan's stage_recompute) changes what the slot keeps, never a value:
 *   NONE   everything that backward reads.
 *   CHEAP  all but the outputs and kept blocks of batch-norms (with the ReLU fused to
 *          them), unless such an output leaves the stage. They lie in TEMP while forward
 *          runs, and a STEP_REBUILD in the backward or weight steps makes them again from
 *          the kept input: the executor calls the operator's forward in training mode with
 *          the step's x, y and kept, which gives the same bits from the same input. It must
 *          not touch running statistics: they are moved by backward_weight alone.
 *   ALL    input edges, images and labels; output edges, for their send. FORWARD and
 *          RECOMPUTE run the same forward steps at the same places. The executor ignores
 *          the loss and the count that the loss node states in RECOMPUTE. RECOMPUTE stands
 *          before the receives of its BACKWARD or BACKWARD_INPUT, and before its
 *          BACKWARD_WEIGHT, with no other pass between.
 *
 * Halves. Where the schedule is_split, `backward` has STEP_BACKWARD_INPUT in place of
 * STEP_BACKWARD, and `weight` has the STEP_BACKWARD_WEIGHT of BACKWARD_WEIGHT. The slot
 * then holds, from the one instruction to the other, the gradient of every output whose
 * node has weights (a received one is copied there by a STEP_COPY).
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
    STEP_FORWARD,         /* node's forward: x, y, kept */
    STEP_BACKWARD,        /* node's backward_input (if some dx is placed) and backward_weight */
    STEP_BACKWARD_INPUT,  /* node's backward_input alone */
    STEP_BACKWARD_WEIGHT, /* node's backward_weight alone */
    STEP_REBUILD,         /* node's forward again: x, y, kept */
    STEP_ADD,             /* dx[0] = x[0] + x[1], tensors of node's output; dx[0] may be x[0] */
    STEP_COPY             /* dx[0] = x[0], tensor of node's output */
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
    struct layout_step *weight;             /* owned; empty unless the schedule is_split */
    uint32_t n_forward, n_backward, n_weight;
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
