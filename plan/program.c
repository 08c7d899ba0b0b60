#include "plan/program.h"

#include <stdlib.h>

#include "common/error.h"

int program_init(struct program *program, uint32_t n_ranks, struct gems_error *err)
{
    struct instr_list *ranks = calloc(n_ranks ? n_ranks : 1, sizeof *ranks);

    if (!ranks) {
        return gems_error_set(err, GEMS_E_NOMEM, "program of %u ranks: no memory", n_ranks);
    }
    *program = (struct program){ .n_ranks = n_ranks, .ranks = ranks };
    return GEMS_OK;
}

void program_fini(struct program *program)
{
    for (uint32_t i = 0; program->ranks && i < program->n_ranks; i++) {
        free(program->ranks[i].items);
    }
    free(program->ranks);
    *program = (struct program){ 0 };
}

int program_add(struct program *program, uint32_t rank, const struct instr *instr,
                struct gems_error *err)
{
    struct instr_list *list = &program->ranks[rank];

    if (list->n == list->capacity) {
        uint32_t capacity = list->capacity ? 2 * list->capacity : 32;
        struct instr *items = realloc(list->items, capacity * sizeof *items);

        if (!items) {
            return gems_error_set(err, GEMS_E_NOMEM, "program of rank %u: no memory", rank);
        }
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n++] = *instr;
    return GEMS_OK;
}

uint32_t program_samples(const struct program *program, uint32_t microbatch)
{
    return microbatch + 1 == program->n_microbatches ? program->last_microbatch
                                                     : program->microbatch;
}

const char *instr_name(enum instr_op op)
{
    static const char *const names[INSTR_OP_COUNT] = {
        "LOAD",      "FORWARD",  "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT",
        "RECOMPUTE", "SEND_ACT", "RECV_ACT", "SEND_GRAD",      "RECV_GRAD",
        "COMBINE",   "REDUCE",   "UPDATE",   "GATHER",         "EVALUATE",
    };

    return (unsigned)op < INSTR_OP_COUNT ? names[op] : "UNKNOWN";
}

uint64_t program_tag(enum tag_kind kind, uint32_t chain, uint32_t edge, uint32_t to_stage,
                     uint32_t microbatch, uint32_t shard)
{
    return ((uint64_t)(kind & 0xfu) << 60) | ((uint64_t)(chain & 0xfu) << 56) |
           ((uint64_t)(edge & 0xffffu) << 40) | ((uint64_t)(to_stage & 0xfffu) << 28) |
           ((uint64_t)(microbatch & 0xfffffu) << 8) | (shard & 0xffu);
}

uint32_t gradient_block_first(uint32_t block, uint32_t n_microbatches, uint32_t n_blocks)
{
    return (uint32_t)(((uint64_t)block * n_microbatches + n_blocks - 1) / n_blocks);
}

uint32_t gradient_block(uint32_t microbatch, uint32_t n_microbatches, uint32_t n_blocks)
{
    /* the last b with ceil(b N / G) <= i, that is b N <= i G */
    return (uint32_t)((uint64_t)microbatch * n_blocks / n_microbatches);
}

uint32_t gradient_split(uint32_t n_blocks)
{
    uint32_t split = 1;

    while (2 * split < n_blocks) {
        split *= 2;
    }
    return split;
}
