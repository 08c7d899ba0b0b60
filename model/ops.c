#include "model/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"

/* Longest run of characters of a foreign name that goes into a message. */
#define NAME_FORMAT "%.63s"

bool op_product(uint64_t a, uint64_t b, uint64_t *ret_product)
{
    uint64_t product;

    if (__builtin_mul_overflow(a, b, &product) || product > MODEL_MAX_COUNT) {
        return false;
    }
    *ret_product = product;
    return true;
}

const char *op_shape_text(const struct shape *shape, char buffer[OP_SHAPE_BYTES])
{
    snprintf(buffer, OP_SHAPE_BYTES, "%ux%ux%u%s", shape->c, shape->h, shape->w,
             shape->is_flat ? " (flat)" : "");
    return buffer;
}

static int fail(struct gems_error *err, const struct node *node, const char *why)
{
    return gems_error_set(err, GEMS_E_INVALID, "node " NAME_FORMAT " (%s): %s", node->name,
                          op_name(node->kind), why);
}

static const struct shape *input_shape(const struct graph *graph, const struct node *node,
                                       uint32_t i)
{
    return &graph->nodes[node->inputs[i]].out;
}

static bool shape_equal(const struct shape *a, const struct shape *b)
{
    return a->c == b->c && a->h == b->h && a->w == b->w && a->is_flat == b->is_flat;
}

/* Output sides of a window that slides over an image. */
static int infer_window(const struct graph *graph, const struct node *node, struct shape *ret_out,
                        struct gems_error *err)
{
    const struct shape *in = input_shape(graph, node, 0);
    uint64_t padded_h = in->h + 2 * (uint64_t)node->pad_h;
    uint64_t padded_w = in->w + 2 * (uint64_t)node->pad_w;
    uint64_t out_h, out_w;

    if (in->is_flat) {
        return fail(err, node, "needs an image, but its input is a flat vector");
    }
    if (node->r == 0 || node->s == 0 || node->stride_h == 0 || node->stride_w == 0) {
        return fail(err, node, "window and stride must be at least 1");
    }
    /* Otherwise a window could lie in the padding alone. */
    if (node->pad_h >= node->r || node->pad_w >= node->s) {
        return fail(err, node, "padding must be smaller than the window");
    }
    if (node->r > padded_h || node->s > padded_w) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "node " NAME_FORMAT " (%s): window %ux%u is larger than its padded "
                              "input %llux%llu",
                              node->name, op_name(node->kind), node->r, node->s,
                              (unsigned long long)padded_h, (unsigned long long)padded_w);
    }
    out_h = (padded_h - node->r) / node->stride_h + 1;
    out_w = (padded_w - node->s) / node->stride_w + 1;
    if (out_h > UINT32_MAX || out_w > UINT32_MAX) {
        return fail(err, node, "a tensor of more than 2^40 values");
    }
    *ret_out = (struct shape){ .c = in->c, .h = (uint32_t)out_h, .w = (uint32_t)out_w };
    return 0;
}

static int infer_input(const struct graph *graph, const struct node *node, struct shape *ret_out,
                       struct gems_error *err)
{
    (void)graph;
    if (node->out.c == 0 || node->out.h == 0 || node->out.w == 0 || node->out.is_flat) {
        return fail(err, node, "must be an image of at least 1 channel and 1x1 pixels");
    }
    *ret_out = node->out;
    return 0;
}

static int infer_conv(const struct graph *graph, const struct node *node, struct shape *ret_out,
                      struct gems_error *err)
{
    int st = infer_window(graph, node, ret_out, err);

    if (st < 0) {
        return st;
    }
    if (node->k == 0) {
        return fail(err, node, "needs at least 1 output channel");
    }
    ret_out->c = node->k;
    if (node->is_residual != (node->n_inputs == 2)) {
        return fail(err, node, "a second input and the residual mark go together");
    }
    if (node->is_residual && !shape_equal(ret_out, input_shape(graph, node, 1))) {
        return fail(err, node, "its residual input has another shape than its output");
    }
    return 0;
}

static int infer_batchnorm(const struct graph *graph, const struct node *node,
                           struct shape *ret_out, struct gems_error *err)
{
    const struct shape *in = input_shape(graph, node, 0);

    if (in->is_flat) {
        return fail(err, node, "needs an image, but its input is a flat vector");
    }
    if (!(isfinite(node->eps) && node->eps > 0.0)) {
        return fail(err, node, "eps must be above 0");
    }
    if (!(node->decay >= 0.0 && node->decay < 1.0)) {
        return fail(err, node, "decay must be at least 0 and below 1");
    }
    *ret_out = *in;
    return 0;
}

