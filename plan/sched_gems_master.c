/* gems-master: gems-mast repeated before one update (Jain et al., "GEMS", SC20).
 *
 * The two chains take turns: eta passes of m micro-batches, chain 0 first. Each
 * pass follows the one before it as the second pass of gems-mast follows the first.
 *
 *     rank 0  0......a2c1......b3d...   P = 4, N = 4, eta = 4 (m = 1), Tf = Tb
 *     rank 1  .0....a2..c1....b3..d..   0 1: forward on chain 0, ranks 0 to 3
 *     rank 2  ..0..a2....c1..b3....d.   2 3: forward on chain 1, ranks 3 to 0
 *     rank 3  ...0a2......c1b3......d   a b c d: backward of 0 1 2 3
 *
 * Step time   (P - 1 + eta m) Tf + eta (P - 1 + m) Tb, for Tb >= Tf (derived as for
 *             gems-mast: the backwards of all passes form one line, between which
 *             only the last forwards of the next pass fit)
 * Idle share  1 - eta m (Tf + Tb) / step time
 * Peak        m max(A_d, A_{P-1-d}) on device d, however many passes: this is what
 *             makes a large step possible where one micro-batch fills the memory
 * Weights     as gems-mast
 *
 * A chain takes the micro-batches of its half of the tree over the gradient blocks
 * in ascending order, m a pass; if its half does not divide by m its last pass is
 * shorter. An odd eta therefore needs a tree whose left part is larger. */
#include "plan/sched.h"

struct pass {
    uint32_t chain, first, last, slot;
};

static int run_pass(struct sched *s, const struct pass *pass, uint32_t stage)
{
    int status = 0;

    for (uint32_t i = pass->first; i < pass->last && status == 0; i++) {
        status = sched_forward(s, pass->chain, stage, i, pass->slot + i - pass->first);
    }
    for (uint32_t i = pass->first; i < pass->last && status == 0; i++) {
        status = sched_backward(s, pass->chain, stage, i, pass->slot + i - pass->first,
                                (i - pass->first) % 2, (i - pass->first) % 2);
    }
    return status;
}

/* The next pass of a chain, empty if it has no more. */
static struct pass take_pass(const struct sched *s, uint32_t chain, uint32_t j)
{
    uint32_t size = s->plan->pass_microbatches, end = chain ? s->last : s->middle;
    uint32_t first = (chain ? s->middle : s->first) + j * size;

    first = first < end ? first : end;
    return (struct pass){ chain, first, first + size < end ? first + size : end, chain * size };
}

static int run_device(struct sched *s, uint32_t device)
{
    int status = 0;

    for (uint32_t j = 0; status == 0; j++) {
        struct pass direct = take_pass(s, 0, j), mirrored = take_pass(s, 1, j);

        if (direct.first == direct.last && mirrored.first == mirrored.last) {
            break;
        }
        status = run_pass(s, &direct, device);
        if (status == 0) {
            status = run_pass(s, &mirrored, s->width - 1 - device);
        }
    }
    return status;
}

int sched_gems_master(struct sched *s)
{
    int status = 0;

    for (uint32_t device = 0; device < s->width && status == 0; device++) {
        status = run_device(s, device);
    }
    return status;
}
