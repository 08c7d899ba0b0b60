/* layer: layers dealt over P devices, one micro-batch at a time. This is what the
 * GEMS paper (SC20) calls GEMS-Basic; only one device works at any time.
 *
 *     rank 0  0......a1......b        P = 4, N = 2, Tf = Tb
 *     rank 1  .0....a..1....b.        0 1: forward of a micro-batch
 *     rank 2  ..0..a....1..b..        a b: backward
 *     rank 3  ...0a......1b...
 *
 * Step time   N P (Tf + Tb)             (derived here; the passes form one line)
 * Idle share  1 - 1/P
 * Peak        1 micro-batch on every device */
#include "plan/sched.h"

int sched_layer(struct sched *s)
{
    int status = 0;

    for (uint32_t stage = 0; stage < s->plan->n_stages; stage++) {
        for (uint32_t i = s->first; i < s->last && status == 0; i++) {
            status = sched_forward(s, 0, stage, i, 0);
            if (status == 0) {
                status = sched_backward(s, 0, stage, i, 0, 0, 0);
            }
        }
    }
    return status;
}