static int infer_same(const struct graph *graph, const struct node *node, struct shape *ret_out,
                      struct gems_error *err)
{
    (void)err;
    *ret_out = *input_shape(graph, node, 0);
    return 0;
}

static int infer_add(const struct graph *graph, const struct node *node, struct shape *ret_out,
                     struct gems_error *err)
{
    const struct shape *a = input_shape(graph, node, 0), *b = input_shape(graph, node, 1);
    char text_a[OP_SHAPE_BYTES], text_b[OP_SHAPE_BYTES];

    if (!shape_equal(a, b)) {
        return gems_error_set(
            err, GEMS_E_INVALID, "node " NAME_FORMAT " (%s): its summands differ: %s and %s",
            node->name, op_name(node->kind), op_shape_text(a, text_a), op_shape_text(b, text_b));
    }
    *ret_out = *a;
    return 0;
}

static int infer_flatten(const struct graph *graph, const struct node *node, struct shape *ret_out,
                         struct gems_error *err)
{
    const struct shape *in = input_shape(graph, node, 0);
    uint64_t count = shape_count(in);

    if (in->is_flat) {
        return fail(err, node, "its input is flat already");
    }
    if (count > UINT32_MAX) {
        return fail(err, node, "more than 2^32 values in one vector");
    }
    *ret_out = (struct shape){ .c = (uint32_t)count, .h = 1, .w = 1, .is_flat = true };
    return 0;
}

static int infer_dense(const struct graph *graph, const struct node *node, struct shape *ret_out,
                       struct gems_error *err)
{
    if (!input_shape(graph, node, 0)->is_flat) {
        return fail(err, node, "needs a flat vector; put a flatten before it");
    }
    if (node->k == 0) {
        return fail(err, node, "needs at least 1 output");
    }
    *ret_out = (struct shape){ .c = node->k, .h = 1, .w = 1, .is_flat = true };
    return 0;
}

static int infer_loss(const struct graph *graph, const struct node *node, struct shape *ret_out,
                      struct gems_error *err)
{
    const struct shape *in = input_shape(graph, node, 0);
    char text[OP_SHAPE_BYTES];

    if (!in->is_flat || in->c != graph->n_classes) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "node " NAME_FORMAT " (%s): needs a flat vector of %u class scores, "
                              "but its input is %s",
                              node->name, op_name(node->kind), graph->n_classes,
                              op_shape_text(in, text));
    }
    *ret_out = (struct shape){ .c = 1, .h = 1, .w = 1, .is_flat = true };
    return 0;
}

static int infer_dropout(const struct graph *graph, const struct node *node, struct shape *ret_out,
                         struct gems_error *err)
{
    if (!(node->rate >= 0.0 && node->rate < 1.0)) {
        return fail(err, node, "rate must be at least 0 and below 1");
    }
    *ret_out = *input_shape(graph, node, 0);
    return 0;
}

static int infer_concat(const struct graph *graph, const struct node *node, struct shape *ret_out,
                        struct gems_error *err)
{
    const struct shape *first = input_shape(graph, node, 0);
    char text_a[OP_SHAPE_BYTES], text_b[OP_SHAPE_BYTES];
    uint64_t channels = 0;

    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct shape *in = input_shape(graph, node, i);

        if (in->is_flat) {
            return fail(err, node, "needs images, but an input is a flat vector");
        }
        if (in->h != first->h || in->w != first->w) {
            return gems_error_set(err, GEMS_E_INVALID,
                                  "node " NAME_FORMAT " (%s): its inputs differ in size: %s and %s",
                                  node->name, op_name(node->kind), op_shape_text(first, text_a),
                                  op_shape_text(in, text_b));
        }
        channels += in->c;
    }
    if (channels > UINT32_MAX) {
        return fail(err, node, "a tensor of more than 2^40 values");
    }
    *ret_out = (struct shape){ .c = (uint32_t)channels, .h = first->h, .w = first->w };
    return 0;
}

static int infer_pick(const struct graph *graph, const struct node *node, struct shape *ret_out,
                      struct gems_error *err)
{
    const struct shape *in = input_shape(graph, node, 0);

    if (in->is_flat) {
        return fail(err, node, "needs an image, but its input is a flat vector");
    }
    if (node->r >= node->stride_h || node->s >= node->stride_w) {
        return fail(err, node, "row and column must be inside the stride");
    }
    *ret_out = (struct shape){ .c = in->c,
                               .h = (in->h - 1) / node->stride_h + 1,
                               .w = (in->w - 1) / node->stride_w + 1 };
    return 0;
}

