/* Programs resolved for execution: numbers become pointers, once.
 *
 * An instruction list names stages, slots, edges and micro-batches; before the
 * first step each instruction is bound to its stage, operators, memory and
 * message, and every receive learns the moment from which its memory is free.
 * Knows instructions, not schedules. Thread: compute.
 */
#ifndef GEMS_WORKER_RANK_PREPARE_H
#define GEMS_WORKER_RANK_PREPARE_H

#include "plan/memory.h"
#include "worker/rank/link.h"
#include "worker/rank/stage.h"

enum program_kind {
    PROGRAM_TRAIN,
    PROGRAM_TRAIN_LAST,
    PROGRAM_EVAL,
    PROGRAM_EVAL_LAST,
    PROGRAM_KIND_COUNT
};

/* Memory of the rank that programs refer to by number, after arena_commit. */
struct exec_memory {
    const struct memory_map *map;
    void *activations;
    void *grad_in, *grad_out; /* n_grad_in and n_grad_out buffers, one behind the other */
    void *temp, *scratch;
};

struct exec_item {
    struct instr instr;
    uint32_t resident;                   /* index of its stage among the rank's */
    const struct stage_variant *variant; /* LOAD, FORWARD, BACKWARD, EVALUATE */
    uint8_t *slot, *grad_in, *grad_out;  /* memory of this micro-batch; NULL: not used */
    int32_t slot_area, grad_out_area;    /* exec_areas; -1: none */
    uint32_t first_input, n_inputs;      /* receives that it reads, in `inputs` */
    /* SEND, RECV */
    uint8_t *buffer;
    uint64_t bytes, tag;
    struct link_request request;
    struct exec_item *next_in_area; /* sends in flight from one area */
    uint64_t posted_run; /* RECV: run of a program (exec.h) that it was last posted for */
    /* A message from the rank to itself: the other end; NULL: of another rank. */
    struct exec_item *partner;
    uint32_t after; /* RECV of such a one: as in exec_post */
    bool is_sent;   /* SEND of such a one: its receive is not posted yet */
    bool is_arrived, is_wanted;
};

/* A receive and the number of instructions that must be done before it. */
struct exec_post {
    uint32_t item, after;
};

struct exec_posts {
    struct exec_post *posts; /* owned; ascending in `after` */
    uint32_t n;
};

struct exec_program {
    const struct program *program;
    struct exec_item *items; /* owned */
    uint32_t n_items;
    uint32_t *inputs;      /* owned */
    struct exec_posts own; /* receives of this program while it runs */
    /* Receives of this program that may be posted while another one, the
     * program before it, still runs. */
    struct exec_posts early[PROGRAM_KIND_COUNT];
    uint32_t *reduce_copies; /* owned; by resident stage: mask of its REDUCE, 0: none */
    double *loss_sum;        /* owned; by micro-batch */
    uint32_t *n_correct;     /* owned; by micro-batch */
    bool *has_loss;          /* owned; micro-batches whose last stage runs here */
};

const struct program *plan_program(const struct plan *plan, enum program_kind kind);

/* Resolves the rank's list of each program that the plan has. stages: the
 * resident ones. GEMS_E_UNSUPPORTED names an instruction of later versions;
 * GEMS_E_INTERNAL one that fits no stage, slot or edge. */
int prepare_programs(const struct plan *plan, uint32_t rank, const struct exec_memory *memory,
                     const struct stage *const *stages, uint32_t n_stages,
                     struct exec_program ret_programs[PROGRAM_KIND_COUNT], struct gems_error *err);
void prepare_fini(struct exec_program programs[PROGRAM_KIND_COUNT]); /* also of zeroed ones */

#endif
