#include "plan/blocks.h"

#include <assert.h>

#include "plan/program.h"

void blocks_init(struct blocks *blocks, uint32_t first_block, uint32_t n_blocks,
                 uint32_t n_microbatches)
{
    *blocks = (struct blocks){
        .n_blocks = n_blocks,
        .n_microbatches = n_microbatches,
        .first = first_block,
        .open = BLOCKS_NONE,
    };
}

static uint32_t take_buffer(struct blocks *blocks)
{
    uint32_t buffer = 0;

    while (blocks->is_used & (1ull << buffer)) {
        buffer++;
    }
    blocks->is_used |= 1ull << buffer;
    return buffer;
}

uint32_t blocks_add(struct blocks *blocks, bool *ret_is_first)
{
    *ret_is_first = blocks->open == BLOCKS_NONE;
    if (*ret_is_first) {
        blocks->open = take_buffer(blocks);
    }
    blocks->has_any = true;
    return blocks->open;
}

/* Are [first, middle) and [middle, last) the halves of a part of the tree? */
static bool are_halves(uint32_t n_blocks, uint32_t first, uint32_t middle, uint32_t last)
{
    uint32_t low = 0, high = n_blocks;

    while (low != first || high != last) {
        uint32_t split = low + gradient_split(high - low);

        if (last <= split) {
            high = split;
        } else if (first >= split) {
            low = split;
        } else {
            return false;
        }
    }
    return high - low > 1 && middle == low + gradient_split(high - low);
}

static void push(struct blocks *blocks, uint32_t block, uint32_t buffer)
{
    assert(blocks->depth < BLOCKS_MAX_DEPTH);
    blocks->parts[blocks->depth++] = (struct blocks_part){ block, block + 1, buffer };
}

/* Combines the two uppermost parts if they are halves; true if there is work for it. */
static bool merge(struct blocks *blocks, bool *ret_is_merged, uint32_t *ret_to, uint32_t *ret_from)
{
    struct blocks_part *left, *right;

    *ret_is_merged = false;
    if (blocks->depth < 2) {
        return false;
    }
    left = &blocks->parts[blocks->depth - 2];
    right = left + 1;
    if (!are_halves(blocks->n_blocks, left->first, right->first, right->last)) {
        return false;
    }
    *ret_is_merged = true;
    left->last = right->last;
    blocks->depth--;
    if (left->buffer == BLOCKS_NONE) {
        left->buffer = right->buffer;
        return false;
    }
    if (right->buffer == BLOCKS_NONE) {
        return false;
    }
    *ret_to = left->buffer;
    *ret_from = right->buffer;
    blocks->is_used &= ~(1ull << right->buffer);
    return true;
}

static bool is_empty(const struct blocks *blocks, uint32_t block)
{
    return gradient_block_first(block, blocks->n_microbatches, blocks->n_blocks) ==
           gradient_block_first(block + 1, blocks->n_microbatches, blocks->n_blocks);
}

bool blocks_combine(struct blocks *blocks, uint32_t microbatch, uint32_t *ret_to,
                    uint32_t *ret_from)
{
    uint32_t block = gradient_block(microbatch, blocks->n_microbatches, blocks->n_blocks);
    uint32_t end = gradient_block_first(block + 1, blocks->n_microbatches, blocks->n_blocks);

    if (microbatch + 1 < end) {
        return false;
    }
    for (;;) {
        bool is_merged;
        uint32_t next;

        if (merge(blocks, &is_merged, ret_to, ret_from)) {
            return true;
        }
        if (is_merged) {
            continue;
        }
        next = blocks->depth ? blocks->parts[blocks->depth - 1].last : blocks->first;
        if (next < block || (next > block && next < blocks->n_blocks && is_empty(blocks, next))) {
            push(blocks, next, BLOCKS_NONE);
        } else if (next == block) {
            push(blocks, block, blocks->open);
            blocks->open = BLOCKS_NONE;
        } else {
            return false;
        }
    }
}
