/* The interpreter: one loop over a rank's instructions, the same for every
 * schedule.
 *
 * Sends are handed to the communication thread behind the instruction that
 * made the tensor. Receives are posted as soon as their memory is free, also
 * for the next program while this one runs, and waited for by the instruction
 * that reads them. Nothing writes memory that is still being sent: sends in
 * flight hang on their area (an activation slot or a gradient buffer), and
 * whoever writes there waits for them first. A message of the rank to itself
 * follows the same rules, the compute thread copying it when both ends are there;
 * the communication thread never sees it.
 *
 * Reductions overlap with what follows: REDUCE only sends, UPDATE waits for
 * the parts, and the weights that GATHER brings are waited for by the next
 * pass through their stage.
 *
 * Allocates nothing while it runs. Thread: compute; `watch` is read by any.
 */
#ifndef GEMS_WORKER_RANK_EXEC_H
#define GEMS_WORKER_RANK_EXEC_H

#include "worker/data/loader.h"
#include "worker/rank/ledger.h"
#include "worker/rank/optim.h"
#include "worker/rank/prepare.h"
#include "worker/rank/reduce.h"
#include "worker/rank/trainer.h"

/* A stage on this rank and what belongs to it. */
struct resident {
    struct stage stage;
    struct reduce reduce;
    struct optim optim;
    bool is_stale; /* updated, but others' weights or second layouts are not there yet */
};

struct exec {
    const struct plan *plan;
    const struct backend *backend;
    struct be_device *device;
    struct link *link;
    uint32_t element_bytes;
    struct resident *residents; /* borrowed */
    uint32_t n_residents;
    struct exec_memory memory;
    struct exec_program programs[PROGRAM_KIND_COUNT];
    struct exec_item **in_flight; /* owned; by area: sends that may be under way */
    /* Areas that share memory with area a, itself included: overlaps[overlap_first[a]] up to
     * overlap_first[a + 1]. Both owned. */
    uint32_t *overlaps, *overlap_first;
    uint32_t n_areas;
    struct trainer_watch watch;
    struct ledger ledger;

    struct loader *loader; /* set before the first run; NULL: this rank loads nothing */
    uint64_t load_i;       /* next item of the loader */

    /* of the run in progress */
    uint64_t run_i; /* programs begun, this one included */
    const struct exec_run *run;
    struct exec_program *program;
    enum program_kind kind;
    uint32_t n_done;         /* instructions */
    uint32_t own_i, early_i; /* receives before these are posted */
};

/* One pass through a program. */
struct exec_run {
    double grad_scale;
    struct be_draw draw; /* of the program's first sample */
    struct optim_step step;
    /* Whether the program `next` runs directly behind this one: asked while
     * this one runs; receives for it are posted once it is certain. NULL: no. */
    bool (*is_next_certain)(void *arg);
    void *arg;
    enum program_kind next;
};

/* residents and memory must be final (arena_commit done). */
int exec_init(struct exec *exec, const struct plan *plan, uint32_t rank,
              const struct backend *backend, struct be_device *device, struct link *link,
              uint32_t element_bytes, struct resident *residents, uint32_t n_residents,
              const struct exec_memory *memory, struct gems_error *err);
void exec_fini(struct exec *exec); /* also of a zeroed one */

/* Runs a program; afterwards loss_sum and n_correct of it are filled where
 * has_loss. GEMS_E_NAN: a training loss is not a number. After an error
 * requests may still be in flight. */
int exec_program_run(struct exec *exec, enum program_kind kind, const struct exec_run *run,
                     struct gems_error *err);

/* Waits for everything in flight; weights are complete after it. */
int exec_finish(struct exec *exec, struct gems_error *err);

#endif
