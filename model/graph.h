/* A network as a flat list of nodes in topological order.
 *
 * Node i may only read nodes j < i. Node 0 is the input; the last node is the
 * loss. Sizes are those of one sample: the batch is added by whoever runs it.
 * Pure data, no device, no weights. Not thread-safe while being built.
 *
 * Letters: n batch, c channels in, k channels out, h w input, p q output,
 * r s filter.
 */
#ifndef GEMS_MODEL_GRAPH_H
#define GEMS_MODEL_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gems_error;

enum { MODEL_MAX_INPUTS = 4, MODEL_MAX_PARAMS = 4, MODEL_NAME_BYTES = 64 };

enum op_kind {
    OP_INPUT,     /* images from the loader */
    OP_CONV,      /* x; optionally a residual as second input (is_residual) */
    OP_BATCHNORM, /* optionally with ReLU behind it (is_relu) */
    OP_RELU,
    OP_ADD,     /* two inputs of one shape; optionally ReLU behind it */
    OP_MAXPOOL, /* no gradient to padding */
    OP_AVGPOOL, /* padding is not counted */
    OP_FLATTEN, /* [c][h][w] to a vector in that order */
    OP_DENSE,   /* y = W x + b on a flat vector; optionally ReLU (is_relu) */
    OP_LOSS,    /* softmax and cross-entropy with the sample's label; its out shape is
                   one flat value, but no tensor is written */
    OP_DROPOUT, /* training: each value is 0 with probability rate, else x / (1 - rate);
                   evaluation: x */
    OP_CONCAT,  /* images of one size, channels behind one another */
    OP_PICK,    /* one pixel of each tile of stride_h x stride_w: that in row r, column s;
                   0 where the image ends before it */
    OP_KIND_COUNT
};

/* One sample of a tensor. A flat vector has h = w = 1 and is_flat; it has
 * another layout than a 1x1 image. */
struct shape {
    uint32_t c, h, w;
    bool is_flat;
};

struct node {
    enum op_kind kind;
    char name[MODEL_NAME_BYTES]; /* unique; tensors are called NAME.weight */
    uint32_t layer;              /* unit of the cut; from 0, grows by 0 or 1 along the list */
    uint32_t n_inputs;
    uint32_t inputs[MODEL_MAX_INPUTS];         /* node indexes */
    struct shape out;                          /* filled by shape inference; given for OP_INPUT */
    uint32_t k;                                /* OP_CONV, OP_DENSE: outputs */
    uint32_t r, s;                             /* filter or window; OP_PICK: row, column */
    uint32_t stride_h, stride_w, pad_h, pad_w; /* pads on both sides alike */
    bool has_bias;                             /* OP_CONV, OP_DENSE */
    bool is_relu;                              /* ReLU fused behind */
    bool is_residual;                          /* OP_CONV: y = conv(inputs[0]) + inputs[1] */
    double eps;                                /* OP_BATCHNORM, 1e-5 */
    double decay; /* OP_BATCHNORM: a of running <- a running + (1-a) batch, 0.9 */
    double rate;  /* OP_DROPOUT: from 0 to below 1 */
};

struct graph {
    char name[MODEL_NAME_BYTES]; /* "resnet-110-v2" */
    struct node *nodes;          /* owned */
    uint32_t n_nodes, capacity;
    uint32_t n_layers;
    uint32_t n_classes;
};

/* How a parameter starts and how it is updated. */
enum param_role {
    PARAM_WEIGHT,  /* trained, weight decay applies; He-normal by fan-in */
    PARAM_BIAS,    /* trained, no decay; zero */
    PARAM_SCALE,   /* trained, no decay; one */
    PARAM_SHIFT,   /* trained, no decay; zero */
    PARAM_MEAN,    /* running mean; zero. Moves linearly, not by gradient */
    PARAM_VARIANCE /* running variance; one. Same */
};

/* One parameter tensor of a node, in canonical (plain, row-major) layout. */
struct param {
    enum param_role role;
    const char *suffix; /* "weight", "bias", "running_mean", "running_var" */
    uint32_t n_dims;
    uint32_t dims[4]; /* conv weight [k][c][r][s]; dense [k][c] */
    uint64_t fan_in;  /* PARAM_WEIGHT */
};

/* Empty graph; name and classes are copied. */
void graph_init(struct graph *graph, const char *name, uint32_t n_classes);
void graph_fini(struct graph *graph); /* also of a zeroed or half-built graph */

/* Appends a copy of *node (its name, attributes and inputs) and returns its
 * index, or a negative status. The out shape is inferred here: bad sizes
 * (window larger than its input, unequal summands) fail with a message that
 * names the node. */
int graph_add(struct graph *graph, const struct node *node, struct gems_error *err);

/* Checks all invariants of a graph that came from outside: order, arity,
 * layers, names, sizes (no product above 2^40), one input, one loss last, and
 * a reader for every other output. */
int graph_check(const struct graph *graph, struct gems_error *err);

/* Deep copy; *ret_copy must be zeroed or uninitialised. */
int graph_copy(const struct graph *graph, struct graph *ret_copy, struct gems_error *err);

/* Elements of one sample. */
uint64_t shape_count(const struct shape *shape);

/* Parameters of a node in canonical order; returns their number (0..4). */
uint32_t node_params(const struct graph *graph, uint32_t node,
                     struct param ret_params[MODEL_MAX_PARAMS]);

uint64_t param_count(const struct param *param);

/* Trainable elements of the whole graph; running statistics apart. */
uint64_t graph_trainable(const struct graph *graph);
uint64_t graph_statistics(const struct graph *graph);

/* Initial values of one parameter tensor in canonical layout: a function of
 * (seed, full tensor name, index) alone, computed in double, stored as float
 * or as double (is_f64). He-normal for weights. */
void param_init(const struct graph *graph, uint32_t node, const struct param *param, uint64_t seed,
                bool is_f64, void *ret_values);

/* Number of a node that follows from its name alone: what is drawn for it does
 * not depend on the cut, nor on the nodes around it. The upper byte is 0. */
uint64_t node_key(const struct node *node);

/* Multiply-accumulates of a forward pass of one sample of a node. */
uint64_t node_macs(const struct graph *graph, uint32_t node);

const char *op_name(enum op_kind kind);
/* Negative if unknown. */
int op_from_name(const char *name);

/* What the backward pass of a node reads (enum as bit mask). */
enum op_needs { NEED_X = 1, NEED_Y = 2, NEED_KEPT = 4, NEED_DY = 8 };

/* Mask of what backward of this node reads; NEED_DY is in it for all kinds but
 * the input and the loss. NEED_KEPT is memory
 * that the back end fills in forward (batch statistics, masks, pool indexes,
 * probabilities); how many bytes, the back end says. */
unsigned node_backward_needs(const struct node *node);

#endif
