/* Parameters and optimizer state as named tensors: initial values, import
 * from and export to checkpoints. Nothing here depends on the layout. */
#include "worker/rank/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

static uint64_t param_bytes(const struct trainer *trainer, const struct param *param)
{
    return param_count(param) * trainer->element_bytes;
}

uint64_t tensors_staging_bytes(const struct trainer *trainer)
{
    const struct graph *graph = trainer->config.graph;
    uint64_t largest = 0;

    for (uint32_t r = 0; r < trainer->n_residents; r++) {
        const struct stage *stage = &trainer->residents[r].stage;

        for (uint32_t i = 0; i < stage->n_nodes; i++) {
            struct param params[MODEL_MAX_PARAMS];
            uint32_t n = node_params(graph, stage->first + i, params);

            for (uint32_t p = 0; p < n; p++) {
                uint64_t bytes = param_bytes(trainer, &params[p]);

                largest = bytes > largest ? bytes : largest;
            }
        }
    }
    return (largest + 63) / 64 * 64;
}

static bool is_statistic(const struct param *param)
{
    return param->role == PARAM_MEAN || param->role == PARAM_VARIANCE;
}

static void add_tensor(struct trainer *trainer, uint32_t resident, uint32_t node_i, uint32_t p,
                       const struct param *param, int32_t state, uint32_t order)
{
    const struct resident *r = &trainer->residents[resident];
    uint64_t offset = r->stage.block_offset[node_i];
    struct tensor_entry *entry = &trainer->tensors[trainer->n_tensors];
    bool is_owned = offset >= r->optim.first_byte && offset < r->optim.first_byte + r->optim.bytes;

    if (state >= 0 && !is_owned) {
        return;
    }
    *entry = (struct tensor_entry){
        .kind = state < 0 ? "weight" : optim_state_kind(r->optim.train->optimizer, (uint32_t)state),
        .resident = resident,
        .node_i = node_i,
        .param = p,
        .state = state,
        .is_owned = is_owned,
        .order = order,
        .n_dims = param->n_dims,
        .bytes = param_bytes(trainer, param),
    };
    for (uint32_t d = 0; d < param->n_dims; d++) {
        entry->dims[d] = param->dims[d];
    }
    snprintf(entry->name, sizeof entry->name, "%s.%s",
             trainer->config.graph->nodes[r->stage.first + node_i].name, param->suffix);
    trainer->n_tensors++;
}

static void add_stage(struct trainer *trainer, uint32_t resident, const uint32_t *first_order)
{
    const struct stage *stage = &trainer->residents[resident].stage;
    uint32_t n_states = optim_states(trainer->config.spec->train.optimizer);

    for (uint32_t i = 0; i < stage->n_nodes; i++) {
        struct param params[MODEL_MAX_PARAMS];
        uint32_t n = node_params(stage->graph, stage->first + i, params);

        for (uint32_t p = 0; p < n; p++) {
            uint32_t order = first_order[stage->first + i] + p;

            add_tensor(trainer, resident, i, p, &params[p], -1, order);
            for (uint32_t s = 0; s < n_states && !is_statistic(&params[p]); s++) {
                add_tensor(trainer, resident, i, p, &params[p], (int32_t)s, order);
            }
        }
    }
}

int tensors_init(struct trainer *trainer, struct gems_error *err)
{
    const struct graph *graph = trainer->config.graph;
    uint32_t *first_order = calloc(graph->n_nodes + 1, sizeof *first_order);

    if (first_order) {
        struct param params[MODEL_MAX_PARAMS];

        for (uint32_t i = 0; i < graph->n_nodes; i++) {
            first_order[i + 1] = first_order[i] + node_params(graph, i, params);
        }
        trainer->tensors = calloc((size_t)first_order[graph->n_nodes] * (1 + OPTIM_MAX_STATES) + 1,
                                  sizeof *trainer->tensors);
    }
    if (!trainer->tensors) {
        free(first_order);
        return gems_error_set(err, GEMS_E_NOMEM, "tensors: no host memory");
    }
    for (uint32_t r = 0; r < trainer->n_residents; r++) {
        add_stage(trainer, r, first_order);
    }
    free(first_order);
    return GEMS_OK;
}

