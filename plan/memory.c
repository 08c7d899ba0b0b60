/* Exact bytes of a rank: places of slots from their lifetimes (hold.c), sizes of
 * all else from the layouts of the passes that the programs run. */
#include "plan/memory.h"

#include <stdlib.h>

#include "common/error.h"
#include "plan/hold.h"
#include "plan/pack.h"

enum { MAX_LAYOUTS = PLAN_MAX_RESIDENT * FACTS_MAX_SIZES * 2, BYTE_ALIGN = 64 };

/* Layouts met so far: few, and each is used by many instructions. */
struct layout_cache {
    struct cached {
        uint32_t stage, samples;
        bool is_eval;
        struct layout layout;
    } items[MAX_LAYOUTS];
    uint32_t n;
};

struct build {
    const struct graph *graph;
    const struct job_spec *spec;
    const struct plan *plan;
    const struct fact_set *facts;
    uint32_t rank, n_resident, resident[PLAN_MAX_RESIDENT];
    struct layout_cache cache;
    uint64_t *slot_bytes;
    uint32_t max_samples;
    struct memory_map *map;
};

static int find_layout(struct build *b, uint32_t stage, uint32_t samples, bool is_eval,
                       const struct layout **ret_layout, struct gems_error *err)
{
    struct layout_cache *cache = &b->cache;
    const struct facts *facts = fact_set_find(b->facts, samples);
    struct cached *item;
    int status;

    for (uint32_t i = 0; i < cache->n; i++) {
        item = &cache->items[i];
        if (item->stage == stage && item->samples == samples && item->is_eval == is_eval) {
            *ret_layout = &item->layout;
            return GEMS_OK;
        }
    }
    if (!facts || cache->n == MAX_LAYOUTS) {
        return gems_error_set(err, GEMS_E_INTERNAL, "memory of rank %u: no facts for %u samples",
                              b->rank, samples);
    }
    item = &cache->items[cache->n];
    *item = (struct cached){ .stage = stage, .samples = samples, .is_eval = is_eval };
    status = layout_make(b->graph, b->plan, stage, facts, is_eval, &item->layout, err);
    if (status == GEMS_OK) {
        cache->n++;
        *ret_layout = &item->layout;
    }
    return status;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* A pass on a slot: how large its spaces must be. */
static int measure_pass(struct build *b, const struct program *program, const struct instr *instr,
                        struct gems_error *err)
{
    struct memory_map *map = b->map;
    uint32_t samples = program_samples(program, instr->microbatch);
    const struct layout *layout = NULL;
    int status = find_layout(b, instr->stage, samples, program->is_eval, &layout, err);

    if (status < 0) {
        return status;
    }
    b->slot_bytes[instr->slot] = max_u64(b->slot_bytes[instr->slot], layout->slot_bytes);
    b->max_samples = max_u32(b->max_samples, samples);
    map->temp_bytes = max_u64(map->temp_bytes, layout->temp_bytes);
    map->scratch_bytes = max_u64(map->scratch_bytes, layout->scratch_bytes);
    map->grad_in_bytes = max_u64(map->grad_in_bytes, layout->grad_in_bytes);
    map->grad_out_bytes = max_u64(map->grad_out_bytes, layout->grad_out_bytes);
    return GEMS_OK;
}

static void count_buffers(struct memory_map *map, const struct instr *instr)
{
    switch ((enum instr_op)instr->op) {
    case INSTR_RECV_GRAD:
        map->n_grad_in = max_u32(map->n_grad_in, instr->slot + 1u);
        break;
    case INSTR_SEND_GRAD:
        map->n_grad_out = max_u32(map->n_grad_out, instr->slot + 1u);
        break;
    case INSTR_BACKWARD:
    case INSTR_BACKWARD_WEIGHT:
        map->n_blocks = max_u32(map->n_blocks, instr->block + 1u);
        break;
    case INSTR_COMBINE:
        map->n_blocks = max_u32(map->n_blocks, max_u32(instr->block, instr->slot) + 1u);
        break;
    default:
        break;
    }
}

static const struct instr_list *list_of(const struct build *b, const struct program *program)
{
    return program->n_ranks > b->rank ? &program->ranks[b->rank] : NULL;
}

static int measure_program(struct build *b, const struct program *program, struct gems_error *err)
{
    const struct instr_list *list = list_of(b, program);
    int status = GEMS_OK;

    for (uint32_t i = 0; list && i < list->n && status == GEMS_OK; i++) {
        const struct instr *instr = &list->items[i];

        count_buffers(b->map, instr);
        if (instr->op == INSTR_FORWARD || instr->op == INSTR_EVALUATE) {
            status = measure_pass(b, program, instr, err);
        }
    }
    return status;
}

static int place_slots(struct build *b, struct hold *hold, struct gems_error *err)
{
    struct memory_map *map = b->map;
    uint64_t *offsets = calloc(map->n_slots + 1, sizeof *offsets);
    int status;

    if (!offsets) {
        return gems_error_set(err, GEMS_E_NOMEM, "slots of rank %u: no memory", b->rank);
    }
    status = hold_place(hold, b->slot_bytes, LAYOUT_ALIGN, offsets, &map->activations_bytes, err);
    for (uint32_t slot = 0; status == GEMS_OK && slot < map->n_slots; slot++) {
        map->slots[slot] = (struct memory_slot){ offsets[slot], b->slot_bytes[slot] };
    }
    free(offsets);
    return status;
}

/* Slots, buffers and workspace: all that follows from the programs. */
static int walk_programs(struct build *b, struct gems_error *err)
{
    const struct program *programs[] = { &b->plan->train, &b->plan->train_last, &b->plan->eval,
                                         &b->plan->eval_last };
    enum { N_PROGRAMS = sizeof programs / sizeof programs[0] };
    struct hold *hold;
    uint32_t n_instrs = 0;
    int status = GEMS_OK;

    for (int p = 0; p < N_PROGRAMS; p++) {
        const struct instr_list *list = list_of(b, programs[p]);

        n_instrs += list ? list->n : 0;
        for (uint32_t i = 0; list && i < list->n; i++) {
            if (hold_is_on_slot(&list->items[i])) {
                b->map->n_slots = max_u32(b->map->n_slots, list->items[i].slot + 1u);
            }
        }
    }
    hold = hold_create(b->map->n_slots, n_instrs, err);
    b->slot_bytes = calloc(b->map->n_slots + 1, sizeof *b->slot_bytes);
    b->map->slots = calloc(b->map->n_slots + 1, sizeof *b->map->slots);
    if (!hold || !b->slot_bytes || !b->map->slots) {
        hold_destroy(hold);
        return gems_error_set(err, GEMS_E_NOMEM, "slots of rank %u: no memory", b->rank);
    }
    for (int p = 0; p < N_PROGRAMS && status == GEMS_OK; p++) {
        if (list_of(b, programs[p])) {
            hold_add(hold, list_of(b, programs[p]));
        }
        status = measure_program(b, programs[p], err);
    }
    if (status == GEMS_OK) {
        status = place_slots(b, hold, err);
    }
    hold_destroy(hold);
    return status;
}

static uint32_t optimizer_states(const struct train_spec *train)
{
    return train->optimizer == OPTIMIZER_SGD ? 1 : 2;
}

/* Weights, gradients, optimizer state and reduction of one resident stage. */
static int count_stage(struct build *b, uint32_t stage, struct gems_error *err)
{
    const struct facts *facts = fact_set_find(b->facts, b->plan->microbatch);
    uint32_t first = b->plan->stage_node[stage], n = b->plan->stage_node[stage + 1] - first;
    uint32_t copies[PLAN_MAX_COPIES], shards[PLAN_MAX_COPIES + 1];
    uint32_t k = plan_copies(b->plan, stage, copies, PLAN_MAX_COPIES), own = 0;
    uint64_t *bytes, params = 0, params2 = 0, owned = 0;

    if (!facts) {
        return gems_error_set(err, GEMS_E_INTERNAL, "memory of rank %u: no facts for %u samples",
                              b->rank, b->plan->microbatch);
    }
    bytes = calloc(n + 1, sizeof *bytes);
    if (!bytes) {
        return gems_error_set(err, GEMS_E_NOMEM, "shards of stage %u: no memory", stage);
    }
    for (uint32_t i = 0; i < n; i++) {
        bytes[i] = facts->ops[first + i].param_bytes;
        params += bytes[i];
        params2 += facts->ops[first + i].param2_bytes;
    }
    plan_shards(bytes, n, k, shards);
    while (own + 1 < k && copies[own] != b->rank) {
        own++;
    }
    for (uint32_t i = shards[own]; i < shards[own + 1]; i++) {
        owned += bytes[i];
    }
    free(bytes);
    b->map->total.weights_bytes += params + params2;
    b->map->total.gradients_bytes += params * b->map->n_blocks;
    b->map->total.optimizer_bytes += owned * optimizer_states(&b->spec->train);
    b->map->reduce_bytes += owned * (k - 1);
    return GEMS_OK;
}

static uint64_t element_bytes(const struct job_spec *spec)
{
    return spec->train.precision == PRECISION_F64 ? 8 : 4;
}

static uint64_t largest_param(const struct build *b, uint32_t stage)
{
    uint64_t largest = 0;

    for (uint32_t i = b->plan->stage_node[stage]; i < b->plan->stage_node[stage + 1]; i++) {
        struct param params[MODEL_MAX_PARAMS];
        uint32_t n = node_params(b->graph, i, params);

        for (uint32_t p = 0; p < n; p++) {
            largest = max_u64(largest, param_count(&params[p]));
        }
    }
    return largest;
}

static void count_host_side(struct build *b)
{
    struct memory_map *map = b->map;
    uint64_t item = 0, largest = 0;

    for (uint32_t i = 0; i < b->n_resident; i++) {
        uint32_t stage = b->resident[i];

        largest = max_u64(largest, largest_param(b, stage));
        if (stage == 0) {
            item += pack_round(b->max_samples * shape_count(&b->graph->nodes[0].out) *
                                   element_bytes(b->spec),
                               BYTE_ALIGN);
        }
        if (stage + 1 == b->plan->n_stages) {
            item += pack_round(b->max_samples * sizeof(uint32_t), BYTE_ALIGN);
        }
    }
    map->loader_bytes = LOADER_DEPTH * item;
    map->snapshot_bytes = pack_round(largest * element_bytes(b->spec), BYTE_ALIGN);
}

static int build_map(struct build *b, struct gems_error *err)
{
    struct memory_map *map = b->map;
    struct rank_memory *total = &map->total;
    int status = walk_programs(b, err);

    for (uint32_t i = 0; i < b->n_resident && status == GEMS_OK; i++) {
        status = count_stage(b, b->resident[i], err);
    }
    if (status < 0) {
        return status;
    }
    count_host_side(b);
    total->activations_bytes = map->activations_bytes;
    total->buffers_bytes = map->n_grad_in * map->grad_in_bytes +
                           map->n_grad_out * map->grad_out_bytes + map->reduce_bytes +
                           map->loader_bytes + map->snapshot_bytes;
    total->workspace_bytes = map->temp_bytes + map->scratch_bytes;
    total->total_bytes = total->weights_bytes + total->gradients_bytes + total->optimizer_bytes +
                         total->activations_bytes + total->buffers_bytes + total->workspace_bytes;
    return GEMS_OK;
}

int memory_map_make(const struct graph *graph, const struct job_spec *spec, const struct plan *plan,
                    const struct fact_set *facts, uint32_t rank, struct memory_map *ret_map,
                    struct gems_error *err)
{
    struct memory_map map = { 0 };
    struct build *b = calloc(1, sizeof *b);
    int status;

    if (!b) {
        return gems_error_set(err, GEMS_E_NOMEM, "memory of rank %u: no memory", rank);
    }
    b->graph = graph;
    b->spec = spec;
    b->plan = plan;
    b->facts = facts;
    b->rank = rank;
    b->n_resident = plan_resident(plan, rank, b->resident);
    b->map = &map;
    status = build_map(b, err);
    if (status == GEMS_OK) {
        *ret_map = map;
    } else {
        memory_map_fini(&map);
    }
    for (uint32_t i = 0; i < b->cache.n; i++) {
        layout_fini(&b->cache.items[i].layout);
    }
    free(b->slot_bytes);
    free(b);
    return status;
}

void memory_map_fini(struct memory_map *map)
{
    free(map->slots);
    *map = (struct memory_map){ 0 };
}
