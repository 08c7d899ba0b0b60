/* Layers to stages. A stage is a contiguous run of at least one layer. */
#ifndef GEMS_PLAN_CUT_H
#define GEMS_PLAN_CUT_H

#include <stdbool.h>
#include <stdint.h>

struct gems_error;
struct facts;
struct graph;

struct cut_layer {
    double seconds;       /* forward and backward of a micro-batch */
    uint64_t slot_bytes;  /* kept for backward, a micro-batch */
    uint64_t enter_bytes; /* tensors that a stage starting here receives */
    uint64_t state_bytes; /* weights, gradients, optimizer state */
};

struct cut_input {
    const struct cut_layer *layers;
    uint32_t n_layers, n_stages; /* n_stages <= n_layers */
    uint32_t n_slots;            /* held at once on a device */
    bool is_mirrored;            /* device d holds stages d and n_stages-1-d, and slots of
                                    one of them at a time */
};

/* Layers of a graph from facts; ret_layers[graph->n_layers]. n_state: buffers as
 * large as the parameters that a stage holds beside them. */
int cut_layers(const struct graph *graph, const struct facts *facts, double n_state,
               struct cut_layer *ret_layers, struct gems_error *err);

/* ret_counts[n_stages]: layers of each stage.
 * by_time: the slowest stage is as fast as possible, then the others are as even
 * as that allows.
 * by_memory: the fullest device holds as little as possible, ties by the slowest
 * stage. Exact for one copy; for mirrored stages exact if a stage with more layers
 * never holds less, then improved by moving single layers. */
int cut_by_time(const struct cut_input *input, uint32_t *ret_counts, struct gems_error *err);
int cut_by_memory(const struct cut_input *input, uint32_t *ret_counts, struct gems_error *err);

/* Bytes of the fullest device, and seconds of the slowest stage. */
uint64_t cut_memory(const struct cut_input *input, const uint32_t *counts);
double cut_slowest(const struct cut_input *input, const uint32_t *counts);

#endif
