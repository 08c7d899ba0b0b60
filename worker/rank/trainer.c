/* Building a trainer: ask the device, plan the memory, make the operators,
 * take the memory, resolve the programs. Nothing is taken after it. */
#include "worker/rank/state.h"

#include <stdlib.h>

#include "common/error.h"

static int add_variants(struct trainer *trainer, struct stage *stage, bool is_eval,
                        struct gems_error *err)
{
    static const enum program_kind kinds[2][2] = { { PROGRAM_TRAIN, PROGRAM_TRAIN_LAST },
                                                   { PROGRAM_EVAL, PROGRAM_EVAL_LAST } };

    for (int k = 0; k < 2; k++) {
        const struct program *program = plan_program(trainer->config.plan, kinds[is_eval][k]);

        for (uint32_t m = 0; program->n_ranks != 0 && m < program->n_microbatches; m++) {
            const struct facts *facts = fact_set_find(&trainer->facts, program_samples(program, m));
            int status = facts ? stage_add_variant(stage, facts, is_eval, err)
                               : gems_error_set(err, GEMS_E_INTERNAL,
                                                "plan: more than %d batch sizes", FACTS_MAX_SIZES);

            if (status < 0) {
                return status;
            }
        }
    }
    return GEMS_OK;
}

static int make_resident(struct trainer *trainer, uint32_t stage_i, struct resident *resident,
                         struct gems_error *err)
{
    const struct trainer_config *c = &trainer->config;
    struct stage *stage = &resident->stage;
    int status = stage_init(stage, c->graph, c->plan, stage_i, c->backend, c->device, err);

    if (status == GEMS_OK) {
        status = add_variants(trainer, stage, false, err);
    }
    if (status == GEMS_OK) {
        status = add_variants(trainer, stage, true, err);
    }
    if (status == GEMS_OK) {
        status =
            reduce_init(&resident->reduce, stage, c->rank, c->link, trainer->element_bytes, err);
    }
    if (status < 0) {
        return status;
    }
    return optim_init(&resident->optim, stage, &c->spec->train,
                      reduce_shard_first(&resident->reduce), reduce_shard_bytes(&resident->reduce),
                      trainer->element_bytes, err);
}

