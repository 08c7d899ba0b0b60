/* chimera: two pipelines in opposite directions (Li and Hoefler, "Chimera", SC21).
 *
 *     rank 0  01.2c3da.b    P = 4, N = 4, Tf = Tb
 *     rank 1  .0213cadb.    0 1: forward on chain 0, ranks 0 to 3
 *     rank 2  .2031acbd.    2 3: forward on chain 1, ranks 3 to 0
 *     rank 3  23.0a1bc.d    a b c d: backward of 0 1 2 3
 *
 * The micro-batches of a step are taken in units of P, half of a unit on each chain.
 * If each pass took one slot, micro-batch i of a chain would run its forward on stage
 * s in slot 2i + s and its backward in slot 2i + 2P - 1 - s; units follow each other
 * after 2P slots. On one device the slots of the two chains are then of different
 * parity wherever they meet, if P is even: an odd P is refused. Each device runs its
 * passes in the order of these slots.
 *
 * Step time   P Tf + (2P - 2) Tb for N = P (paper, section 3.1); (2N + P - 2) Tf for
 *             N = K P and Tf = Tb (plain concatenation of units, derived here)
 * Idle share  1 - N (Tf + Tb) / step time
 * Peak        P/2 + 1 micro-batches on the outer devices to P on the middle ones, for
 *             N >= P (paper, table 2)
 * Weights     of stages d and P-1-d, as gems-mast
 *
 * With Tb = 2 Tf the plain concatenation leaves gaps between units, and 1f1b is
 * faster for N >= 4 P; the paper closes them by doubling forwards, which changes
 * micro-batches and so the numbers of a job with batch-norm. */
#include "plan/order.h"

static int add_chain(struct order *order, struct sched *s, uint32_t chain)
{
    uint32_t first = chain ? s->middle - s->first : 0, half = s->width / 2;
    uint32_t n = chain ? s->last - s->middle : s->middle - s->first;
    int status = 0;

    for (uint32_t i = 0; i < n * s->width && status == 0; i++) {
        uint32_t stage = i % s->width, j = i / s->width;
        int64_t start = 2 * (int64_t)s->width * (j / half) + 2 * (j % half);
        struct order_pass pass = {
            .time = start + stage,
            .kind = ORDER_FORWARD,
            .chain = chain,
            .stage = stage,
            .microbatch = first + j,
        };

        status = order_add(order, &pass, s->err);
        pass.kind = ORDER_BACKWARD;
        pass.time = start + 2 * s->width - 1 - stage;
        if (status == 0) {
            status = order_add(order, &pass, s->err);
        }
    }
    return status;
}

int sched_chimera(struct sched *s)
{
    struct order order = { 0 };
    int status = add_chain(&order, s, 0);

    if (status == 0) {
        status = add_chain(&order, s, 1);
    }
    if (status == 0) {
        status = order_write(&order, s);
    }
    order_fini(&order);
    return status;
}
