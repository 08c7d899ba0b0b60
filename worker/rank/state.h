/* Inside of a trainer: what its parts (trainer.c, tensors.c, run.c) share. */
#ifndef GEMS_WORKER_RANK_STATE_H
#define GEMS_WORKER_RANK_STATE_H

#include "worker/rank/exec.h"
#include "worker/rank/facts.h"
#include "worker/rank/feed.h"
#include "worker/rank/trainer.h"
#include "worker/rank/wish.h"

enum { TENSOR_NAME_BYTES = MODEL_NAME_BYTES + 32 };

/* A tensor of a checkpoint and where it lives here. */
struct tensor_entry {
    char name[TENSOR_NAME_BYTES];
    const char *kind;
    uint32_t resident, node_i, param;
    int32_t state; /* -1: the parameter itself, else optimizer state */
    bool is_owned; /* this rank writes it to checkpoints */
    uint32_t order, n_dims;
    uint64_t dims[4];
    uint64_t bytes;
};

struct trainer {
    struct trainer_config config;
    uint32_t element_bytes;
    struct fact_set facts;
    struct memory_map map;
    struct arena arena;
    struct resident residents[PLAN_MAX_RESIDENT];
    uint32_t n_residents;
    struct exec exec;
    struct feed feed;
    struct wish wish;
    struct loader *loader; /* only during trainer_run */
    uint32_t loader_batch; /* largest micro-batch */
    void *loader_buffers, *staging;
    struct exec_memory memory;
    struct tensor_entry *tensors; /* owned */
    uint32_t n_tensors;
};

/* Table of the tensors, after the residents are made. */
int tensors_init(struct trainer *trainer, struct gems_error *err);
/* Bytes of the largest parameter in canonical layout, rounded up to 64. */
uint64_t tensors_staging_bytes(const struct trainer *trainer);
/* Initial weights of the job's seed. */
int tensors_start(struct trainer *trainer, struct gems_error *err);
/* Hands every owned tensor to the events; repeats as long as they ask for it. */
int tensors_checkpoint(struct trainer *trainer, const struct trainer_position *position,
                       uint32_t epoch, bool is_final, struct gems_error *err);

#endif
