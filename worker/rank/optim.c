#include "worker/rank/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

uint32_t optim_states(enum optimizer optimizer)
{
    return optimizer == OPTIMIZER_SGD ? 1 : 2;
}

const char *optim_state_kind(enum optimizer optimizer, uint32_t state)
{
    if (optimizer == OPTIMIZER_SGD) {
        return "momentum";
    }
    return state == 0 ? "adam_m" : "adam_v";
}

static bool is_alike(const struct optim_range *a, const struct optim_range *b)
{
    return a->is_statistic == b->is_statistic && a->is_decayed == b->is_decayed &&
           a->decay == b->decay;
}

/* Appends a tensor, or lengthens the last range by it; the padding between two
 * tensors is zero in every layout and stays zero. */
static void append(struct optim *optim, const struct optim_range *range, uint32_t element_bytes)
{
    struct optim_range *last = optim->n_ranges ? &optim->ranges[optim->n_ranges - 1] : NULL;

    if (last && is_alike(last, range)) {
        last->elements = (range->offset - last->offset) / element_bytes + range->elements;
        return;
    }
    optim->ranges[optim->n_ranges++] = *range;
}

static void append_node(struct optim *optim, uint32_t node_i, uint32_t element_bytes)
{
    const struct stage *stage = optim->stage;
    const struct be_op_info *info = stage->backend->ops->info(stage_param_op(stage, node_i));
    struct param params[MODEL_MAX_PARAMS];
    uint32_t n = node_params(stage->graph, stage->first + node_i, params);

    for (uint32_t p = 0; p < n; p++) {
        bool is_statistic = params[p].role == PARAM_MEAN || params[p].role == PARAM_VARIANCE;
        struct optim_range range = {
            .offset = stage->block_offset[node_i] - optim->first_byte + info->params[p].offset,
            .elements = info->params[p].elements,
            .is_statistic = is_statistic,
            .is_decayed = params[p].role == PARAM_WEIGHT,
            .decay = is_statistic ? stage->graph->nodes[stage->first + node_i].decay : 0,
        };

        append(optim, &range, element_bytes);
    }
}

int optim_init(struct optim *optim, const struct stage *stage, const struct train_spec *train,
               uint64_t first_byte, uint64_t bytes, uint32_t element_bytes, struct gems_error *err)
{
    *optim =
        (struct optim){ .stage = stage, .train = train, .first_byte = first_byte, .bytes = bytes };
    optim->ranges = calloc((size_t)stage->n_nodes * MODEL_MAX_PARAMS, sizeof *optim->ranges);
    if (!optim->ranges) {
        return gems_error_set(err, GEMS_E_NOMEM, "optimizer: no host memory");
    }
    for (uint32_t i = 0; i < stage->n_nodes; i++) {
        if (stage_param_op(stage, i) && stage->block_offset[i] >= first_byte &&
            stage->block_offset[i] < first_byte + bytes) {
            append_node(optim, i, element_bytes);
        }
    }
    return GEMS_OK;
}

void optim_fini(struct optim *optim)
{
    free(optim->ranges);
    memset(optim, 0, sizeof *optim);
}

int optim_ask(struct optim *optim, struct arena *arena, struct gems_error *err)
{
    for (uint32_t i = 0; i < optim_states(optim->train->optimizer); i++) {
        int status = arena_ask(arena, ARENA_OPTIMIZER, optim->bytes, &optim->state[i], err);

        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

static int update_range(struct optim *optim, const struct optim_range *range, const void *grads,
                        const struct optim_step *step, struct gems_error *err)
{
    const struct train_spec *train = optim->train;
    const struct be_vector *vector = optim->stage->backend->vector;
    struct be_device *device = optim->stage->device;
    void *w = (uint8_t *)optim->stage->params + optim->first_byte + range->offset;
    const void *g = (const uint8_t *)grads + range->offset;
    void *s0 = (uint8_t *)optim->state[0] + range->offset;
    double weight_decay = range->is_decayed ? train->weight_decay : 0;

    if (range->is_statistic) {
        return vector->decay_add(device, w, g, range->elements,
                                 pow(range->decay, step->n_microbatches), err);
    }
    if (train->optimizer == OPTIMIZER_SGD) {
        struct be_sgd sgd = { .lr = step->lr,
                              .momentum = train->momentum,
                              .weight_decay = weight_decay,
                              .is_nesterov = train->is_nesterov };

        return vector->sgd(device, w, g, s0, range->elements, &sgd, err);
    }
    struct be_adam adam = { .lr = step->lr,
                            .beta1 = train->beta1,
                            .beta2 = train->beta2,
                            .eps = train->eps,
                            .weight_decay = weight_decay,
                            .is_decoupled = train->optimizer == OPTIMIZER_ADAMW,
                            .step = step->step };

    return vector->adam(device, w, g, s0, (uint8_t *)optim->state[1] + range->offset,
                        range->elements, &adam, err);
}

int optim_update(struct optim *optim, const void *grads, const struct optim_step *step,
                 struct gems_error *err)
{
    for (uint32_t i = 0; i < optim->n_ranges; i++) {
        int status = update_range(optim, &optim->ranges[i], grads, step, err);

        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}
