#include "worker/rank/stage.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

int stage_init(struct stage *stage, const struct graph *graph, const struct plan *plan,
               uint32_t index, const struct backend *backend, struct be_device *device,
               struct gems_error *err)
{
    *stage = (struct stage){ .graph = graph,
                             .plan = plan,
                             .backend = backend,
                             .device = device,
                             .index = index,
                             .first = plan->stage_node[index] };
    stage->n_nodes = plan->stage_node[index + 1] - stage->first;
    stage->block_offset = calloc(stage->n_nodes + 1, sizeof *stage->block_offset);
    stage->block2_offset = calloc(stage->n_nodes + 1, sizeof *stage->block2_offset);
    if (!stage->block_offset || !stage->block2_offset) {
        return gems_error_set(err, GEMS_E_NOMEM, "stage %u: no host memory", index);
    }
    return GEMS_OK;
}

static void variant_fini(const struct stage *stage, struct stage_variant *variant)
{
    for (uint32_t i = 0; variant->ops && i < stage->n_nodes; i++) {
        if (variant->ops[i]) {
            stage->backend->ops->destroy(variant->ops[i]);
        }
    }
    free(variant->ops);
    layout_fini(&variant->layout);
}

void stage_fini(struct stage *stage)
{
    for (uint32_t i = 0; i < stage->n_variants; i++) {
        variant_fini(stage, &stage->variants[i]);
    }
    free(stage->variants);
    free(stage->block_offset);
    free(stage->block2_offset);
    free(stage->grads);
    memset(stage, 0, sizeof *stage);
}

static int create_op(const struct stage *stage, struct stage_variant *variant,
                     const struct facts *facts, uint32_t node, struct gems_error *err)
{
    struct be_op_desc desc = { stage->graph, node, variant->batch,
                               variant->is_eval ? BE_EVAL : BE_TRAIN };
    struct be_op **op = &variant->ops[node - stage->first];
    const struct op_facts *said = &facts->ops[node];
    const struct be_op_info *info;
    int status;

    if (*op) {
        return GEMS_OK;
    }
    status = stage->backend->ops->create(stage->device, &desc, op, err);
    if (status < 0) {
        return status;
    }
    info = stage->backend->ops->info(*op);
    if (info->out_bytes != said->out_bytes || info->kept_bytes > said->kept_bytes ||
        info->scratch_bytes > said->scratch_bytes || info->param_bytes != said->param_bytes ||
        (!variant->is_eval && info->param2_bytes != said->param2_bytes)) {
        return gems_error_set(err, GEMS_E_INTERNAL,
                              "operator %s at batch %u: takes other bytes than described",
                              stage->graph->nodes[node].name, variant->batch);
    }
    return GEMS_OK;
}

static int create_ops(const struct stage *stage, struct stage_variant *variant,
                      const struct facts *facts, struct gems_error *err)
{
    const struct layout *layout = &variant->layout;

    for (uint32_t i = 0; i < layout->n_forward + layout->n_backward; i++) {
        const struct layout_step *step =
            i < layout->n_forward ? &layout->forward[i] : &layout->backward[i - layout->n_forward];
        int status;

        if (step->kind != STEP_FORWARD && step->kind != STEP_BACKWARD) {
            continue;
        }
        status = create_op(stage, variant, facts, step->node, err);
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

static void place_blocks(struct stage *stage, const struct stage_variant *variant)
{
    for (uint32_t i = 0; i < stage->n_nodes; i++) {
        const struct be_op *op = variant->ops[i];
        const struct be_op_info *info = op ? stage->backend->ops->info(op) : NULL;

        stage->block_offset[i + 1] = stage->block_offset[i] + (info ? info->param_bytes : 0);
        stage->block2_offset[i + 1] = stage->block2_offset[i] + (info ? info->param2_bytes : 0);
    }
}

const struct stage_variant *stage_variant_find(const struct stage *stage, uint32_t batch,
                                               bool is_eval)
{
    for (uint32_t i = 0; i < stage->n_variants; i++) {
        if (stage->variants[i].batch == batch && stage->variants[i].is_eval == is_eval) {
            return &stage->variants[i];
        }
    }
    return NULL;
}

int stage_add_variant(struct stage *stage, const struct facts *facts, bool is_eval,
                      struct gems_error *err)
{
    struct stage_variant *variants, *variant;
    int status;

    if (stage_variant_find(stage, facts->batch, is_eval)) {
        return GEMS_OK;
    }
    variants = reallocarray(stage->variants, stage->n_variants + 1, sizeof *variants);
    if (!variants) {
        return gems_error_set(err, GEMS_E_NOMEM, "stage %u: no host memory", stage->index);
    }
    stage->variants = variants;
    variant = &variants[stage->n_variants++];
    *variant = (struct stage_variant){ .batch = facts->batch, .is_eval = is_eval, .facts = facts };
    variant->ops = calloc(stage->n_nodes, sizeof(struct be_op *));
    if (!variant->ops) {
        return gems_error_set(err, GEMS_E_NOMEM, "stage %u: no host memory", stage->index);
    }
    status =
        layout_make(stage->graph, stage->plan, stage->index, facts, is_eval, &variant->layout, err);
    if (status < 0) {
        return status;
    }
    status = create_ops(stage, variant, facts, err);
    if (status < 0) {
        return status;
    }
    if (stage->n_variants == 1) {
        place_blocks(stage, variant);
    }
    return GEMS_OK;
}

int stage_ask(struct stage *stage, struct arena *arena, uint32_t n_blocks, struct gems_error *err)
{
    uint64_t bytes = stage->block_offset[stage->n_nodes];
    int status = arena_ask(arena, ARENA_WEIGHTS, bytes, &stage->params, err);

    if (status < 0) {
        return status;
    }
    status =
        arena_ask(arena, ARENA_WEIGHTS, stage->block2_offset[stage->n_nodes], &stage->params2, err);
    if (status < 0) {
        return status;
    }
    stage->grads = calloc(n_blocks + 1, sizeof *stage->grads);
    if (!stage->grads) {
        return gems_error_set(err, GEMS_E_NOMEM, "stage %u: no host memory", stage->index);
    }
    stage->n_blocks = n_blocks;
    for (uint32_t i = 0; i < n_blocks; i++) {
        status = arena_ask(arena, ARENA_GRADIENTS, bytes, &stage->grads[i], err);
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

int stage_derive(struct stage *stage, struct gems_error *err)
{
    for (uint32_t i = 0; i < stage->n_nodes; i++) {
        int status;

        if (stage->block2_offset[i + 1] == stage->block2_offset[i]) {
            continue;
        }
        status = stage->backend->ops->derive(
            stage->variants[0].ops[i], (uint8_t *)stage->params + stage->block_offset[i],
            (uint8_t *)stage->params2 + stage->block2_offset[i], err);
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

struct be_op *stage_param_op(const struct stage *stage, uint32_t node_i)
{
    return stage->block_offset[node_i + 1] > stage->block_offset[node_i]
               ? stage->variants[0].ops[node_i]
               : NULL;
}
