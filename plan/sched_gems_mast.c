/* gems-mast: memory-aware synchronized training with two replicas (Jain et al.,
 * "GEMS", SC20).
 *
 * A second copy of the model lies on the same devices in reverse: device d holds
 * stage d of chain 0 and stage P-1-d of chain 1. Chain 1's forward follows chain
 * 0's backward, one device behind, in the memory and the time that it leaves:
 *
 *     rank 0  0......a1b...         P = 4, N = 2 (m = 1), Tf = Tb
 *     rank 1  .0....a1..b..         0 a: micro-batch 0 on chain 0, ranks 0 to 3
 *     rank 2  ..0..a1....b.         1 b: micro-batch 1 on chain 1, ranks 3 to 0
 *     rank 3  ...0a1......b
 *
 *     rank 0  01......ab23cd...     P = 4, N = 4 (m = 2): inside a chain the
 *     rank 1  .01....ab23..cd..     order of gpipe
 *     rank 2  ..01..ab23....cd.
 *     rank 3  ...01ab23......cd
 *
 * With m = N/2 micro-batches in each chain and Tb >= Tf:
 *
 * Step time   (P - 1 + 2m) Tf + 2 (P - 1 + m) Tb      (derived here; 13 slots for
 *             P = 4, m = 1, Tf = Tb as in the paper's figure)
 * Idle share  1 - 2m (Tf + Tb) / step time
 * Peak        m max(A_d, A_{P-1-d}) on device d, A_s being one micro-batch's
 *             activations of stage s: a slot of chain 1 starts after the last
 *             backward of chain 0 on its device, so they share memory (paper)
 * Weights     of stages d and P-1-d; the middle device of an odd P holds its
 *             stage once and sums both chains into it.
 *
 * Chain 0 takes the micro-batches of the left half of the tree over the gradient
 * blocks, chain 1 those of the right half: so the sum of the two copies is the
 * sum that any other schedule makes. */
#include "plan/sched.h"

static int run_chain(struct sched *s, uint32_t chain, uint32_t stage, uint32_t first, uint32_t last)
{
    int status = 0;

    for (uint32_t i = first; i < last && status == 0; i++) {
        status = sched_forward(s, chain, stage, i, i - s->first);
    }
    for (uint32_t i = first; i < last && status == 0; i++) {
        status = sched_backward(s, chain, stage, i, i - s->first, (i - first) % 2, (i - first) % 2);
    }
    return status;
}

int sched_gems_mast(struct sched *s)
{
    int status = 0;

    for (uint32_t device = 0; device < s->width && status == 0; device++) {
        status = run_chain(s, 0, device, s->first, s->middle);
        if (status == 0) {
            status = run_chain(s, 1, s->width - 1 - device, s->middle, s->last);
        }
    }
    return status;
}
