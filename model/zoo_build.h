/* What the families of the zoo share. Internal to model/. */
#ifndef GEMS_MODEL_ZOO_BUILD_H
#define GEMS_MODEL_ZOO_BUILD_H

#include "model/zoo.h"

/* A graph under construction. The first error stays; later calls do nothing,
 * so that a family reads as the list of its operators. */
struct zoo_builder {
    struct graph *graph;
    struct gems_error *err;
    int status;
    uint32_t layer;                /* of the nodes to come */
    char prefix[MODEL_NAME_BYTES]; /* "stack0.block1", before the name of each node */
};

/* How a filter or window slides; both sides are padded alike. */
struct zoo_window {
    uint32_t r, s, stride, pad_h, pad_w;
};

/* All return the index of the new node (0 after an error). A name is
 * PREFIX.part; part may carry a number n >= 0: conv and 1 give "conv1".
 * zoo_conv and zoo_pool are the common forms of the two with a window: square
 * with bias, and a stride as large as the window. */
enum { ZOO_NO_NUMBER = -1 };
uint32_t zoo_input(struct zoo_builder *b, const struct zoo_spec *spec);
uint32_t zoo_conv(struct zoo_builder *b, const char *part, int number, uint32_t x, uint32_t k,
                  uint32_t window, uint32_t stride, uint32_t pad_h, uint32_t pad_w);
uint32_t zoo_conv_window(struct zoo_builder *b, const char *part, int number, uint32_t x,
                         uint32_t k, const struct zoo_window *window, bool has_bias);
uint32_t zoo_batchnorm(struct zoo_builder *b, const char *part, int number, uint32_t x);
uint32_t zoo_relu(struct zoo_builder *b, const char *part, int number, uint32_t x);
uint32_t zoo_add(struct zoo_builder *b, const char *part, uint32_t x0, uint32_t x1);
uint32_t zoo_pool(struct zoo_builder *b, enum op_kind kind, const char *part, int number,
                  uint32_t x, uint32_t window_h, uint32_t window_w);
uint32_t zoo_pool_window(struct zoo_builder *b, enum op_kind kind, const char *part, int number,
                         uint32_t x, const struct zoo_window *window);
/* Averages a map to p x q, which must not be above it: as few windows of one
 * size as cover it. 1 x 1: the mean of each channel. */
uint32_t zoo_pool_to(struct zoo_builder *b, const char *part, uint32_t x, uint32_t p, uint32_t q);
uint32_t zoo_flatten(struct zoo_builder *b, const char *part, uint32_t x);
uint32_t zoo_dense(struct zoo_builder *b, const char *part, int number, uint32_t x, uint32_t k);
uint32_t zoo_dropout(struct zoo_builder *b, const char *part, int number, uint32_t x, double rate);
uint32_t zoo_concat(struct zoo_builder *b, const char *part, const uint32_t *inputs,
                    uint32_t n_inputs);
/* Pixel (row, column) of each tile of stride x stride. */
uint32_t zoo_pick(struct zoo_builder *b, const char *part, uint32_t x, uint32_t stride,
                  uint32_t row, uint32_t column);
uint32_t zoo_loss(struct zoo_builder *b, uint32_t x);

/* The families. Each checks its own keys of the spec. */
int zoo_resnet(struct zoo_builder *b, const struct zoo_spec *spec);
int zoo_mlp(struct zoo_builder *b, const struct zoo_spec *spec);
int zoo_lenet(struct zoo_builder *b, const struct zoo_spec *spec);
int zoo_resnet_imagenet(struct zoo_builder *b, const struct zoo_spec *spec);
int zoo_vgg(struct zoo_builder *b, const struct zoo_spec *spec);
int zoo_amoebanet(struct zoo_builder *b, const struct zoo_spec *spec);

#endif
