/* The optimizer on the shard of a stage that this rank owns.
 *
 * The shard is walked in ranges of parameters that are treated alike: trained
 * with weight decay (PARAM_WEIGHT), trained without, and running statistics,
 * which move by decay a^N per step plus the sum of their gradient rows
 * (ARCHITECTURE.md 6). State (momentum; m and v) has the layout of the
 * shard. Thread: compute.
 */
#ifndef GEMS_WORKER_RANK_OPTIM_H
#define GEMS_WORKER_RANK_OPTIM_H

#include "plan/plan.h"
#include "worker/rank/stage.h"

enum { OPTIM_MAX_STATES = 2 };

struct optim_range {
    uint64_t offset; /* bytes from the start of the shard */
    uint64_t elements;
    bool is_statistic, is_decayed;
    double decay; /* of a statistic, per micro-batch */
};

struct optim {
    const struct stage *stage;
    const struct train_spec *train;
    uint64_t first_byte, bytes; /* shard within the stage's parameters */
    struct optim_range *ranges; /* owned */
    uint32_t n_ranges;
    void *state[OPTIM_MAX_STATES];
};

struct optim_step {
    double lr;
    uint64_t step;           /* from 1 */
    uint32_t n_microbatches; /* of the step */
};

/* States per parameter: 1 (SGD: momentum) or 2 (Adam: m, v). */
uint32_t optim_states(enum optimizer optimizer);
/* Kind of a state in a checkpoint: "momentum", "adam_m", "adam_v". */
const char *optim_state_kind(enum optimizer optimizer, uint32_t state);

int optim_init(struct optim *optim, const struct stage *stage, const struct train_spec *train,
               uint64_t first_byte, uint64_t bytes, uint32_t element_bytes, struct gems_error *err);
void optim_fini(struct optim *optim); /* also of a zeroed one */
int optim_ask(struct optim *optim, struct arena *arena, struct gems_error *err);

/* Updates the shard of the stage's parameters with its gradient sum. */
int optim_update(struct optim *optim, const void *grads, const struct optim_step *step,
                 struct gems_error *err);

#endif