static int make_residents(struct trainer *trainer, struct gems_error *err)
{
    uint32_t stages[PLAN_MAX_RESIDENT];
    uint32_t n = plan_resident(trainer->config.plan, trainer->config.rank, stages);

    for (uint32_t i = 0; i < n; i++) {
        int status;

        trainer->n_residents = i + 1;
        status = make_resident(trainer, stages[i], &trainer->residents[i], err);
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

/* By what the rank holds, not by what it loads: with few micro-batches one of
 * its two ends may have nothing to load. */
static uint64_t loader_bytes(const struct trainer *trainer)
{
    const struct shape *image = &trainer->config.graph->nodes[0].out;
    const struct stage *first = &trainer->residents[0].stage;
    const struct stage *last = &trainer->residents[trainer->n_residents - 1].stage;
    bool has_images = first->index == 0;
    bool has_labels = last->index + 1 == trainer->config.plan->n_stages;

    return LOADER_DEPTH * loader_buffer_bytes(trainer->loader_batch, image->c, image->h, image->w,
                                              trainer->element_bytes == sizeof(double), has_images,
                                              has_labels);
}

static int ask_residents(struct trainer *trainer, struct gems_error *err)
{
    for (uint32_t i = 0; i < trainer->n_residents; i++) {
        struct resident *r = &trainer->residents[i];
        int status = stage_ask(&r->stage, &trainer->arena, trainer->map.n_blocks, err);

        if (status == GEMS_OK) {
            status = optim_ask(&r->optim, &trainer->arena, err);
        }
        if (status == GEMS_OK) {
            status = reduce_ask(&r->reduce, &trainer->arena, err);
        }
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

static uint64_t limit_bytes(const struct trainer *trainer)
{
    const struct plan *plan = trainer->config.plan;

    return plan->memory ? plan->memory[trainer->config.rank].limit_bytes : 0;
}

static int take_memory(struct trainer *trainer, struct gems_error *err)
{
    const struct memory_map *map = &trainer->map;
    struct exec_memory *memory = &trainer->memory;
    const struct {
        enum arena_class class;
        uint64_t bytes;
        void **where;
    } asks[] = {
        { ARENA_ACTIVATIONS, map->activations_bytes, &memory->activations },
        { ARENA_BUFFERS, map->n_grad_in * map->grad_in_bytes, &memory->grad_in },
        { ARENA_BUFFERS, map->n_grad_out * map->grad_out_bytes, &memory->grad_out },
        { ARENA_WORKSPACE, map->temp_bytes, &memory->temp },
        { ARENA_WORKSPACE, map->scratch_bytes, &memory->scratch },
        { ARENA_BUFFERS, loader_bytes(trainer), &trainer->loader_buffers },
        { ARENA_BUFFERS, tensors_staging_bytes(trainer), &trainer->staging },
    };
    int status = ask_residents(trainer, err);

    for (size_t i = 0; i < sizeof asks / sizeof asks[0] && status == GEMS_OK; i++) {
        status = arena_ask(&trainer->arena, asks[i].class, asks[i].bytes, asks[i].where, err);
    }
    return status < 0 ? status : arena_commit(&trainer->arena, limit_bytes(trainer), err);
}

static int build(struct trainer *trainer, struct gems_error *err)
{
    const struct trainer_config *c = &trainer->config;
    int status =
        facts_describe(c->graph, c->plan, c->rank, c->backend, c->device, &trainer->facts, err);

    if (status == GEMS_OK) {
        status = memory_map_make(c->graph, c->spec, c->plan, &trainer->facts, c->rank,
                                 &trainer->map, err);
    }
    if (status == GEMS_OK) {
        status = make_residents(trainer, err);
    }
    if (status == GEMS_OK) {
        status = feed_init(&trainer->feed, c->spec, c->plan, c->rank, err);
    }
    if (status == GEMS_OK) {
        status = take_memory(trainer, err);
    }
    if (status == GEMS_OK) {
        trainer->memory.map = &trainer->map;
        status = exec_init(&trainer->exec, c->plan, c->rank, c->backend, c->device, c->link,
                           trainer->element_bytes, trainer->residents, trainer->n_residents,
                           &trainer->memory, err);
    }
    if (status == GEMS_OK) {
        status = wish_init(&trainer->wish, c->link, c->rank, c->plan->n_ranks, err);
    }
    if (status == GEMS_OK) {
        status = tensors_init(trainer, err);
    }
    return status < 0 ? status : tensors_start(trainer, err);
}

/* Samples of the largest pass of a rank. */
static uint32_t largest_batch(const struct plan *plan, uint32_t rank)
{
    uint32_t largest = 0;

    for (int kind = 0; kind < PROGRAM_KIND_COUNT; kind++) {
        const struct program *program = plan_program(plan, (enum program_kind)kind);
        const struct instr_list *list = program->n_ranks ? &program->ranks[rank] : NULL;

        for (uint32_t i = 0; list && i < list->n; i++) {
            const struct instr *in = &list->items[i];
            uint32_t n = program_samples(program, in->microbatch);

            if ((in->op == INSTR_FORWARD || in->op == INSTR_EVALUATE) && n > largest) {
                largest = n;
            }
        }
    }
    return largest;
}

int trainer_create(const struct trainer_config *config, struct trainer **ret_trainer,
                   struct gems_error *err)
{
    struct trainer *trainer;
    int status;

    if (config->plan->n_ranks > 1 && !config->link) {
        return gems_error_set(err, GEMS_E_INTERNAL, "trainer: a plan of %u ranks and no link",
                              config->plan->n_ranks);
    }
    if (!config->backend->is_host_memory) {
        return gems_error_set(err, GEMS_E_UNSUPPORTED,
                              "back end %s: memory of its own is not in this version",
                              config->backend->name);
    }
    trainer = calloc(1, sizeof *trainer);
    if (!trainer) {
        return gems_error_set(err, GEMS_E_NOMEM, "trainer: no host memory");
    }
    trainer->config = *config;
    trainer->element_bytes =
        config->spec->train.precision == PRECISION_F64 ? sizeof(double) : sizeof(float);
    trainer->loader_batch = largest_batch(config->plan, config->rank);
    arena_init(&trainer->arena, config->backend, config->device);
    status = build(trainer, err);
    if (status < 0) {
        trainer_destroy(trainer);
        return status;
    }
    *ret_trainer = trainer;
    return GEMS_OK;
}

void trainer_destroy(struct trainer *trainer)
{
    if (!trainer) {
        return;
    }
    loader_destroy(trainer->loader);
    exec_fini(&trainer->exec);
    wish_fini(&trainer->wish);
    feed_fini(&trainer->feed);
    for (uint32_t i = 0; i < trainer->n_residents; i++) {
        optim_fini(&trainer->residents[i].optim);
        reduce_fini(&trainer->residents[i].reduce);
        stage_fini(&trainer->residents[i].stage);
    }
    memory_map_fini(&trainer->map);
    fact_set_fini(&trainer->facts);
    free(trainer->tensors);
    if (trainer->arena.backend) {
        arena_fini(&trainer->arena);
    }
    free(trainer);
}

void trainer_memory(const struct trainer *trainer, struct rank_memory *ret_memory)
{
    *ret_memory = (struct rank_memory){ .limit_bytes = limit_bytes(trainer) };
    arena_report(&trainer->arena, ret_memory);
}

const struct trainer_watch *trainer_watch(const struct trainer *trainer)
{
    return &trainer->exec.watch;
}
