/* Exact bytes of a rank, from programs and layouts.
 *
 * The rank calls the same function with facts summed from its own operators
 * and then takes exactly these regions from its arena. */
#ifndef GEMS_PLAN_MEMORY_H
#define GEMS_PLAN_MEMORY_H

#include "plan/layout.h"

/* One activation slot of a rank: where it lies in the activation region.
 * Slots whose lifetimes never meet in any program overlap. */
struct memory_slot {
    uint64_t offset, bytes;
};

/* Regions of a rank. All offsets are relative to the start of their region. */
struct memory_map {
    uint32_t n_slots;
    struct memory_slot *slots; /* owned; by slot number of the programs */
    uint64_t activations_bytes;
    uint32_t n_grad_in, n_grad_out; /* buffers of each kind (max index + 1) */
    uint64_t grad_in_bytes, grad_out_bytes; /* of one buffer, the largest of the resident stages */
    uint64_t temp_bytes, scratch_bytes;
    uint32_t n_blocks;          /* gradient buffers of each resident stage (max block + 1) */
    /* Receive buffers of REDUCE: over the resident stages, in their order, copies - 1
     * times the bytes of the blocks that this rank owns (plan_shards). */
    uint64_t reduce_bytes;
    /* Read-ahead: LOADER_DEPTH buffers for the largest micro-batch that the rank runs; of
     * images (with a first stage) and labels (with a last one), each rounded up to 64. */
    uint64_t loader_bytes;
    /* Staging of a checkpoint: the largest parameter tensor of the resident stages in its
     * canonical layout, rounded up to 64. */
    uint64_t snapshot_bytes;
    struct rank_memory total;
};

enum { LOADER_DEPTH = 4 /* micro-batches read ahead per rank */ };

int memory_map_make(const struct graph *graph, const struct job_spec *spec, const struct plan *plan,
                    const struct fact_set *facts, uint32_t rank, struct memory_map *ret_map,
                    struct gems_error *err);
void memory_map_fini(struct memory_map *map);

/* The RECV at items[i] of the rank's list may be posted once the instruction
 * at the returned index is done (SEND: sent): the last one before i that uses
 * memory under the receive's own. -1: at the start of the step. Slots of one
 * rank overlap, so the slot number alone does not tell. */
int64_t memory_recv_after(const struct memory_map *map, const struct instr_list *list, uint32_t i);

#endif
