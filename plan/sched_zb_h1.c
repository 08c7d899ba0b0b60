/* zb-h1: 1f1b with the backward in two halves (Qi et al., "Zero Bubble Pipeline
 * Parallelism", ICLR 2024).
 *
 *     rank 0  0123...akblcmdn    P = 4, N = 4, Tf = Tb = Tw
 *     rank 1  .012..a3bkcldmn    0 1 2 3: forward of a micro-batch
 *     rank 2  ..01.a2b3ckdlmn    a b c d: gradient of the input
 *     rank 3  ...0a1b2c3dklmn    k l m n: gradient of the weights
 *
 * The gradient of a stage's input is what the stage before waits for; that of its
 * weights nobody waits for. Stage s runs its weight halves s micro-batches behind its
 * input halves: as many as it runs fewer forwards ahead than stage 0. So every device
 * holds as much as device 0 of 1f1b, and at the end of the step, where 1f1b waits for
 * gradients, it has weight halves left to run.
 *
 * Step time   N (Tf + Tb + Tw) + (P - 1) (Tf + Tb - Tw) for N >= P, if Tb >= Tw and
 *             Tf >= Tw; Tb and Tw are the two halves (paper, table 1)
 * Idle share  (P - 1) (Tf + Tb - Tw) / step time; one third of 1f1b's if all are equal
 * Peak        min(N, P) micro-batches on every device (paper) */
#include "plan/order.h"

static int add(struct order *order, struct sched *s, enum order_kind kind, uint32_t stage,
               uint32_t microbatch)
{
    return order_add(order,
                     &(struct order_pass){
                         .time = order->n, .kind = kind, .stage = stage, .microbatch = microbatch },
                     s->err);
}

static int add_stage(struct order *order, struct sched *s, uint32_t stage)
{
    uint32_t n = s->last - s->first, n_ahead = s->width - 1 - stage;
    int status = 0;

    for (uint32_t i = 0; i < n + s->width - 1 && status == 0; i++) {
        if (i < n) {
            status = add(order, s, ORDER_FORWARD, stage, i);
        }
        if (i >= n_ahead && i - n_ahead < n && status == 0) {
            status = add(order, s, ORDER_INPUT, stage, i - n_ahead);
        }
        if (i + 1 >= s->width && status == 0) {
            status = add(order, s, ORDER_WEIGHT, stage, i + 1 - s->width);
        }
    }
    return status;
}

int sched_zb_h1(struct sched *s)
{
    struct order order = { 0 };
    int status = 0;

    for (uint32_t stage = 0; stage < s->width && status == 0; stage++) {
        status = add_stage(&order, s, stage);
    }
    if (status == 0) {
        status = order_write(&order, s);
    }
    order_fini(&order);
    return status;
}
