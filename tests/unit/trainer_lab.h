/* Whole jobs in one process: every rank a thread, the network in-process, the
 * checkpoints in memory. For tests of the trainer. */
#ifndef GEMS_TESTS_TRAINER_LAB_H
#define GEMS_TESTS_TRAINER_LAB_H

#include "common/error.h"
#include "plan/planner.h"
#include "worker/rank/trainer.h"

enum { LAB_MAX_RANKS = 8, LAB_MAX_STEPS = 64 };

struct lab_tensor {
    char name[128], kind[16];
    uint32_t order;
    uint64_t bytes;
    void *data; /* owned */
};

/* What the ranks handed over for one checkpoint. */
struct lab_checkpoint {
    struct trainer_position position;
    bool is_final;
    uint32_t n_tensors, n_announced;
    struct lab_tensor *tensors; /* owned */
};

struct lab_options {
    const char *backend;                  /* "ref" */
    const struct lab_checkpoint *restore; /* NULL: from the start */
    enum trainer_wish wish;               /* rank 0's answer ... */
    uint64_t wish_after;                  /* ... after this step */
    uint64_t keep_step;                   /* checkpoint to keep in `kept`; 0: none */
    uint64_t planted_bytes;               /* added to scratch in the facts behind the plan */
    uint32_t max_delay_us;                /* of messages */
    const char *nan_tensor;               /* starts as NaN */
};

struct lab_rank {
    int status;
    struct gems_error err;
    struct rank_memory planned, taken;
    uint64_t n_allocations; /* by its compute thread in trainer_run */
    uint64_t run_ns;        /* of trainer_run */
    uint64_t busy_ns, wait_ns, step_ns[TIMELINE_SPENT]; /* as the trainer counts them */
};

struct lab_result {
    uint32_t n_ranks;
    struct plan plan;
    struct lab_rank ranks[LAB_MAX_RANKS];
    struct lab_checkpoint final, kept;
    uint64_t n_checkpoints;            /* complete ones */
    uint64_t weights_hash, state_hash; /* of the final checkpoint */
    /* per step, from 1: sums over ranks */
    double loss[LAB_MAX_STEPS], eval_loss[LAB_MAX_STEPS];
    uint64_t counted[LAB_MAX_STEPS], eval_counted[LAB_MAX_STEPS], eval_correct[LAB_MAX_STEPS];
};

/* Defaults of a small job on synthetic images; model is "mlp", "lenet",
 * "resnet1", "resnet2", "amoebanet" or "dropout": the mlp with a dropout behind each
 * hidden layer, since the zoo has one in large networks alone. */
void lab_spec(const char *model, struct job_spec *ret_spec);
/* The fused network of such a job; ends the test on failure. */
void lab_graph(const struct job_spec *spec, struct graph *ret_graph);

/* Settles, plans and runs. Aborts the test if the plan cannot be made; what
 * the ranks say is in the result. */
void lab_run(const struct job_spec *spec, const struct lab_options *options,
             struct lab_result *ret_result);
void lab_result_fini(struct lab_result *result);

/* Tensor of a checkpoint; NULL if it is not there. */
const struct lab_tensor *lab_find(const struct lab_checkpoint *checkpoint, const char *kind,
                                  const char *name);

/* Counts malloc, calloc, realloc and aligned allocation of the calling thread;
 * false where a sanitizer owns them. */
bool lab_counts_allocations(void);

#endif
