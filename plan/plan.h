/* A plan: how one attempt of a job runs. The result of the planner, complete:
 * nothing is decided after it. Encoded whole by proto/codec. */
#ifndef GEMS_PLAN_PLAN_H
#define GEMS_PLAN_PLAN_H

#include "model/graph.h"
#include "plan/program.h"
#include "plan/spec.h"

/* Facts of a back end about the operators of a graph at one batch size, from
 * gems-inspect (descriptors, no code generation). Indexed by node. */
struct op_facts {
    uint64_t out_bytes;     /* output tensor in its layout, n samples */
    uint64_t kept_bytes;    /* filled by forward for backward */
    uint64_t scratch_bytes; /* largest scratch of any of its calls, training and evaluation */
    uint64_t param_bytes;   /* parameter block, padded; a gradient block is as large */
    uint64_t param2_bytes;  /* second weights layout for backward, 0 if none */
    double forward_seconds, backward_input_seconds, backward_weight_seconds; /* 0: not known */
};

struct facts {
    uint32_t batch; /* samples */
    uint32_t n_nodes;
    struct op_facts *ops; /* owned */
    bool is_measured;     /* times measured on a device, not estimated */
    bool is_exact;        /* bytes from the back end, not a bound */
};
void facts_fini(struct facts *facts);

/* All facts a plan needs: one table per batch size in use (micro-batch, short
 * last training one, short last evaluation one), and what the data set holds. */
enum { FACTS_MAX_SIZES = 4 };
struct fact_set {
    uint32_t n_sizes;
    struct facts sizes[FACTS_MAX_SIZES];
    uint64_t n_train, n_eval; /* samples; 0 train: data set unknown, whole batches assumed */
};
void fact_set_fini(struct fact_set *set);
/* NULL if that batch size is not in the set. */
const struct facts *fact_set_find(const struct fact_set *set, uint32_t batch);

/* A device that a job may use. */
struct plan_device {
    enum device_kind kind;
    uint64_t memory_bytes; /* limit */
    double speed;          /* relative to the facts' device; 1 */
    uint32_t node;         /* index of its node: ranks of one node share memory */
    uint32_t threads;
};

/* A tensor read in a later stage: one edge for each stage that reads it. The
 * tensor goes straight to each of them. Its gradient is summed from the last
 * reader to the first (model/backward.h), so with several edges of one node the
 * gradient goes from to_stage to the next lower to_stage, which adds its part,
 * and from the lowest one to from_stage. */
struct plan_edge {
    uint32_t node; /* whose output */
    uint16_t from_stage, to_stage;
};

/* Bytes of one rank by class; total is their sum. */
struct rank_memory {
    uint64_t weights_bytes;     /* parameters and second layouts */
    uint64_t gradients_bytes;   /* all gradient buffers */
    uint64_t optimizer_bytes;   /* owned blocks times states: SGD 1 (momentum 0 too), Adam 2 */
    uint64_t activations_bytes; /* slots */
    uint64_t buffers_bytes;     /* gradient send and receive, reduction, loader, checkpoint */
    uint64_t workspace_bytes;   /* temporaries and operator scratch */
    uint64_t total_bytes, limit_bytes;
};

struct plan {
    enum schedule_kind schedule;
    uint32_t n_stages, n_groups, n_chains, n_ranks;
    uint32_t microbatch, n_microbatches, n_blocks; /* of a full step */
    uint32_t pass_microbatches;                /* gems-master: micro-batches of one pass; else 0 */
    enum recompute recompute;                  /* of the job */
    uint32_t stage_recompute[SPEC_MAX_STAGES]; /* enum recompute, never AUTO */
    uint32_t stage_layers[SPEC_MAX_STAGES];    /* layers of each stage (balance) */
    uint32_t stage_node[SPEC_MAX_STAGES + 1];  /* first node of each stage; [n_stages] = n_nodes */
    uint32_t n_edges;
    struct plan_edge *edges;  /* owned; by (node, to_stage) */
    uint64_t n_train, n_eval; /* samples of an epoch; evaluation too goes in steps of `batch` */
    uint64_t steps_per_epoch, steps_total;
    /* Programs: full step; last step of an epoch if it is shorter; the same
     * for evaluation. n_ranks is 0 in those that the job does not need. */
    struct program train, train_last, eval, eval_last;
    struct rank_memory *memory;                             /* owned, n_ranks */
    double step_seconds, samples_per_second, idle_fraction; /* from sim */
    uint64_t parameters;
    bool fits;
    char advice[512]; /* one sentence; what would make it fit, or a remark */
};

void plan_fini(struct plan *plan); /* also of a zeroed one */

/* Stage to which the gradient of an edge goes. */
uint32_t plan_grad_stage(const struct plan *plan, uint32_t edge);

/* Devices of one pipeline, P: ranks of a group. */
uint32_t plan_width(const struct plan *plan);

/* Rank that holds stage s of a chain of a group. With as many stages as devices
 * that is device s; more stages are dealt round and round (stage s on device
 * s mod P) or, where the schedule says so, there and back (V: device d holds
 * stages d and 2P-1-d). The mirrored chain 1 counts devices from the other end;
 * group g starts at rank g * P. */
uint32_t plan_rank(const struct plan *plan, uint32_t group, uint32_t chain, uint32_t stage);

/* Stages resident on a rank (each once, ascending). */
enum { PLAN_MAX_RESIDENT = 16 };
uint32_t plan_resident(const struct plan *plan, uint32_t rank,
                       uint32_t ret_stages[PLAN_MAX_RESIDENT]);

/* The gradient blocks that a chain of a group sums, [*ret_first, *ret_last): a
 * whole part of the tree over the blocks (gradient_split). The tree is dealt to
 * the groups, and the part of a group to its chains, by the same rule: several
 * takers split where the tree splits. False: a part with one block is left to
 * several takers, so the layout cannot keep the job's sums. */
bool plan_blocks(const struct plan *plan, uint32_t group, uint32_t chain, uint32_t *ret_first,
                 uint32_t *ret_last);

/* Can all groups and chains own whole parts of the tree? */
bool plan_keeps_sums(const struct plan *plan);

/* Micro-batches of a step of n that a group works on: chain 0 [*ret_first,
 * *ret_middle), chain 1 [*ret_middle, *ret_last), all of chain 0 if there is one
 * chain. Any of them may be empty. */
void plan_share(const struct plan *plan, uint32_t group, uint32_t n, uint32_t *ret_first,
                uint32_t *ret_middle, uint32_t *ret_last);

/* Copies of a stage, groups times chains, at most so many (mask of REDUCE). */
enum { PLAN_MAX_COPIES = 32 };

/* Ranks that hold a copy of a stage's weights, ordered by the gradient blocks
 * they own; returns their number. */
uint32_t plan_copies(const struct plan *plan, uint32_t stage, uint32_t *ret_ranks,
                     uint32_t max_ranks);

/* Which copy (index into plan_copies) owns what of a stage, for k copies: the
 * parameter blocks of the stage's nodes (a block never splits: facts know
 * nothing finer) are dealt in node order in contiguous runs of about equal
 * padded bytes. block_bytes[n]: op_facts.param_bytes of each node of the stage,
 * those without parameters included; ret_first[k+1]: first node of each owner,
 * counted from the stage's first. */
void plan_shards(const uint64_t *block_bytes, uint32_t n, uint32_t k, uint32_t *ret_first);

#endif
