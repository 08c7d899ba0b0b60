/* What a device library offers to a rank: one const table per back end.
 *
 * A back end knows operators of fixed shape and batch. Making one happens in
 * two steps: describe (sizes only, no code generation: gems-inspect uses just
 * this) and build (primitives). Running one takes raw pointers, so that one
 * operator serves every slot, and allocates nothing.
 *
 * Layouts are the back end's own: a tensor's layout is a function of its shape
 * and of the kind of device alone, never of the cut, so that it is also the
 * layout on the wire. Images (OP_INPUT) and labels are plain: f32 (or f64)
 * [n][c][h][w] and uint32 [n].
 *
 * Written or added to: `grads` is written if grads_write, else added to, in
 * one addition per element; everything else is written. Parameter blocks,
 * their gradients and optimizer state share one layout (elements at equal
 * offsets), padding elements are zero and stay zero.
 *
 * Thread: the compute thread. Errors: GEMS_E_UNSUPPORTED from describe,
 * GEMS_E_NOMEM and GEMS_E_DEVICE elsewhere; a device error is sticky.
 */
#ifndef GEMS_WORKER_BACKEND_BACKEND_H
#define GEMS_WORKER_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/graph.h"

struct gems_error;
struct be_device;
struct be_op;
struct be_event;

enum be_type { BE_F32, BE_F64 };

/* What an operator is made for. */
enum be_mode { BE_TRAIN, BE_EVAL };

struct be_op_desc {
    const struct graph *graph;
    uint32_t node;
    uint32_t batch; /* samples */
    enum be_mode mode;
};

/* One parameter tensor inside the node's block. */
struct be_param {
    uint64_t offset;   /* bytes from the start of the block, aligned to 64 */
    uint64_t elements; /* with padding */
};

struct be_op_info {
    uint64_t out_bytes;     /* y */
    uint64_t kept_bytes;    /* BE_TRAIN: written by forward, read by backward */
    uint64_t scratch_bytes; /* largest of its calls */
    uint64_t param_bytes;   /* whole block, multiple of 64 */
    uint64_t param2_bytes;  /* second layout for backward_input, 0: none */
    uint32_t n_params;
    struct be_param params[MODEL_MAX_PARAMS]; /* in the order of node_params() */
};

/* What random numbers of a call follow from, besides its node's name. The same
 * in forward, recomputation and backward of a micro-batch. */
struct be_draw {
    uint64_t seed, epoch;
    uint64_t first_sample; /* of the micro-batch, counted within the epoch */
};

/* Pointers of one call. Unused ones are NULL. All are aligned to 64. */
struct be_args {
    const void *x[MODEL_MAX_INPUTS];
    void *y;
    void *kept;
    const void *dy;
    void *dx[MODEL_MAX_INPUTS]; /* NULL: not wanted. Never aliases dy, except OP_ADD and
                                   OP_RELU, which may work in place */
    const void *params;         /* block of the node */
    const void *params2;        /* second layout, made by derive() */
    void *grads;                /* block like params; running statistics have their rows here */
    bool grads_write;
    void *scratch;
    struct be_draw draw;        /* OP_DROPOUT */
    const uint32_t *labels;     /* OP_LOSS */
    double grad_scale;          /* OP_LOSS backward: 1 / samples of the whole step */
    double stat_weight;         /* OP_BATCHNORM backward: coefficient of this micro-batch's mean and
                                   unbiased variance, which go into the statistics' rows of grads
                                   as any gradient does (ARCHITECTURE.md 6) */
    double *loss_sum;           /* OP_LOSS forward: sum over samples, written */
    uint32_t *n_correct;        /* OP_LOSS forward: arg max (first) equals label, written */
};

/* Operators. backward_input writes dx of every input whose dx is not NULL;
 * backward_weight handles grads. Input comes first; where something above the
 * node has weights, OP_BATCHNORM needs it before backward_weight (one pass gives
 * both). Where nothing above has, there is no dx to ask for.
 * OP_LOSS: dx = (probabilities - one-hot) * grad_scale; it has no y. */
