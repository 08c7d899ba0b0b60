/* Sums of gradients on one rank for one stage: which buffer a backward adds
 * into, and when two buffers are combined.
 *
 * The tree over the blocks (gradient_split) is walked like a binary counter: a
 * finished block is pushed on a stack, and the two uppermost parts are combined
 * as soon as they are the two halves of a part of the tree. So a buffer is held
 * only for each open level, and the last sum lies in buffer 0. Empty blocks hold
 * no buffer. Micro-batches must come in ascending order. Example, 4 blocks:
 *
 *   block done      0      1        2        3
 *   stack           0      01       01 2     01 23 -> 0123
 *   combine                0+=1              1+=2, 0+=1      (buffers)
 */
#ifndef GEMS_PLAN_BLOCKS_H
#define GEMS_PLAN_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum { BLOCKS_NONE = UINT32_MAX, BLOCKS_MAX_DEPTH = 40 };

struct blocks {
    uint32_t n_blocks, n_microbatches; /* of the step */
    uint32_t first;                    /* of the blocks this rank sums */
    uint32_t open;                     /* buffer of the block being summed, or BLOCKS_NONE */
    uint32_t depth;
    struct blocks_part {
        uint32_t first, last, buffer; /* blocks [first, last) */
    } parts[BLOCKS_MAX_DEPTH];
    uint64_t is_used; /* mask of buffers */
    bool has_any;     /* a micro-batch has been added */
    uint32_t n_left;  /* micro-batches still to come; kept by the user */
};

void blocks_init(struct blocks *blocks, uint32_t first_block, uint32_t n_blocks,
                 uint32_t n_microbatches);
/* Buffer for the gradients of the next micro-batch; *ret_is_first: to be written. */
uint32_t blocks_add(struct blocks *blocks, bool *ret_is_first);
/* To be called after the backward of that micro-batch until false: buffer
 * *ret_to += buffer *ret_from. */
bool blocks_combine(struct blocks *blocks, uint32_t microbatch, uint32_t *ret_to,
                    uint32_t *ret_from);

#endif
