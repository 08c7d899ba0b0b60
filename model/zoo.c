#include "model/zoo.h"

#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "model/zoo_build.h"

enum { MAX_SIDE = 1 << 16, MAX_CHANNELS = 1 << 12, MAX_CLASSES = 1 << 20 };

static const struct family {
    const char *name;
    int (*build)(struct zoo_builder *b, const struct zoo_spec *spec); /* NULL: a later version */
} families[] = {
    { "resnet", zoo_resnet },
    { "resnet-imagenet", zoo_resnet_imagenet },
    { "mlp", zoo_mlp },
    { "lenet", zoo_lenet },
    { "vgg", zoo_vgg },
    { "unet", NULL },
    { "amoebanet-d", zoo_amoebanet },
};

enum { N_FAMILIES = sizeof families / sizeof families[0] };

const char *zoo_names(void)
{
    return "resnet, resnet-imagenet, vgg, amoebanet-d, mlp, lenet";
}

static uint32_t append(struct zoo_builder *b, struct node *node, const char *part, int number)
{
    char digits[16] = "";
    int index, length;

    if (b->status < 0) {
        return 0;
    }
    if (number != ZOO_NO_NUMBER) {
        snprintf(digits, sizeof digits, "%d", number);
    }
    length = snprintf(node->name, sizeof node->name, "%s%s%s%s", b->prefix, b->prefix[0] ? "." : "",
                      part, digits);
    if (length >= (int)sizeof node->name) {
        b->status = gems_error_set(b->err, GEMS_E_INTERNAL, "model: name %s.%s is too long",
                                   b->prefix, part);
        return 0;
    }
    node->layer = b->layer;
    index = graph_add(b->graph, node, b->err);
    if (index < 0) {
        b->status = index;
        return 0;
    }
    return (uint32_t)index;
}

uint32_t zoo_input(struct zoo_builder *b, const struct zoo_spec *spec)
{
    struct node node = {
        .kind = OP_INPUT,
        .out = { .c = spec->channels, .h = spec->height, .w = spec->width },
    };

    return append(b, &node, "input", ZOO_NO_NUMBER);
}

uint32_t zoo_conv_window(struct zoo_builder *b, const char *part, int number, uint32_t x,
                         uint32_t k, const struct zoo_window *window, bool has_bias)
{
    struct node node = {
        .kind = OP_CONV,
        .n_inputs = 1,
        .inputs = { x },
        .k = k,
        .r = window->r,
        .s = window->s,
        .stride_h = window->stride,
        .stride_w = window->stride,
        .pad_h = window->pad_h,
        .pad_w = window->pad_w,
        .has_bias = has_bias,
    };

    return append(b, &node, part, number);
}

uint32_t zoo_conv(struct zoo_builder *b, const char *part, int number, uint32_t x, uint32_t k,
                  uint32_t window, uint32_t stride, uint32_t pad_h, uint32_t pad_w)
{
    return zoo_conv_window(b, part, number, x, k,
                           &(struct zoo_window){ window, window, stride, pad_h, pad_w }, true);
}

uint32_t zoo_batchnorm(struct zoo_builder *b, const char *part, int number, uint32_t x)
{
    struct node node = {
        .kind = OP_BATCHNORM,
        .n_inputs = 1,
        .inputs = { x },
        .eps = 1e-5,
        .decay = 0.9,
    };

    return append(b, &node, part, number);
}

uint32_t zoo_relu(struct zoo_builder *b, const char *part, int number, uint32_t x)
{
    struct node node = { .kind = OP_RELU, .n_inputs = 1, .inputs = { x } };

    return append(b, &node, part, number);
}

uint32_t zoo_add(struct zoo_builder *b, const char *part, uint32_t x0, uint32_t x1)
{
    struct node node = { .kind = OP_ADD, .n_inputs = 2, .inputs = { x0, x1 } };

    return append(b, &node, part, ZOO_NO_NUMBER);
}

static uint32_t pool(struct zoo_builder *b, enum op_kind kind, const char *part, int number,
                     uint32_t x, const struct zoo_window *window, uint32_t stride_h,
                     uint32_t stride_w)
{
    struct node node = {
        .kind = kind,
        .n_inputs = 1,
        .inputs = { x },
        .r = window->r,
        .s = window->s,
        .stride_h = stride_h,
        .stride_w = stride_w,
        .pad_h = window->pad_h,
        .pad_w = window->pad_w,
    };

    return append(b, &node, part, number);
}

uint32_t zoo_pool_window(struct zoo_builder *b, enum op_kind kind, const char *part, int number,
                         uint32_t x, const struct zoo_window *window)
{
    return pool(b, kind, part, number, x, window, window->stride, window->stride);
}

uint32_t zoo_pool(struct zoo_builder *b, enum op_kind kind, const char *part, int number,
                  uint32_t x, uint32_t window_h, uint32_t window_w)
{
    return pool(b, kind, part, number, x, &(struct zoo_window){ .r = window_h, .s = window_w },
                window_h, window_w);
}

