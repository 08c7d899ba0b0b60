/* A schedule as data: one list of instructions per rank.
 *
 * Generators (sched_*.c) write programs; program_check proves them; memory
 * and sim measure them; worker/rank/exec runs them; the client draws them.
 *
 * Terms. A chain is one pass direction through the devices (0: the direct
 * replica, 1: the mirrored one). Stage s of a chain is a contiguous range of
 * layers. A rank is one device of the job. An edge is a node's output that
 * crosses from one stage to a later one. A slot is memory on a rank for one
 * micro-batch of one (chain, stage) from its FORWARD (or first RECV) to the
 * end of its BACKWARD; slots are numbered per rank.
 *
 * A rank executes its list in order. SEND and RECV do not block the list:
 * SEND hands the tensor over when the instruction before it is done; a RECV
 * is posted as soon as its memory is free (memory_recv_after), and the
 * instruction that needs the tensor waits for it. An instruction that writes
 * memory which is still being sent waits for the end of that send; LOAD and
 * FORWARD into a slot wait for everything that used memory under it.
 * SEND and RECV stand directly behind and before the instruction that makes
 * or needs the tensor, sends first: so a rank that waits has handed over all
 * that it owes.
 *
 * Lifetimes. Of a slot: from its first RECV or LOAD to the end of its last
 * instruction before the next RECV or LOAD of another micro-batch (BACKWARD or
 * BACKWARD_WEIGHT, or in evaluation EVALUATE and the sends behind it). GRAD_IN
 * buffer: from RECV_GRAD to BACKWARD or BACKWARD_INPUT. GRAD_OUT: from there to the
 * end of SEND_GRAD.
 *
 * A rank may hold several stages of one chain and then sends to itself (peer is its
 * own number): the same rules, the message being a copy in its memory.
 *
 * Halves. A schedule that is_split (plan/sched.h) has no BACKWARD. BACKWARD_INPUT
 * stands where it would (receives before, sends behind) and runs layout.backward;
 * BACKWARD_WEIGHT, later and without messages, runs layout.weight, adds into gradient
 * buffer `block` and ends the slot; between them the slot stays held.
 */
#ifndef GEMS_PLAN_PROGRAM_H
#define GEMS_PLAN_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gems_error;

enum instr_op {
    INSTR_LOAD,            /* images into slot (first stage), labels into slot (last stage) */
    INSTR_FORWARD,         /* stage on slot, keeping there what backward reads */
    INSTR_BACKWARD,        /* input and weight gradients; adds into gradient buffer `block` */
    INSTR_BACKWARD_INPUT,  /* input gradients alone */
    INSTR_BACKWARD_WEIGHT, /* weight gradients alone; adds into gradient buffer `block` */
    INSTR_RECOMPUTE,       /* rebuild what the slot did not keep */
    INSTR_SEND_ACT,        /* edge's tensor in slot, to peer */
    INSTR_RECV_ACT,        /* edge's tensor into slot, from peer */
    INSTR_SEND_GRAD,       /* gradient of an input edge, to peer; buffer index `slot` */
    INSTR_RECV_GRAD,       /* gradient of an output edge, from peer; buffer index `slot` */
    INSTR_COMBINE,         /* gradient buffer `block` += gradient buffer `slot`, one stage, local;
                              buffer 0 of a stage holds the rank's sum when all backwards are done */
    INSTR_REDUCE,          /* gradients of a stage: shards to their owners, summed there in fixed
                              order; `microbatch` is a mask: bit c, copy c (plan_copies) has gradients
                              in this step, in its buffer 0. Others send nothing, and own their shard
                              all the same */
    INSTR_UPDATE,          /* optimizer on the owned shard of a stage */
    INSTR_GATHER,          /* updated shards of a stage to all its copies */
    INSTR_EVALUATE, /* in evaluation programs: forward with running statistics, nothing kept */
    INSTR_OP_COUNT
};

/* Fields that an operation does not use are zero. */
struct instr {
    uint8_t op; /* enum instr_op */
    uint8_t chain;
    uint16_t stage;
    uint16_t segment;    /* 0 in this version */
    uint16_t peer;       /* rank: SEND, RECV */
    uint32_t microbatch; /* index within the step */
    uint32_t edge;       /* index into plan's edges */
    uint16_t slot;       /* activation slot, or gradient receive/send buffer index */
    uint16_t block;      /* gradient buffer of the stage on this rank */
    uint8_t is_first; /* BACKWARD, BACKWARD_WEIGHT: first of its block: writes instead of adding */
};

struct instr_list {
    struct instr *items; /* owned */
    uint32_t n, capacity;
};

/* What one program does: a step of training or of evaluation. */
struct program {
    bool is_eval;
    uint32_t n_ranks;
    uint32_t n_microbatches;
    uint32_t microbatch;      /* samples of all micro-batches but the last */
    uint32_t last_microbatch; /* samples of the last one, 1..microbatch */
    struct instr_list *ranks; /* owned, n_ranks lists */
};

int program_init(struct program *program, uint32_t n_ranks, struct gems_error *err);
void program_fini(struct program *program); /* also of a zeroed one */

/* Appends to a rank's list. GEMS_E_NOMEM. */
int program_add(struct program *program, uint32_t rank, const struct instr *instr,
                struct gems_error *err);

/* Samples of micro-batch i. */
uint32_t program_samples(const struct program *program, uint32_t microbatch);

const char *instr_name(enum instr_op op); /* "FORWARD" */

/* Tag of a message on the wire, 64 bits, unique within an attempt's step:
 * kind (4) | chain (4) | edge (16) | destination stage (12) | micro-batch (20) | shard (8). */
enum tag_kind { TAG_ACT = 1, TAG_GRAD = 2, TAG_REDUCE = 3, TAG_GATHER = 4, TAG_CONTROL = 5 };
uint64_t program_tag(enum tag_kind kind, uint32_t chain, uint32_t edge, uint32_t to_stage,
                     uint32_t microbatch, uint32_t shard);

/* Gradient block of micro-batch i: N micro-batches form G contiguous blocks,
 * block b holds [ceil(bN/G), ceil((b+1)N/G)); a block may be empty if N < G. */
uint32_t gradient_block(uint32_t microbatch, uint32_t n_microbatches, uint32_t n_blocks);
uint32_t gradient_block_first(uint32_t block, uint32_t n_microbatches, uint32_t n_blocks);

/* The tree over the blocks, the order of every sum of gradients: n > 1 blocks
 * are the sum of the first gradient_split(n) of them, the largest power of two
 * below n, and the rest. A part without micro-batches adds nothing: the sum is
 * then the other part. */
uint32_t gradient_split(uint32_t n_blocks);

#endif