bool trainer_tensor_at(const struct trainer *trainer, uint32_t i, struct trainer_tensor *ret_tensor)
{
    const struct tensor_entry *entry = &trainer->tensors[i];

    if (i >= trainer->n_tensors) {
        return false;
    }
    *ret_tensor = (struct trainer_tensor){ .name = entry->name,
                                           .kind = entry->kind,
                                           .order = entry->order,
                                           .n_dims = entry->n_dims,
                                           .bytes = entry->bytes };
    memcpy(ret_tensor->dims, entry->dims, sizeof ret_tensor->dims);
    return true;
}

/* The node's block of parameters or of optimizer state. */
static uint8_t *block_of(const struct trainer *trainer, const struct tensor_entry *entry)
{
    const struct resident *r = &trainer->residents[entry->resident];
    uint64_t offset = r->stage.block_offset[entry->node_i];

    return entry->state < 0
               ? (uint8_t *)r->stage.params + offset
               : (uint8_t *)r->optim.state[entry->state] + (offset - r->optim.first_byte);
}

int trainer_import(struct trainer *trainer, uint32_t i, const void *data, struct gems_error *err)
{
    const struct tensor_entry *entry = &trainer->tensors[i];
    struct resident *r = &trainer->residents[entry->resident];

    r->is_stale = true;
    return trainer->config.backend->ops->param_import(stage_param_op(&r->stage, entry->node_i),
                                                      entry->param, data, block_of(trainer, entry),
                                                      err);
}

int tensors_start(struct trainer *trainer, struct gems_error *err)
{
    const struct train_spec *train = &trainer->config.spec->train;

    for (uint32_t i = 0; i < trainer->n_tensors; i++) {
        const struct tensor_entry *entry = &trainer->tensors[i];
        const struct stage *stage = &trainer->residents[entry->resident].stage;
        struct param params[MODEL_MAX_PARAMS];
        int status;

        if (entry->state >= 0) {
            continue; /* the arena is zeroed */
        }
        node_params(stage->graph, stage->first + entry->node_i, params);
        param_init(stage->graph, stage->first + entry->node_i, &params[entry->param], train->seed,
                   train->precision == PRECISION_F64, trainer->staging);
        status = trainer_import(trainer, i, trainer->staging, err);
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

static int export_owned(struct trainer *trainer, uint32_t *ret_n, struct gems_error *err)
{
    const struct trainer_events *events = trainer->config.events;
    uint32_t n = 0;

    for (uint32_t i = 0; i < trainer->n_tensors; i++) {
        const struct tensor_entry *entry = &trainer->tensors[i];
        struct trainer_tensor tensor;
        int status;

        if (!entry->is_owned) {
            continue;
        }
        status = trainer->config.backend->ops->param_export(
            stage_param_op(&trainer->residents[entry->resident].stage, entry->node_i), entry->param,
            block_of(trainer, entry), trainer->staging, err);
        if (status < 0) {
            return status;
        }
        trainer_tensor_at(trainer, i, &tensor);
        status = events->checkpoint_tensor(trainer->config.events_arg, &tensor, trainer->staging);
        if (status < 0) {
            return gems_error_set(err, (enum gems_status)status,
                                  "checkpoint: tensor %s was not taken", entry->name);
        }
        n++;
    }
    *ret_n = n;
    return GEMS_OK;
}

int tensors_checkpoint(struct trainer *trainer, const struct trainer_position *position,
                       uint32_t epoch, bool is_final, struct gems_error *err)
{
    const struct trainer_events *events = trainer->config.events;
    void *arg = trainer->config.events_arg;
    int status;

    if (!events->checkpoint_begin) {
        return GEMS_OK;
    }
    do {
        uint32_t n = 0;

        status = events->checkpoint_begin(arg, position, epoch, is_final);
        if (status < 0) {
            return gems_error_set(err, (enum gems_status)status,
                                  "checkpoint of step %llu: not begun",
                                  (unsigned long long)position->step);
        }
        status = export_owned(trainer, &n, err);
        if (status < 0) {
            return status;
        }
        status = events->checkpoint_end(arg, n);
    } while (status > 0);
    if (status < 0) {
        return gems_error_set(err, (enum gems_status)status,
                              "checkpoint of step %llu: not finished",
                              (unsigned long long)position->step);
    }
    return GEMS_OK;
}
