/* 1f1b: one forward, one backward (Narayanan et al., "PipeDream", SOSP 2019, with a
 * flush; Fan et al., "DAPPLE", PPoPP 2021).
 *
 *     rank 0  0123...a.b.c.d    P = 4, N = 4, Tf = Tb
 *     rank 1  .012..a3b.c.d.    0 1 2 3: forward of a micro-batch
 *     rank 2  ..01.a2b3c.d..    a b c d: backward
 *     rank 3  ...0a1b2c3d...
 *
 * Stage s runs P - 1 - s forwards ahead, then takes each backward as soon as it
 * has run one more forward.
 *
 * Step time   (N + P - 1) (Tf + Tb)     (as gpipe: the same passes wait for each other)
 * Idle share  (P - 1) / (N + P - 1)
 * Peak        min(N, P - s) micro-batches on stage s (DAPPLE, section 2)
 *
 * With recompute: all the second forward of a micro-batch runs while its gradient is
 * on its way: N (2 Tf + Tb) + (P - 1) (Tf + Tb). */
#include "plan/sched.h"

static int run_stage(struct sched *s, uint32_t stage)
{
    uint32_t n = s->last - s->first, n_slots = s->width - stage;
    uint32_t n_ahead = n_slots - 1 < n ? n_slots - 1 : n;
    int status = 0;

    for (uint32_t i = 0; i < n + n_ahead && status == 0; i++) {
        if (i < n) {
            status = sched_forward(s, 0, stage, s->first + i, i % n_slots);
        }
        if (i >= n_ahead && status == 0) {
            uint32_t back = i - n_ahead;

            status =
                sched_backward(s, 0, stage, s->first + back, back % n_slots, back % 2, back % 2);
        }
    }
    return status;
}

int sched_1f1b(struct sched *s)
{
    int status = 0;

    for (uint32_t stage = 0; stage < s->width && status == 0; stage++) {
        status = run_stage(s, stage);
    }
    return status;
}
