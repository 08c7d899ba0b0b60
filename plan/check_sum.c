#include "plan/check_sum.h"

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull + b;

    h = (h ^ (h >> 31)) * 0xc4ceb9fe1a85ec53ull;
    return (h ^ (h >> 29)) | 1; /* 0 means empty */
}

/* Sum of two parts of which either may be empty. */
static uint64_t join(uint64_t left, uint64_t right)
{
    return left && right ? mix(left, right) : left ? left : right;
}

const char *check_sum_backward(struct check_sum *sum, const struct instr *backward)
{
    uint64_t *buffer = &sum->buffers[backward->block % CHECK_MAX_BUFFERS];

    if (sum->is_reduced || sum->is_updated) {
        return "comes after the update";
    }
    if (backward->block >= CHECK_MAX_BUFFERS) {
        return "too many gradient buffers";
    }
    if (backward->is_first != (*buffer == 0)) {
        return backward->is_first ? "overwrites a gradient buffer"
                                  : "adds to an empty gradient buffer";
    }
    *buffer = mix(*buffer, backward->microbatch);
    return NULL;
}

const char *check_sum_combine(struct check_sum *sum, const struct instr *combine)
{
    uint32_t to = combine->block, from = combine->slot;

    if (to >= CHECK_MAX_BUFFERS || from >= CHECK_MAX_BUFFERS || to == from || !sum->buffers[to] ||
        !sum->buffers[from]) {
        return "has no two gradient buffers to combine";
    }
    sum->buffers[to] = mix(sum->buffers[to], sum->buffers[from]);
    sum->buffers[from] = 0;
    return NULL;
}

const char *check_sum_finish(struct check_sum *sum, const struct instr *instr, uint32_t own,
                             uint32_t n)
{
    switch ((enum instr_op)instr->op) {
    case INSTR_REDUCE:
        if (n < 2 || sum->is_reduced || sum->is_updated) {
            return "out of order";
        }
        if (((instr->microbatch >> own) & 1) != (sum->buffers[0] != 0)) {
            return "says wrongly whether this copy has gradients";
        }
        sum->is_reduced = true;
        sum->mask = instr->microbatch;
        return NULL;
    case INSTR_UPDATE:
        if (sum->is_updated || sum->is_reduced != (n > 1)) {
            return "out of order";
        }
        sum->is_updated = true;
        return NULL;
    case INSTR_GATHER:
        if (!sum->is_updated || sum->is_gathered || n < 2) {
            return "out of order";
        }
        sum->is_gathered = true;
        return NULL;
    default:
        return "is no end of a step";
    }
}

/* Hash of the sum over blocks [first, last) that the tree stands for. */
static uint64_t hash_of_tree(const struct program *program, uint32_t n_blocks, uint32_t first,
                             uint32_t last)
{
    uint32_t n = program->n_microbatches, split = gradient_split(last - first);
    uint64_t leaf = 0;

    if (last - first > 1) {
        return join(hash_of_tree(program, n_blocks, first, first + split),
                    hash_of_tree(program, n_blocks, first + split, last));
    }
    for (uint32_t i = gradient_block_first(first, n, n_blocks);
         i < gradient_block_first(last, n, n_blocks); i++) {
        leaf = mix(leaf, i);
    }
    return leaf;
}

/* The same over the copies of a stage, as REDUCE sums them. */
static uint64_t hash_of_copies(const struct plan *plan, const struct check_sum *sums,
                               uint32_t stage, const uint32_t *copies, uint32_t n)
{
    uint32_t split = gradient_split(n);

    if (n == 1) {
        return sums[copies[0] * plan->n_stages + stage].buffers[0];
    }
    return join(hash_of_copies(plan, sums, stage, copies, split),
                hash_of_copies(plan, sums, stage, copies + split, n - split));
}

const char *check_sum_stage(const struct plan *plan, const struct program *program,
                            const struct check_sum *sums, uint32_t stage)
{
    uint32_t copies[PLAN_MAX_COPIES];
    uint32_t n = plan_copies(plan, stage, copies, PLAN_MAX_COPIES), mask = 0;

    for (uint32_t k = 0; k < n; k++) {
        mask |= (uint32_t)(sums[copies[k] * plan->n_stages + stage].buffers[0] != 0) << k;
    }
    for (uint32_t k = 0; k < n; k++) {
        const struct check_sum *sum = &sums[copies[k] * plan->n_stages + stage];

        if (!sum->is_updated || sum->is_gathered != (n > 1)) {
            return "is not updated on all its copies";
        }
        if (n > 1 && sum->mask != mask) {
            return "is reduced by copies that do not agree on who has gradients";
        }
        for (uint32_t i = 1; i < CHECK_MAX_BUFFERS; i++) {
            if (sum->buffers[i]) {
                return "has gradients left over";
            }
        }
    }
    if (hash_of_copies(plan, sums, stage, copies, n) !=
        hash_of_tree(program, plan->n_blocks, 0, plan->n_blocks)) {
        return "sums its gradients in another order than the job's";
    }
    return NULL;
}