uint32_t zoo_pool_to(struct zoo_builder *b, const char *part, uint32_t x, uint32_t p, uint32_t q)
{
    struct zoo_window window = { 0 };
    uint32_t stride_h, stride_w;
    struct shape map;

    if (b->status < 0) {
        return 0;
    }
    map = b->graph->nodes[x].out;
    stride_h = map.h / p;
    stride_w = map.w / q;
    window.r = map.h - (p - 1) * stride_h;
    window.s = map.w - (q - 1) * stride_w;
    return pool(b, OP_AVGPOOL, part, ZOO_NO_NUMBER, x, &window, stride_h, stride_w);
}

uint32_t zoo_flatten(struct zoo_builder *b, const char *part, uint32_t x)
{
    struct node node = { .kind = OP_FLATTEN, .n_inputs = 1, .inputs = { x } };

    return append(b, &node, part, ZOO_NO_NUMBER);
}

uint32_t zoo_dense(struct zoo_builder *b, const char *part, int number, uint32_t x, uint32_t k)
{
    struct node node = {
        .kind = OP_DENSE,
        .n_inputs = 1,
        .inputs = { x },
        .k = k,
        .has_bias = true,
    };

    return append(b, &node, part, number);
}

uint32_t zoo_dropout(struct zoo_builder *b, const char *part, int number, uint32_t x, double rate)
{
    struct node node = { .kind = OP_DROPOUT, .n_inputs = 1, .inputs = { x }, .rate = rate };

    return append(b, &node, part, number);
}

uint32_t zoo_concat(struct zoo_builder *b, const char *part, const uint32_t *inputs,
                    uint32_t n_inputs)
{
    struct node node = { .kind = OP_CONCAT, .n_inputs = n_inputs };

    for (uint32_t i = 0; i < n_inputs; i++) {
        node.inputs[i] = inputs[i];
    }
    return append(b, &node, part, ZOO_NO_NUMBER);
}

uint32_t zoo_pick(struct zoo_builder *b, const char *part, uint32_t x, uint32_t stride,
                  uint32_t row, uint32_t column)
{
    struct node node = {
        .kind = OP_PICK,
        .n_inputs = 1,
        .inputs = { x },
        .r = row,
        .s = column,
        .stride_h = stride,
        .stride_w = stride,
    };

    return append(b, &node, part, ZOO_NO_NUMBER);
}

uint32_t zoo_loss(struct zoo_builder *b, uint32_t x)
{
    struct node node = { .kind = OP_LOSS, .n_inputs = 1, .inputs = { x } };

    b->prefix[0] = '\0';
    return append(b, &node, "loss", ZOO_NO_NUMBER);
}

static int check_range(const char *key, uint32_t value, uint32_t low, uint32_t high,
                       struct gems_error *err)
{
    if (value < low || value > high) {
        return gems_error_set(err, GEMS_E_INVALID, "%s: %u is not in %u to %u", key, value, low,
                              high);
    }
    return 0;
}

static int check_common(const struct zoo_spec *spec, struct gems_error *err)
{
    int st = check_range("model.classes", spec->classes, 2, MAX_CLASSES, err);

    if (st == 0) {
        st = check_range("data.channels", spec->channels, 1, MAX_CHANNELS, err);
    }
    if (st == 0) {
        st = check_range("data.size: height", spec->height, 1, MAX_SIDE, err);
    }
    return st == 0 ? check_range("data.size: width", spec->width, 1, MAX_SIDE, err) : st;
}

static const struct family *find(const char *name, size_t limit)
{
    for (int i = 0; i < N_FAMILIES; i++) {
        if (strncmp(families[i].name, name, limit) == 0) {
            return &families[i];
        }
    }
    return NULL;
}

static int check_family(const struct family *family, const struct zoo_spec *spec,
                        struct gems_error *err)
{
    if (!family) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "model.zoo: no model is called \"%.*s\"; there are %s",
                              (int)sizeof spec->zoo - 1, spec->zoo, zoo_names());
    }
    if (!family->build) {
        gems_error_set(err, GEMS_E_UNSUPPORTED, "model.zoo: %s is not in this version",
                       family->name);
        gems_error_hint(err, "this version has %s", zoo_names());
        return GEMS_E_UNSUPPORTED;
    }
    return check_common(spec, err);
}

int zoo_build(const struct zoo_spec *spec, struct graph *ret_graph, struct gems_error *err)
{
    const struct family *family = find(spec->zoo, sizeof spec->zoo);
    struct graph graph;
    struct zoo_builder b = { .graph = &graph, .err = err };
    int st = check_family(family, spec, err);

    if (st < 0) {
        return st;
    }
    graph_init(&graph, family->name, spec->classes);
    st = family->build(&b, spec);
    if (st == 0) {
        st = b.status;
    }
    if (st == 0) {
        st = graph_check(&graph, err);
    }
    if (st < 0) {
        graph_fini(&graph);
        return st;
    }
    *ret_graph = graph;
    return 0;
}