struct be_ops {
    int (*describe)(struct be_device *dev, const struct be_op_desc *desc, struct be_op_info *ret_info,
                    struct gems_error *err);
    int (*create)(struct be_device *dev, const struct be_op_desc *desc, struct be_op **ret_op,
                  struct gems_error *err);
    void (*destroy)(struct be_op *op);
    const struct be_op_info *(*info)(const struct be_op *op);
    int (*forward)(struct be_op *op, const struct be_args *args, struct gems_error *err);
    int (*backward_input)(struct be_op *op, const struct be_args *args, struct gems_error *err);
    int (*backward_weight)(struct be_op *op, const struct be_args *args, struct gems_error *err);
    /* Makes params2 from params; called after each update. */
    int (*derive)(struct be_op *op, const void *params, void *ret_params2, struct gems_error *err);
    /* Canonical layout (row-major, BE_F32 or BE_F64 as the device's type) to
     * and from parameter p of a block; works on gradients and optimizer state. */
    int (*param_import)(struct be_op *op, uint32_t p, const void *plain, void *block, struct gems_error *err);
    int (*param_export)(struct be_op *op, uint32_t p, const void *block, void *ret_plain, struct gems_error *err);
    /* Output tensor of the node to and from plain [n][c][h][w]. */
    int (*tensor_import)(struct be_op *op, const void *plain, void *ret_tensor, struct gems_error *err);
    int (*tensor_export)(struct be_op *op, const void *tensor, void *ret_plain, struct gems_error *err);
};

struct be_sgd {
    double lr, momentum, weight_decay;
    bool is_nesterov;
};
struct be_adam {
    double lr, beta1, beta2, eps, weight_decay;
    bool is_decoupled; /* adamw */
    uint64_t step;     /* from 1, for bias correction */
};

/* Vector work on flat memory of the device's type. n elements. */
struct be_vector {
    int (*add)(struct be_device *dev, const void *a, const void *b, void *ret_sum, uint64_t n,
               struct gems_error *err); /* ret_sum may be a or b */
    /* Optimizers, element by element, state in place. 
     * Sources: docs/MATH.md, "optimizers". */
    int (*sgd)(struct be_device *dev, void *w, const void *g, void *momentum, uint64_t n,
               const struct be_sgd *p, struct gems_error *err);
    int (*adam)(struct be_device *dev, void *w, const void *g, void *m, void *v, uint64_t n,
                const struct be_adam *p, struct gems_error *err);
    /* s <- keep * s + g: running statistics. */
    int (*decay_add)(struct be_device *dev, void *s, const void *g, uint64_t n, double keep,
                     struct gems_error *err);
};

/* Device: memory and order of execution. On the CPU everything is done when
 * a call returns, and an event is done at once. */
struct be_device_ops {
    int (*open)(uint32_t index, uint32_t threads, enum be_type type, struct be_device **ret_dev,
                struct gems_error *err);
    void (*close)(struct be_device *dev);
    /* One region, zeroed, aligned to 2 MiB where large, in huge pages where
     * there are any, touched. */
    int (*alloc)(struct be_device *dev, uint64_t bytes, void **ret_memory, struct gems_error *err);
    void (*free)(struct be_device *dev, void *memory, uint64_t bytes);
    int (*copy_in)(struct be_device *dev, void *to, const void *from_host, uint64_t bytes, struct gems_error *err);
    int (*copy_out)(struct be_device *dev, void *to_host, const void *from, uint64_t bytes, struct gems_error *err);
    /* Events mark a point in the device's queue. event_wait blocks. */
    int (*event_record)(struct be_device *dev, struct be_event **ret_event, struct gems_error *err);
    bool (*event_done)(struct be_event *event);
    int (*event_wait)(struct be_event *event, struct gems_error *err);
    void (*event_release)(struct be_event *event);
};

struct backend {
    const char *name; /* "ref", "cpu" */
    bool is_host_memory; /* pointers may be read by the CPU and the transport */
    /* Kind of device: library version and instruction set, part of what decides
     * bits: "oneDNN 2.6.3 avx512_core"; with " threads N" once a device is open.
     * Static text. */
    const char *(*kind)(void);
    const struct be_device_ops *device;
    const struct be_ops *ops;
    const struct be_vector *vector;
};

/* NULL and an error that lists what this build has, if unknown. */
const struct backend *backend_find(const char *name, struct gems_error *err);
/* i-th back end of this build; NULL past the end. ref is always there. */
const struct backend *backend_at(uint32_t i);

#endif
