/* Table of operators: what the rest of model/ needs to know of each kind.
 * Internal to model/. A new operator is one row of the table in ops.c. */
#ifndef GEMS_MODEL_OPS_H
#define GEMS_MODEL_OPS_H

#include "model/graph.h"

/* No size, and no product of sizes, of a graph exceeds this. */
#define MODEL_MAX_COUNT (UINT64_C(1) << 40)
/* Work of one node on one sample, so that sums over a graph fit 64 bits. */
#define MODEL_MAX_MACS (UINT64_C(1) << 47)

enum { MODEL_MAX_NODES = 1 << 16 };

struct op_class {
    const char *name;
    uint32_t min_inputs, max_inputs;
    bool may_relu;              /* ReLU can be fused behind it */
    unsigned needs, needs_relu; /* enum op_needs; needs_relu: more of them with is_relu */
    /* Shape of the output from those of the inputs; checks the attributes. */
    int (*infer)(const struct graph *graph, const struct node *node, struct shape *ret_out,
                 struct gems_error *err);
    /* Appends to ret_params and returns their number; NULL: none. */
    uint32_t (*params)(const struct graph *graph, const struct node *node,
                       struct param ret_params[MODEL_MAX_PARAMS]);
};

/* NULL if kind is out of range. */
const struct op_class *op_class_of(enum op_kind kind);

/* Everything about one node that can be said from its predecessors: kind,
 * name, arity, inputs below index, shape. Its layer and the uniqueness of its
 * name are the graph's business. */
int op_infer(const struct graph *graph, const struct node *node, uint32_t index,
             struct shape *ret_out, struct gems_error *err);

/* "64x32x32", with " (flat)" behind it for a vector; returns buffer. */
enum { OP_SHAPE_BYTES = 48 };
const char *op_shape_text(const struct shape *shape, char buffer[OP_SHAPE_BYTES]);

/* False if a * b is above MODEL_MAX_COUNT (either may be above it, too). */
bool op_product(uint64_t a, uint64_t b, uint64_t *ret_product);

#endif
