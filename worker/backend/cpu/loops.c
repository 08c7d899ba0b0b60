/* Work that is one operation an element: sums, ReLU, optimizers; and the loss.
 *
 * The loops are compiled for several instruction sets and chosen at run time.
 * Each element is computed alone and by the same operations (no contraction of
 * multiplication and addition), so every variant gives the same bits, and so
 * does every number of threads. */
#include "worker/backend/cpu/cpu.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "common/error.h"

/* Vectorised at the house's -O2 too. */
#pragma GCC optimize("O3")

#define REAL float
#define REAL_SQRT sqrtf
#define VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#include "worker/backend/loss.inc"
#include "worker/backend/vector.inc"

VECTOR_CLONES static void add_relu(const float *a, const float *b, float *sum, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float s = a[i] + b[i];

        sum[i] = s > 0 ? s : 0;
    }
}

VECTOR_CLONES static void relu(const float *x, float *y, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        y[i] = x[i] > 0 ? x[i] : 0;
    }
}

VECTOR_CLONES static void mask(const float *y, const float *dy, float *dx, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        dx[i] = y[i] > 0 ? dy[i] : 0;
    }
}

/* Part of [0, n) that a thread does, in whole cache lines. */
struct part {
    uint64_t first, n;
};

enum { PART_MIN = 1 << 15 /* elements worth a team */ };

static struct part part_of(uint64_t n, uint32_t i, uint32_t n_parts)
{
    uint64_t lines = (n + CPU_LANES - 1) / CPU_LANES;
    uint64_t first = lines * i / n_parts * CPU_LANES, end = lines * (i + 1) / n_parts * CPU_LANES;

    end = end < n ? end : n;
    return (struct part){ .first = first, .n = end > first ? end - first : 0 };
}

/* All threads or one: a team of another size would be made anew. */
static uint32_t parts_for(const struct be_device *dev, uint64_t n)
{
    if (dev->threads == 1 || n < PART_MIN) {
        return 1;
    }
    cpu_enter(dev);
    return dev->threads;
}

/* Runs a body over the parts of [0, n). Without a team where there is but one
 * part: OpenMP makes one even for a loop that is not parallel. */
typedef void (*part_fn)(const void *arg, struct part part);

static void for_parts(const struct be_device *dev, uint64_t n, part_fn body, const void *arg)
{
    uint32_t n_parts = parts_for(dev, n);

    if (n_parts == 1) {
        body(arg, (struct part){ 0, n });
        return;
    }
#pragma omp parallel for schedule(static)
    for (uint32_t i = 0; i < n_parts; i++) {
        body(arg, part_of(n, i, n_parts));
    }
}

/* Operands of an element-wise loop. */
struct operands {
    const float *a, *b;
    float *to;
};

static void part_add(const void *arg, struct part p)
{
    const struct operands *o = arg;

    vector_add(o->a + p.first, o->b + p.first, o->to + p.first, p.n);
}

static void part_add_relu(const void *arg, struct part p)
{
    const struct operands *o = arg;

    add_relu(o->a + p.first, o->b + p.first, o->to + p.first, p.n);
}

static void part_relu(const void *arg, struct part p)
{
    const struct operands *o = arg;

    relu(o->a + p.first, o->to + p.first, p.n);
}

static void part_mask(const void *arg, struct part p)
{
    const struct operands *o = arg;

    mask(o->a + p.first, o->b + p.first, o->to + p.first, p.n);
}

void cpu_loop_add(const struct be_device *dev, const float *a, const float *b, float *sum,
                  uint64_t n)
{
    for_parts(dev, n, part_add, &(struct operands){ a, b, sum });
}

void cpu_loop_add_relu(const struct be_device *dev, const float *a, const float *b, float *sum,
                       uint64_t n)
{
    for_parts(dev, n, part_add_relu, &(struct operands){ a, b, sum });
}

void cpu_loop_relu(const struct be_device *dev, const float *x, float *y, uint64_t n)
{
    for_parts(dev, n, part_relu, &(struct operands){ x, NULL, y });
}

void cpu_loop_mask(const struct be_device *dev, const float *y, const float *dy, float *dx,
                   uint64_t n)
{
    for_parts(dev, n, part_mask, &(struct operands){ y, dy, dx });
}

/* Operands of an optimizer. */
struct update {
    float *w, *m, *v;
    const float *g;
    const struct be_sgd *sgd;
    const struct be_adam *adam;
};

