/* Operators that move values in blocked layout and compute nothing: concat and
 * pick. The library's concat copies channels that do not fill whole blocks by
 * its reference code, and has no backward: so both are loops here.
 *
 * A concat where a block holds channels of two inputs:
 *     inputs of 10 and 9 channels      [0..7][8 9 - - - - - -]  [0..7][8 - - ...]
 *     joined, 19, in blocks of 8       [0..7][8 9 0 1 2 3 4 5][6 7 8 - - - - -]
 */
#include "worker/backend/cpu/cpu.h"

#include <string.h>

/* A run of channels of a tensor, which becomes channels of another. */
struct piece {
    const float *from;
    uint32_t n_blocks; /* of `from` */
    uint32_t first, n; /* channels */
};

/* Pieces behind one another make a whole tensor. */
struct joining {
    struct cpu_rows rows; /* of the tensor made */
    uint32_t n_pieces;
    struct piece pieces[MODEL_MAX_INPUTS];
    float *to;
};

/* Copies `n` channels, which are side by side in a row of either tensor. */
static void copy_lanes(const float *from, float *to, uint32_t n, uint32_t lanes, uint64_t pixels)
{
    if (n == lanes) {
        memcpy(to, from, pixels * lanes * sizeof *to);
        return;
    }
    for (uint64_t i = 0; i < pixels * lanes; i += lanes) {
        for (uint32_t k = 0; k < n; k++) {
            to[i + k] = from[i + k];
        }
    }
}

static uint32_t least(uint32_t a, uint32_t b, uint32_t c)
{
    a = a < b ? a : b;
    return a < c ? a : c;
}

static void join_row(const void *arg, uint64_t n, uint32_t block)
{
    const struct joining *j = arg;
    uint32_t lanes = j->rows.lanes, lane = 0, before = 0;
    uint64_t row = j->rows.pixels * lanes;
    float *to = j->to + (n * j->rows.n_blocks + block) * row;

    for (uint32_t i = 0; i < j->n_pieces && lane < lanes; i++) {
        const struct piece *p = &j->pieces[i];

        while (lane < lanes && block * lanes + lane < before + p->n) {
            uint32_t done = block * lanes + lane - before, c = p->first + done;
            uint32_t run = least(lanes - lane, lanes - c % lanes, p->n - done);
            const float *from = p->from + (n * p->n_blocks + c / lanes) * row + c % lanes;

            copy_lanes(from, to + lane, run, lanes, j->rows.pixels);
            lane += run;
        }
        before += p->n;
    }
    for (uint64_t i = 0; lane < lanes && i < row; i += lanes) {
        memset(to + i + lane, 0, (lanes - lane) * sizeof *to);
    }
}

static struct cpu_rows rows_of(const struct be_op *op, uint32_t channels)
{
    struct shape shape = op->node.out;

    shape.c = channels;
    return cpu_rows_of(op->dev, &shape);
}

static int concat_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct joining j = { .rows = rows_of(op, op->node.out.c),
                         .n_pieces = op->node.n_inputs,
                         .to = args->y };
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);

    if (st < 0) {
        return st;
    }
    for (uint32_t i = 0; i < j.n_pieces; i++) {
        j.pieces[i] = (struct piece){ .from = (const float *)bases.at[IN_X0 + i],
                                      .n_blocks = rows_of(op, op->in_c[i]).n_blocks,
                                      .n = op->in_c[i] };
    }
    cpu_for_rows(op->dev, &j.rows, op->batch, join_row, &j);
    return 0;
}

static int concat_backward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    uint32_t first = 0;

    (void)err;
    for (uint32_t i = 0; i < op->node.n_inputs; i++) {
        struct joining j = { .rows = rows_of(op, op->in_c[i]),
                             .n_pieces = 1,
                             .pieces = { { args->dy, rows_of(op, op->node.out.c).n_blocks, first,
                                           op->in_c[i] } },
                             .to = args->dx[i] };

        if (j.to) {
            cpu_for_rows(op->dev, &j.rows, op->batch, join_row, &j);
        }
        first += op->in_c[i];
    }
    return 0;
}

struct picking {
    const struct be_op *op;
    struct cpu_rows in, out;
    const float *from;
    float *to;
};

/* Start of the pixel that an output pixel is, or the row's end if there is none. */
static uint64_t source_of(const struct picking *p, uint64_t pq)
{
    const struct node *v = &p->op->node;
    uint64_t h = pq / v->out.w * v->stride_h + v->r, w = pq % v->out.w * v->stride_w + v->s;
    bool is_inside = h < p->op->in.h && w < p->op->in.w;

    return is_inside ? (h * p->op->in.w + w) * p->in.lanes : p->in.pixels * p->in.lanes;
}

static void pick_row(const void *arg, uint64_t n, uint32_t block)
{
    const struct picking *p = arg;
    uint64_t end = p->in.pixels * p->in.lanes, bytes = p->in.lanes * sizeof(float);
    const float *from = p->from + (n * p->in.n_blocks + block) * end;
    float *to = p->to + (n * p->out.n_blocks + block) * p->out.pixels * p->out.lanes;

    for (uint64_t i = 0; i < p->out.pixels; i++, to += p->out.lanes) {
        uint64_t at = source_of(p, i);

        if (at < end) {
            memcpy(to, from + at, bytes);
        } else {
            memset(to, 0, bytes);
        }
    }
}

static void unpick_row(const void *arg, uint64_t n, uint32_t block)
{
    const struct picking *p = arg;
    uint64_t end = p->in.pixels * p->in.lanes, bytes = p->in.lanes * sizeof(float);
    const float *from = p->from + (n * p->out.n_blocks + block) * p->out.pixels * p->out.lanes;
    float *to = p->to + (n * p->in.n_blocks + block) * end;

    memset(to, 0, end * sizeof *to);
    for (uint64_t i = 0; i < p->out.pixels; i++, from += p->out.lanes) {
        uint64_t at = source_of(p, i);

        if (at < end) {
            memcpy(to + at, from, bytes);
        }
    }
}

static struct picking picking_of(const struct be_op *op, const float *from, float *to)
{
    return (struct picking){ .op = op,
                             .in = cpu_rows_of(op->dev, &op->in),
                             .out = cpu_rows_of(op->dev, &op->node.out),
                             .from = from,
                             .to = to };
}

static int pick_forward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct cpu_bases bases;
    int st = cpu_bases(op, args, true, &bases, err);

    if (st == 0) {
        struct picking p = picking_of(op, (const float *)bases.at[IN_X0], args->y);

        cpu_for_rows(op->dev, &p.out, op->batch, pick_row, &p);
    }
    return st;
}

static int pick_backward(struct be_op *op, const struct be_args *args, struct gems_error *err)
{
    struct picking p = picking_of(op, args->dy, args->dx[0]);

    (void)err;
    cpu_for_rows(op->dev, &p.in, op->batch, unpick_row, &p);
    return 0;
}

const struct cpu_kind cpu_concat = { .forward = concat_forward,
                                     .backward_input = concat_backward };
const struct cpu_kind cpu_pick = { .forward = pick_forward, .backward_input = pick_backward };