static uint32_t add_bias(const struct node *node, struct param *ret_param)
{
    if (!node->has_bias) {
        return 0;
    }
    *ret_param = (struct param){ PARAM_BIAS, "bias", 1, { node->k }, 0 };
    return 1;
}

static uint32_t params_conv(const struct graph *graph, const struct node *node,
                            struct param ret_params[MODEL_MAX_PARAMS])
{
    uint32_t c = input_shape(graph, node, 0)->c;

    ret_params[0] = (struct param){
        PARAM_WEIGHT, "weight", 4, { node->k, c, node->r, node->s }, (uint64_t)c * node->r * node->s
    };
    return 1 + add_bias(node, &ret_params[1]);
}

static uint32_t params_dense(const struct graph *graph, const struct node *node,
                             struct param ret_params[MODEL_MAX_PARAMS])
{
    uint32_t c = input_shape(graph, node, 0)->c;

    ret_params[0] = (struct param){ PARAM_WEIGHT, "weight", 2, { node->k, c }, c };
    return 1 + add_bias(node, &ret_params[1]);
}

static uint32_t params_batchnorm(const struct graph *graph, const struct node *node,
                                 struct param ret_params[MODEL_MAX_PARAMS])
{
    uint32_t c = input_shape(graph, node, 0)->c;

    ret_params[0] = (struct param){ PARAM_SCALE, "weight", 1, { c }, 0 };
    ret_params[1] = (struct param){ PARAM_SHIFT, "bias", 1, { c }, 0 };
    ret_params[2] = (struct param){ PARAM_MEAN, "running_mean", 1, { c }, 0 };
    ret_params[3] = (struct param){ PARAM_VARIANCE, "running_var", 1, { c }, 0 };
    return 4;
}

/* Backward of a fused ReLU looks at its own output where the operator keeps
 * no mask of its own; batch-norm does keep one, since its output is not kept. */
static const struct op_class classes[OP_KIND_COUNT] = {
    [OP_INPUT] = { "input", 0, 0, false, 0, 0, infer_input, NULL },
    [OP_CONV] = { "conv", 1, 2, false, NEED_X | NEED_DY, 0, infer_conv, params_conv },
    [OP_BATCHNORM] = { "batchnorm", 1, 1, true, NEED_X | NEED_KEPT | NEED_DY, 0, infer_batchnorm,
                       params_batchnorm },
    [OP_RELU] = { "relu", 1, 1, false, NEED_Y | NEED_DY, 0, infer_same, NULL },
    [OP_ADD] = { "add", 2, 2, true, NEED_DY, NEED_Y, infer_add, NULL },
    [OP_MAXPOOL] = { "maxpool", 1, 1, false, NEED_KEPT | NEED_DY, 0, infer_window, NULL },
    [OP_AVGPOOL] = { "avgpool", 1, 1, false, NEED_DY, 0, infer_window, NULL },
    [OP_FLATTEN] = { "flatten", 1, 1, false, NEED_DY, 0, infer_flatten, NULL },
    [OP_DENSE] = { "dense", 1, 1, true, NEED_X | NEED_DY, NEED_Y, infer_dense, params_dense },
    [OP_LOSS] = { "loss", 1, 1, false, NEED_KEPT, 0, infer_loss, NULL },
    [OP_DROPOUT] = { "dropout", 1, 1, false, NEED_DY, 0, infer_dropout, NULL },
    [OP_CONCAT] = { "concat", 2, MODEL_MAX_INPUTS, false, NEED_DY, 0, infer_concat, NULL },
    [OP_PICK] = { "pick", 1, 1, false, NEED_DY, 0, infer_pick, NULL },
};

const struct op_class *op_class_of(enum op_kind kind)
{
    return (unsigned)kind < OP_KIND_COUNT ? &classes[kind] : NULL;
}

const char *op_name(enum op_kind kind)
{
    const struct op_class *class = op_class_of(kind);

    return class ? class->name : "unknown";
}

int op_from_name(const char *name)
{
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        if (strcmp(classes[kind].name, name) == 0) {
            return kind;
        }
    }
    return -1;
}

unsigned node_backward_needs(const struct node *node)
{
    const struct op_class *class = op_class_of(node->kind);

    if (!class) {
        return 0;
    }
    return class->needs | (node->is_relu ? class->needs_relu : 0);
}

uint32_t node_params(const struct graph *graph, uint32_t node,
                     struct param ret_params[MODEL_MAX_PARAMS])
{
    const struct node *n = &graph->nodes[node];
    const struct op_class *class = op_class_of(n->kind);

