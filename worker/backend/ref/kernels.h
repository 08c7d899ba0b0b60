/* The operators of the reference back end, once per type.
 *
 * kernels_f32.c and kernels_f64.c compile the same source (*.inc) with REAL
 * as float and as double. Tensors are plain: images [n][c][h][w], vectors
 * [n][c]. Every sum is carried in double, in an order fixed by the code, and
 * rounded to REAL once.
 */
#ifndef GEMS_WORKER_BACKEND_REF_KERNELS_H
#define GEMS_WORKER_BACKEND_REF_KERNELS_H

#include "worker/backend/backend.h"

/* An operator of fixed shape. */
struct ref_geometry {
    struct node node;
    struct shape in;                 /* of inputs[0] */
    uint32_t in_c[MODEL_MAX_INPUTS]; /* channels of every input */
    uint32_t batch;
    struct be_op_info info;
};

typedef int (*ref_call_fn)(const struct ref_geometry *g, const struct be_args *a,
                           struct gems_error *err);

struct ref_kernels {
    struct {
        ref_call_fn forward, forward_eval; /* forward_eval NULL: same as forward */
        ref_call_fn backward_input, backward_weight;
    } ops[OP_KIND_COUNT];
    struct be_vector vector;
};

extern const struct ref_kernels ref_kernels_f32, ref_kernels_f64;


#endif
