/* 1f1b-interleaved: v chunks of the model on each device (Narayanan et al.,
 * "Efficient Large-Scale Language Model Training on GPU Clusters", SC21).
 *
 *     rank 0  01230123...a.b.c.dabcd    P = 4, N = 4, v = 2, Tf = Tb
 *     rank 1  .01230123.a.b.c.dabcd.    0 1 2 3: forward of a micro-batch on one chunk,
 *     rank 2  ..0123012a3b.c.dabcd..    first on the lower one
 *     rank 3  ...01230a1b2c3dabcd...    a b c d: backward, first on the upper one
 *
 * Device d holds stages d, d + P, ..., d + (v-1) P. Micro-batches go through in
 * groups of P: a device runs chunk 0 of all of a group, then chunk 1, and so on;
 * backwards in the same order from the last chunk to the first. It runs
 * 2 (P-1-d) + (v-1) P forwards ahead, then one forward and one backward in turn. If P
 * does not divide N, the order is that of the next N that it divides, without the
 * micro-batches that are not there: what is left out of an order that never stops
 * cannot stop it.
 *
 * Step time   N (Tf + Tb) + (P - 1) (Tf + Tb) / v if P divides N (paper, section 2.2);
 *             Tf, Tb of all chunks of a device together
 * Idle share  (P - 1) / (v N + P - 1)
 * Peak        2 (P-1-d) + (v-1) P + 1 chunks on device d: about P (1 + (P-1) / (P v))
 *             micro-batches on device 0 (paper) */
#include "plan/order.h"

struct walk {
    uint32_t n, width, chunks;
};

/* Adds the k-th pass of a direction, if its micro-batch is there. */
static int add_pass(struct order *order, struct sched *s, const struct walk *w, uint32_t device,
                    enum order_kind kind, uint32_t k)
{
    uint32_t group = k / (w->width * w->chunks), chunk = k / w->width % w->chunks;
    struct order_pass pass = {
        .time = order->n,
        .kind = kind,
        .stage = (kind == ORDER_FORWARD ? chunk : w->chunks - 1 - chunk) * w->width + device,
        .microbatch = group * w->width + k % w->width,
    };

    return pass.microbatch < w->n ? order_add(order, &pass, s->err) : 0;
}

static int add_device(struct order *order, struct sched *s, const struct walk *w, uint32_t device)
{
    uint32_t n = (w->n + w->width - 1) / w->width * w->width * w->chunks;
    uint32_t n_ahead = 2 * (w->width - 1 - device) + (w->chunks - 1) * w->width;
    int status = 0;

    n_ahead = n_ahead < n ? n_ahead : n;
    for (uint32_t k = 0; k < n + n_ahead && status == 0; k++) {
        if (k < n) {
            status = add_pass(order, s, w, device, ORDER_FORWARD, k);
        }
        if (k >= n_ahead && status == 0) {
            status = add_pass(order, s, w, device, ORDER_BACKWARD, k - n_ahead);
        }
    }
    return status;
}

int sched_1f1b_interleaved(struct sched *s)
{
    struct walk walk = { s->last - s->first, s->width, s->plan->n_stages / s->width };
    struct order order = { 0 };
    int status = 0;

    for (uint32_t device = 0; device < s->width && status == 0; device++) {
        status = add_device(&order, s, &walk, device);
    }
    if (status == 0) {
        status = order_write(&order, s);
    }
    order_fini(&order);
    return status;
}