    return class && class->params ? class->params(graph, n, ret_params) : 0;
}

/* Multiply-accumulates as a product that may not fit; false then. */
static bool count_macs(const struct graph *graph, const struct node *node, const struct shape *out,
                       uint64_t *ret_macs)
{
    uint64_t per_output = 1;

    if (node->kind == OP_CONV) {
        per_output = (uint64_t)input_shape(graph, node, 0)->c * node->r * node->s;
    } else if (node->kind == OP_DENSE) {
        per_output = input_shape(graph, node, 0)->c;
    } else {
        *ret_macs = 0;
        return true;
    }
    return !__builtin_mul_overflow(shape_count(out), per_output, ret_macs) &&
           *ret_macs <= MODEL_MAX_MACS;
}

uint64_t node_macs(const struct graph *graph, uint32_t node)
{
    uint64_t macs = 0;

    count_macs(graph, &graph->nodes[node], &graph->nodes[node].out, &macs);
    return macs;
}

/* Sizes of the output, of the weights and of the work stay in bounds. */
static int check_sizes(const struct graph *graph, const struct node *node, const struct shape *out,
                       struct gems_error *err)
{
    uint64_t count, weights = 0;
    uint64_t macs;
    bool is_fine = op_product(out->h, out->w, &count) && op_product(count, out->c, &count);

    if (node->kind == OP_CONV || node->kind == OP_DENSE) {
        bool is_conv = node->kind == OP_CONV;

        is_fine = is_fine && op_product(is_conv ? node->r : 1, is_conv ? node->s : 1, &weights) &&
                  op_product(weights, input_shape(graph, node, 0)->c, &weights) &&
                  op_product(weights, node->k, &weights);
    }
    if (!is_fine) {
        return fail(err, node, "a tensor of more than 2^40 values");
    }
    if (!count_macs(graph, node, out, &macs)) {
        return fail(err, node, "more than 2^47 multiplications for one sample");
    }
    return 0;
}

/* Names become parts of file formats and messages: plain characters only. */
static int check_name(const struct node *node, uint32_t index, struct gems_error *err)
{
    size_t length = strnlen(node->name, sizeof node->name);

    if (length == 0 || length == sizeof node->name) {
        return gems_error_set(err, GEMS_E_INVALID, "node %u: its name must have 1 to %d characters",
                              index, MODEL_NAME_BYTES - 1);
    }
    for (size_t i = 0; i < length; i++) {
        char ch = node->name[i];

        if (!((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
              strchr("._-/:", ch))) {
            return gems_error_set(err, GEMS_E_INVALID,
                                  "node %u: character 0x%02x in its name; letters, digits and "
                                  "._-/: are allowed",
                                  index, (unsigned char)ch);
        }
    }
    return 0;
}

int op_infer(const struct graph *graph, const struct node *node, uint32_t index,
             struct shape *ret_out, struct gems_error *err)
{
    const struct op_class *class = op_class_of(node->kind);
    struct shape out;
    int st = check_name(node, index, err);

    if (st < 0) {
        return st;
    }
    if (!class) {
        return gems_error_set(err, GEMS_E_INVALID, "node " NAME_FORMAT ": unknown operator %u",
                              node->name, (unsigned)node->kind);
    }
    if ((node->kind == OP_INPUT) != (index == 0)) {
        return fail(err, node, "the first node, and no other, must be the input");
    }
    if (node->n_inputs < class->min_inputs || node->n_inputs > class->max_inputs) {
        return gems_error_set(
            err, GEMS_E_INVALID, "node " NAME_FORMAT " (%s): has %u inputs instead of %u to %u",
            node->name, class->name, node->n_inputs, class->min_inputs, class->max_inputs);
    }
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] >= index) {
            return gems_error_set(err, GEMS_E_INVALID,
                                  "node " NAME_FORMAT " (%s): reads node %u, which does not come "
                                  "before it",
                                  node->name, class->name, node->inputs[i]);
        }
        if (graph->nodes[node->inputs[i]].kind == OP_LOSS) {
            return fail(err, node, "reads the loss");
        }
    }
    if (node->is_relu && !class->may_relu) {
        return fail(err, node, "cannot have a fused ReLU");
    }
    if (node->is_residual && node->kind != OP_CONV) {
        return fail(err, node, "cannot have a residual input");
    }
    st = class->infer(graph, node, &out, err);
    if (st == 0) {
        st = check_sizes(graph, node, &out, err);
    }
    if (st == 0) {
        *ret_out = out;
    }
    return st;
}
