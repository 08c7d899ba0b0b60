/* Runs one operator of any back end on plain values in double: what the tests
 * of operators compare. */
#ifndef GEMS_TESTS_LIB_OP_TRIAL_H
#define GEMS_TESTS_LIB_OP_TRIAL_H

#include "worker/backend/backend.h"

/* A graph whose last node is under test. Its inputs are outputs of nodes with
 * weights, so that they have gradients, unless is_image. */
struct trial_case {
    enum op_kind kind;
    uint32_t batch, c, h, w; /* input of the node under test */
    uint32_t k, r, s, stride, pad; /* pad: of both sides, but less than the window there */
    bool has_bias, is_relu, is_residual;
    bool is_image; /* reads the images directly */
    double rate;   /* OP_DROPOUT */
    uint32_t more[MODEL_MAX_INPUTS - 1]; /* OP_CONCAT: channels of the inputs behind the first */
};

/* Values in double, plain layout. Filled in by trial_run: y, dx, grads, loss. */
struct trial {
    struct graph graph;
    uint32_t node, batch;
    enum be_mode mode;
    uint32_t n_inputs, n_params;
    uint64_t n_x, n_y; /* elements of a whole batch */
    struct param params[MODEL_MAX_PARAMS];
    double *x[MODEL_MAX_INPUTS], *dy, *values[MODEL_MAX_PARAMS];
    uint32_t *labels;
    double *y, *dx[MODEL_MAX_INPUTS], *grads[MODEL_MAX_PARAMS];
    double loss_sum;
    uint32_t n_correct;
    double stat_weight, grad_scale;
    struct be_draw draw;
    uint32_t n_weight_runs; /* backward_weight calls: 1 written, more added */
    bool has_clean_padding; /* every padding element of what was written is zero */
};

/* Makes the graph and random inputs. Ends the test on failure. */
void trial_init(struct trial *t, const struct trial_case *c);
void trial_fini(struct trial *t);

/* Random inputs, gradients and parameters, the same for every back end. */
void trial_fill(struct trial *t, uint64_t seed);

/* Forward and, in BE_TRAIN, backward. */
void trial_run(struct trial *t, const struct backend *backend, enum be_type type, uint32_t threads);
/* Forward alone. */
void trial_forward(struct trial *t, const struct backend *backend, enum be_type type,
                   uint32_t threads);

#endif
