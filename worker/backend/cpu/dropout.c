/* Dropout: the bits of the reference back end, in blocked layout. Nothing is
 * kept: backward draws again. Source: docs/MATH.md, "dropout". */
#include "worker/backend/cpu/cpu.h"

#include <string.h>

#include "worker/backend/dropout.h"

struct scaling {
    const struct be_op *op;
    struct cpu_rows rows;
    uint64_t key, first; /* position of the batch's first element */
    const float *from;
    float *to;
};

static void scale_row(const void *arg, uint64_t n, uint32_t block)
{
    const struct scaling *s = arg;
    const struct cpu_rows *rows = &s->rows;
    uint64_t at = (n * rows->n_blocks + block) * rows->pixels * rows->lanes;
    uint64_t sample = s->first + n * shape_count(&s->op->in);

    for (uint64_t pixel = 0; pixel < rows->pixels; pixel++) {
        for (uint32_t lane = 0; lane < rows->lanes; lane++, at++) {
            uint32_t c = block * rows->lanes + lane;
            uint64_t position = sample + c * rows->pixels + pixel;

            s->to[at] = c < s->op->in.c
                            ? s->from[at] * (float)dropout_factor(s->key, position,
                                                                  s->op->node.rate)
                            : 0;
        }
    }
}

static void scale(const struct be_op *op, const struct be_draw *draw, const float *from, float *to)
{
    struct scaling s = { .op = op,
                         .rows = cpu_rows_of(op->dev, &op->in),
                         .key = dropout_key(&op->node, draw),
                         .first = draw->first_sample * shape_count(&op->in),
                         .from = from,
                         .to = to };

    cpu_for_rows(op->dev, &s.rows, op->batch, scale_row, &s);
}

static int dropout_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);

    if (st == 0 && op->mode == BE_EVAL) {
        memcpy(args->y, bases.at[IN_X0], dnnl_memory_desc_get_size(&op->y_md));
    } else if (st == 0) {
        scale(op, &args->draw, (const float *)bases.at[IN_X0], args->y);
    }
    return st;
}

static int dropout_backward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    (void)err;
    scale(op, &args->draw, args->dy, args->dx[0]);
    return 0;
}

const struct cpu_kind cpu_dropout = { .forward = dropout_forward,
                                      .backward_input = dropout_backward };
