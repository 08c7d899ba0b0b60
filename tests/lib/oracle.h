/* Trains a whole network on one device in the plainest way: every tensor in a
 * buffer of its own, every node in order, no plan. It is what the interpreter
 * of a rank is compared with, bit for bit, and it is itself compared with
 * PyTorch (reference back end, f64).
 *
 * Follows docs/ARCHITECTURE.md, section 6: gradients are summed in the order of
 * micro-batches inside a block and by gradient_split() over the blocks;
 * statistics enter as rows of the gradient. One thread.
 */
#ifndef GEMS_TESTS_LIB_ORACLE_H
#define GEMS_TESTS_LIB_ORACLE_H

#include "worker/backend/backend.h"

struct oracle;

struct oracle_config {
    const struct graph *graph; /* borrowed */
    const struct backend *backend;
    enum be_type type;
    uint32_t threads;
    uint64_t seed; /* of the initial weights */
};

struct oracle_batch {
    const void *images;     /* plain [n][c][h][w], of the device's type */
    const uint32_t *labels; /* [n] */
    uint32_t n;
    uint32_t microbatch; /* samples; the last one may be shorter */
    uint32_t n_blocks;
    struct be_draw draw; /* of the first sample */
};

struct oracle_result {
    double loss_sum;
    uint32_t n_correct;
};

/* Optimizer of a step. */
enum oracle_optimizer { ORACLE_SGD, ORACLE_ADAM };
struct oracle_update {
    enum oracle_optimizer kind;
    struct be_sgd sgd;
    struct be_adam adam;
};

int oracle_create(const struct oracle_config *config, struct oracle **ret_oracle,
                  struct gems_error *err);
void oracle_destroy(struct oracle *oracle);

/* Forward and backward of a step: leaves the sum of all gradients. */
int oracle_gradients(struct oracle *oracle, const struct oracle_batch *batch,
                     struct oracle_result *ret_result, struct gems_error *err);
/* Applies them; decay of weights for PARAM_WEIGHT only. */
int oracle_apply(struct oracle *oracle, const struct oracle_update *update, struct gems_error *err);
/* With the running statistics; nothing is kept. */
int oracle_evaluate(struct oracle *oracle, const struct oracle_batch *batch,
                    struct oracle_result *ret_result, struct gems_error *err);

/* Canonical plain values of a parameter tensor: the parameter, the gradient of
 * the last step, or the optimizer's first or second state. */
enum oracle_what { ORACLE_PARAM, ORACLE_GRADIENT, ORACLE_STATE1, ORACLE_STATE2 };
int oracle_export(struct oracle *oracle, enum oracle_what what, uint32_t node, uint32_t p,
                  void *ret_plain, struct gems_error *err);
int oracle_import(struct oracle *oracle, enum oracle_what what, uint32_t node, uint32_t p,
                  const void *plain, struct gems_error *err);

#endif