static void part_sgd(const void *arg, struct part p)
{
    const struct update *u = arg;

    vector_sgd(u->w + p.first, u->g + p.first, u->m ? u->m + p.first : NULL, p.n, u->sgd);
}

static void part_adam(const void *arg, struct part p)
{
    const struct update *u = arg;

    vector_adam(u->w + p.first, u->g + p.first, u->m + p.first, u->v + p.first, p.n, u->adam);
}

static int loop_add(struct be_device *dev, const void *a, const void *b, void *ret_sum, uint64_t n,
                    struct gems_error *err)
{
    (void)err;
    cpu_loop_add(dev, a, b, ret_sum, n);
    return GEMS_OK;
}

static int loop_sgd(struct be_device *dev, void *w, const void *g, void *momentum, uint64_t n,
                    const struct be_sgd *p, struct gems_error *err)
{
    (void)err;
    for_parts(dev, n, part_sgd, &(struct update){ .w = w, .g = g, .m = momentum, .sgd = p });
    return GEMS_OK;
}

static int loop_adam(struct be_device *dev, void *w, const void *g, void *m, void *v, uint64_t n,
                     const struct be_adam *p, struct gems_error *err)
{
    (void)err;
    for_parts(dev, n, part_adam, &(struct update){ .w = w, .g = g, .m = m, .v = v, .adam = p });
    return GEMS_OK;
}

static int loop_decay_add(struct be_device *dev, void *s, const void *g, uint64_t n, double keep,
                          struct gems_error *err)
{
    (void)dev;
    (void)err;
    vector_decay_add(s, g, n, keep);
    return GEMS_OK;
}

const struct be_vector cpu_vector = {
    .add = loop_add,
    .sgd = loop_sgd,
    .adam = loop_adam,
    .decay_add = loop_decay_add,
};

static uint64_t out_count(const struct be_op *op)
{
    return dnnl_memory_desc_get_size(&op->y_md) / sizeof(float);
}

static int relu_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);

    if (st == GEMS_OK) {
        cpu_loop_relu(op->dev, (const float *)bases.at[IN_X0], args->y, out_count(op));
    }
    return st;
}

static int relu_backward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    (void)err;
    cpu_loop_mask(op->dev, args->y, args->dy, args->dx[0], out_count(op));
    return GEMS_OK;
}

static int add_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);
    const float *a = (const float *)bases.at[IN_X0], *b = (const float *)bases.at[IN_X1];

    if (st == GEMS_OK && op->node.is_relu) {
        cpu_loop_add_relu(op->dev, a, b, args->y, out_count(op));
    } else if (st == GEMS_OK) {
        cpu_loop_add(op->dev, a, b, args->y, out_count(op));
    }
    return st;
}

/* Both summands get the same gradient; the second is a copy of the first, so
 * that the first may lie where dy is. */
static int add_backward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    const void *from = NULL;

    (void)err;
    for (uint32_t i = 0; i < 2; i++) {
        void *dx = args->dx[i];

        if (!dx || dx == from) {
            continue;
        }
        if (!from && op->node.is_relu) {
            cpu_loop_mask(op->dev, args->y, args->dy, dx, out_count(op));
        } else if ((from ? from : args->dy) != dx) {
            memcpy(dx, from ? from : args->dy, out_count(op) * sizeof(float));
        }
        from = dx;
    }
    return GEMS_OK;
}

static int loss_plan(struct be_op *op, struct gems_error *err)
{
    (void)err;
    if (op->mode == BE_TRAIN) {
        cpu_take_kept(op, sizeof(float) * op->batch * op->in.c);
    }
    return GEMS_OK;
}

static int loss_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    return cross_entropy(args->x[0], args->labels, op->batch, op->in.c,
                         op->mode == BE_TRAIN ? args->kept : NULL, args->loss_sum, args->n_correct,
                         err);
}

static int loss_backward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    (void)err;
    cross_entropy_backward(args->kept, args->labels, op->batch, op->in.c, args->grad_scale,
                           args->dx[0]);
    return GEMS_OK;
}

const struct cpu_kind cpu_relu = { .forward = relu_forward, .backward_input = relu_backward };
const struct cpu_kind cpu_add = { .forward = add_forward, .backward_input = add_backward };
const struct cpu_kind cpu_loss = { .plan = loss_plan,
                                   .forward = loss_forward,
                                   .backward_input = loss_backward };
