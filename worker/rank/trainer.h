/* Trains one rank's part of a job: memory, stages, the step loop.
 *
 * Knows nothing of gemsd: what happens is told through trainer_events, so that
 * tests run all ranks of a job as threads of one process over net_local.
 * create, import and run belong to the compute thread.
 */
#ifndef GEMS_WORKER_RANK_TRAINER_H
#define GEMS_WORKER_RANK_TRAINER_H

#include <stdatomic.h>

#include "plan/plan.h"
#include "plan/timeline.h"
#include "worker/backend/backend.h"
#include "worker/data/dataset.h"
#include "worker/rank/link.h"

struct trainer;

/* A tensor of a checkpoint: canonical plain f32 (f64 for PRECISION_F64). */
struct trainer_tensor {
    const char *name; /* "stack0.block1.conv2.weight" */
    const char *kind; /* "weight" (statistics too), "momentum", "adam_m", "adam_v" */
    uint32_t order;   /* canonical index over the whole model, kinds apart */
    uint32_t n_dims;
    uint64_t dims[4];
    uint64_t bytes;
};

/* Position of the run: everything a restart needs beside the tensors. */
struct trainer_position {
    uint64_t step;    /* steps done */
    uint64_t samples; /* samples seen */
};

struct trainer_step {
    uint64_t step;               /* 1 = first */
    uint32_t epoch;              /* of that step, from 0 */
    uint64_t samples;            /* seen by the job so far */
    uint64_t counted, n_correct; /* counted: samples behind loss_sum on this rank */
    double loss_sum, seconds;
    bool is_eval;
};

/* All called on the compute thread; a negative return ends the run with it. */
struct trainer_events {
    /* After each step, and after an evaluation pass (is_eval); only on ranks
     * that hold a last stage: the sums of its own micro-batches. */
    int (*step)(void *arg, const struct trainer_step *step);
    /* After each step but the last, on rank 0 only. Whether to write a checkpoint
     * beyond those of the spec or to stop must be the same decision on all ranks:
     * the answer after step s goes to every rank as a message of 8 bytes with
     * TAG_CONTROL, and all of them act on it after step s + 1. So nobody waits for
     * it, and the answers of one run form one sequence. NULL: TRAINER_GO_ON. */
    enum trainer_wish {
        TRAINER_GO_ON,
        TRAINER_CHECKPOINT,
        TRAINER_CHECKPOINT_AND_STOP
    } (*wish)(void *arg);
    /* A checkpoint is due after `step`: begin, then tensor() for each tensor
     * this rank owns, then end. data is valid during the call only. is_final: no
     * step follows. end may return 1: the whole sequence is repeated. NULL begin: no
     * checkpoints are wanted. */
    int (*checkpoint_begin)(void *arg, const struct trainer_position *position, uint32_t epoch,
                            bool is_final);
    int (*checkpoint_tensor)(void *arg, const struct trainer_tensor *tensor, const void *data);
    int (*checkpoint_end)(void *arg, uint32_t n_tensors);
};

struct trainer_config {
    const struct job_spec *spec; /* settled; all borrowed */
    const struct graph *graph;   /* fused */
    const struct plan *plan;
    uint32_t rank;
    const struct backend *backend;
    struct be_device *device;
    struct link *link;            /* connected, or NULL for a plan of one rank */
    struct dataset *train, *eval; /* on ranks with a first or last stage; eval may be NULL */
    const struct trainer_events *events;
    void *events_arg;
};

/* Takes all memory, makes all operators, fills in initial weights. */
int trainer_create(const struct trainer_config *config, struct trainer **ret_trainer,
                   struct gems_error *err);
void trainer_destroy(struct trainer *trainer);

/* Bytes taken, by class, summed from what operators, link, optimizer and
 * loader asked of the arena: not read from the plan. */
void trainer_memory(const struct trainer *trainer, struct rank_memory *ret_memory);

/* Tensors that this rank needs from a checkpoint; i from 0, false at the end. */
bool trainer_tensor_at(const struct trainer *trainer, uint32_t i,
                       struct trainer_tensor *ret_tensor);
int trainer_import(struct trainer *trainer, uint32_t i, const void *data, struct gems_error *err);

/* Runs from a position to the end of the job; once. GEMS_E_NAN if the loss is
 * not a number; GEMS_E_CANCELLED after TRAINER_CHECKPOINT_AND_STOP. After any
 * other error messages may still be under way: link_abort and destroy the link
 * before the trainer. */
int trainer_run(struct trainer *trainer, const struct trainer_position *from,
                struct gems_error *err);

/* For heartbeats: readable from any thread while trainer_run runs. */
struct trainer_watch {
    _Atomic uint64_t step, watermark; /* watermark grows with every instruction */
    _Atomic uint32_t microbatch;
    _Atomic uint32_t phase; /* enum instr_op */
    _Atomic uint64_t busy_ns, wait_ns;
    _Atomic uint64_t step_ns[TIMELINE_SPENT]; /* of a training step, mean (ledger.h) */
};
const struct trainer_watch *trainer_watch(const struct trainer *trainer);

/* Steps at which the whole job writes checkpoints and evaluates. Pure. */
bool trainer_checkpoint_due(const struct job_spec *spec, const struct plan *plan, uint64_t step);
bool trainer_eval_due(const struct job_spec *spec, const struct plan *plan, uint64_t step);
/* Learning rate of a step (from 1): warm-up, then the schedule. */
double trainer_lr(const struct job_spec *spec, const struct plan *plan, uint64_t step);

#endif
