/* A job as its owner describes it: the job file, checked and with defaults.
 *
 * Filled by client/jobfile (from YAML) and proto/codec (from the wire), so it
 * is checked twice by the same spec_check. Pure data, fixed size, no pointers:
 * it may be copied by assignment. Zero means "auto" or "not given" where a
 * field says so.
 */
#ifndef GEMS_PLAN_SPEC_H
#define GEMS_PLAN_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/zoo.h"

struct gems_error;

enum { SPEC_PATH_BYTES = 1024, SPEC_MAX_STAGES = 256, SPEC_NAME_BYTES = 64 };

enum data_format { DATA_SYNTHETIC, DATA_IDX, DATA_IMAGEFOLDER };
enum optimizer { OPTIMIZER_SGD, OPTIMIZER_ADAM, OPTIMIZER_ADAMW };
enum lr_schedule { LR_CONSTANT, LR_STEP, LR_COSINE };
enum precision { PRECISION_FP32, PRECISION_F64 /* ref only, for proofs */ };
enum recompute { RECOMPUTE_NONE, RECOMPUTE_CHEAP, RECOMPUTE_ALL, RECOMPUTE_AUTO };
enum device_kind { DEVICE_ANY, DEVICE_REF, DEVICE_CPU, DEVICE_CUDA };
enum schedule_kind {
    SCHEDULE_AUTO, SCHEDULE_SINGLE, SCHEDULE_LAYER, SCHEDULE_GPIPE, SCHEDULE_1F1B,
    SCHEDULE_1F1B_INTERLEAVED, SCHEDULE_ZB_H1, SCHEDULE_V_HALF, SCHEDULE_V_MIN,
    SCHEDULE_GEMS_MAST, SCHEDULE_GEMS_MASTER, SCHEDULE_CHIMERA, SCHEDULE_COUNT
};

struct data_spec {
    enum data_format format;
    char train[SPEC_PATH_BYTES]; /* absolute */
    char eval[SPEC_PATH_BYTES];  /* absolute; empty: no evaluation */
    uint32_t height, width, channels;
    uint64_t samples, eval_samples; /* synthetic */
    bool is_flip, is_shift;         /* augmentation; shift by up to 1/8 of the side */
    double mean, std;               /* pixel p in 0..255 becomes (p / 255 - mean) / std */
};

struct train_spec {
    uint32_t epochs; /* 0: steps given */
    uint64_t steps;  /* 0: epochs given */
    uint32_t batch;  /* samples of one optimizer step, over everything */
    enum optimizer optimizer;
    double lr; /* 0: auto (planner_settle: 0.1 for sgd, 0.001 for adam and adamw) */
    double momentum, weight_decay, beta1, beta2, eps;
    bool is_nesterov;
    enum lr_schedule schedule;
    double warmup_epochs;
    uint32_t lr_step_epochs; /* LR_STEP: every so many epochs ... */
    double lr_gamma;         /* ... times this */
    enum precision precision;
    uint64_t seed;
};

struct parallel_spec {
    enum schedule_kind schedule;
    uint32_t stages, groups, chunks, gradient_blocks, microbatch, replications; /* 0: auto */
    enum recompute recompute;
    uint32_t n_balance; /* 0: auto */
    uint32_t balance[SPEC_MAX_STAGES]; /* layers of each stage */
};

struct resource_spec {
    uint32_t devices_min, devices_max; /* 0: auto */
    enum device_kind kind;
    uint64_t memory_bytes; /* limit per device; 0: what the device has */
};

struct job_spec {
    char name[SPEC_NAME_BYTES];
    struct zoo_spec model; /* its channels, height and width are those of data */
    struct data_spec data;
    struct train_spec train;
    struct parallel_spec parallel;
    struct resource_spec resources;
    uint64_t checkpoint_every_steps; /* 0: none */
    uint32_t checkpoint_every_epochs;
    uint32_t checkpoint_keep, checkpoint_keep_best;
    uint64_t limit_seconds; /* 0: none */
    uint32_t max_restarts;
};

/* All defaults; the caller then fills in what is given. */
void spec_init(struct job_spec *spec);

/* Checks every value and combination that needs no file and no device
 * (ranges, batch against microbatch, stages against layers is the planner's).
 * The error names the key as in the job file: "parallel.stages: ...". */
int spec_check(const struct job_spec *spec, struct gems_error *err);

/* Names as in the job file; negative if unknown. */
const char *schedule_name(enum schedule_kind kind);
int schedule_from_name(const char *name); /* gems-basic is layer */
bool schedule_is_available(enum schedule_kind kind); /* in this version */

#endif
