/* gpipe: all forwards, then all backwards (Huang et al., "GPipe", NeurIPS 2019).
 *
 *     rank 0  0123......abcd        P = 4, N = 4, Tf = Tb
 *     rank 1  .0123....abcd.        0 1 2 3: forward of a micro-batch
 *     rank 2  ..0123..abcd..        a b c d: backward
 *     rank 3  ...0123abcd...
 *
 * Step time   (N + P - 1) (Tf + Tb)     (GPipe paper, section 2.3)
 * Idle share  (P - 1) / (N + P - 1)
 * Peak        N micro-batches on every device: each slot is held from its
 *             forward to its backward, and no backward comes before the last
 *             forward.
 *
 * The paper runs the backwards in reverse order; here they run in the order of
 * the micro-batches, which fixes the order of the sums of gradients and takes the
 * same time. */
#include "plan/sched.h"

int sched_gpipe(struct sched *s)
{
    uint32_t n = s->last - s->first;
    int status = 0;

    for (uint32_t stage = 0; stage < s->plan->n_stages; stage++) {
        for (uint32_t i = 0; i < n && status == 0; i++) {
            status = sched_forward(s, 0, stage, s->first + i, i);
        }
        for (uint32_t i = 0; i < n && status == 0; i++) {
            status = sched_backward(s, 0, stage, s->first + i, i, i % 2, i % 2);
        }
    }
    return status;
}
