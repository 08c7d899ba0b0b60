/* single: the whole model on one device, one micro-batch after the other.
 *
 *     rank 0  0a1b2c3d        0 1 2 3: forward of a micro-batch, a b c d: backward
 *
 * Step time N (Tf + Tb), idle share 0, one micro-batch's activations. It is the
 * reference: every other schedule ends with its weights, bit for bit. */
#include "plan/sched.h"

int sched_single(struct sched *s)
{
    return sched_layer(s);
}
