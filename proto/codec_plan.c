#include "proto/codec.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "proto/build.h"
#include "proto/field.h"

enum { CODEC_MAX_RANKS = 4096, CODEC_MAX_INSTRS = 1 << 20, CODEC_MAX_EDGES = 1 << 16, CODEC_MAX_CHAINS = 16 };

/* ---- programs ---- */

static bool has_columns(struct field_check *check, const Gems__InstrList *message)
{
    size_t n = message->n_op;

    field_at_most(check, "op", n, CODEC_MAX_INSTRS);
    return check->st == GEMS_OK && field_count(check, "chain", message->n_chain, n) &&
           field_count(check, "stage", message->n_stage, n) &&
           field_count(check, "segment", message->n_segment, n) &&
           field_count(check, "peer", message->n_peer, n) &&
           field_count(check, "microbatch", message->n_microbatch, n) &&
           field_count(check, "edge", message->n_edge, n) &&
           field_count(check, "slot", message->n_slot, n) &&
           field_count(check, "block", message->n_block, n) &&
           field_count(check, "first", message->n_first, n);
}

static bool uses_edge(uint32_t op)
{
    return op >= INSTR_SEND_ACT && op <= INSTR_RECV_GRAD;
}

static void instr_from_proto(struct field_check *check, const Gems__InstrList *message, size_t i,
                             const struct plan *plan, const struct program *program,
                             struct instr *instr)
{
    uint32_t op = field_below(check, "op", message->op[i], INSTR_OP_COUNT);
    uint32_t peers = uses_edge(op) ? program->n_ranks : UINT16_MAX + 1;

    instr->op = (uint8_t)op;
    instr->chain = (uint8_t)field_below(check, "chain", message->chain[i], plan->n_chains);
    instr->stage = (uint16_t)field_below(check, "stage", message->stage[i], plan->n_stages);
    instr->segment = (uint16_t)field_at_most(check, "segment", message->segment[i], UINT16_MAX);
    instr->peer = (uint16_t)field_below(check, "peer", message->peer[i], peers);
    instr->microbatch = message->microbatch[i];
    instr->edge = uses_edge(op) ? field_below(check, "edge", message->edge[i], plan->n_edges) :
                                  message->edge[i];
    instr->slot = (uint16_t)field_at_most(check, "slot", message->slot[i], UINT16_MAX);
    instr->block = (uint16_t)field_at_most(check, "block", message->block[i], UINT16_MAX);
    instr->is_first = (uint8_t)field_at_most(check, "first", message->first[i], 1);
}

static int list_from_proto(const Gems__InstrList *message, const struct plan *plan,
                           struct program *program, uint32_t rank, struct gems_error *err)
{
    struct field_check check = { .message = "InstrList", .err = err };
    struct instr_list *list = &program->ranks[rank];

    if (!has_columns(&check, message) || message->n_op == 0) {
        return check.st;
    }
    list->items = calloc(message->n_op, sizeof *list->items);
    if (!list->items) {
        return gems_error_set(err, GEMS_E_NOMEM, "plan: no memory for a program");
    }
    list->n = (uint32_t)message->n_op;
    list->capacity = list->n;
    for (size_t i = 0; i < message->n_op && check.st == GEMS_OK; i++) {
        instr_from_proto(&check, message, i, plan, program, &list->items[i]);
    }
    return check.st;
}

/* A missing program is one that the job does not need. */
static int program_from_proto(const Gems__Program *message, const struct plan *plan,
                              struct program *program, struct gems_error *err)
{
    struct field_check check = { .message = "Program", .err = err };
    int st;

    if (!message || message->ranks == 0) {
        return GEMS_OK;
    }
    if (!field_count(&check, "ranks", message->ranks, plan->n_ranks) ||
        !field_count(&check, "lists", message->n_lists, plan->n_ranks)) {
        return check.st;
    }
    st = program_init(program, message->ranks, err);
    program->is_eval = message->eval;
    program->n_microbatches = message->microbatches;
    program->microbatch = message->microbatch;
    program->last_microbatch = message->last_microbatch;
    for (uint32_t rank = 0; rank < message->ranks && st == GEMS_OK; rank++) {
        st = list_from_proto(message->lists[rank], plan, program, rank, err);
    }
    return st;
}

static Gems__InstrList *list_to_proto(struct build *build, const struct instr_list *list)
{
    Gems__InstrList *message = build_message(build, &gems__instr_list__descriptor);
    uint32_t *columns[10];
    size_t n = list->n;

    if (!message) {
        return NULL;
    }
    for (size_t i = 0; i < 10; i++) {
        columns[i] = build_array(build, n, sizeof **columns);
    }
    message->op = columns[0];
    message->chain = columns[1];
    message->stage = columns[2];
    message->segment = columns[3];
    message->peer = columns[4];
    message->microbatch = columns[5];
    message->edge = columns[6];
    message->slot = columns[7];
    message->block = columns[8];
    message->first = columns[9];
    if (build->is_failed) {
        return message; /* with what there is; counts are still zero */
    }
    message->n_op = message->n_chain = message->n_stage = message->n_segment = message->n_peer = n;
    message->n_microbatch = message->n_edge = message->n_slot = message->n_block = n;
    message->n_first = n;
    for (size_t i = 0; i < n; i++) {
        const struct instr *instr = &list->items[i];

        message->op[i] = instr->op;
        message->chain[i] = instr->chain;
        message->stage[i] = instr->stage;
        message->segment[i] = instr->segment;
        message->peer[i] = instr->peer;
        message->microbatch[i] = instr->microbatch;
        message->edge[i] = instr->edge;
        message->slot[i] = instr->slot;
        message->block[i] = instr->block;
        message->first[i] = instr->is_first;
    }
    return message;
}

static Gems__Program *program_to_proto(struct build *build, const struct program *program, int rank)
{
    static const struct instr_list empty;
    Gems__Program *message;

    if (program->n_ranks == 0) {
        return NULL;
    }
    message = build_message(build, &gems__program__descriptor);
    if (message) {
        message->eval = program->is_eval;
        message->ranks = program->n_ranks;
        message->microbatches = program->n_microbatches;
        message->microbatch = program->microbatch;
        message->last_microbatch = program->last_microbatch;
        message->lists = build_array(build, program->n_ranks, sizeof *message->lists);
        message->n_lists = message->lists ? program->n_ranks : 0;
        for (size_t i = 0; i < message->n_lists; i++) {
            bool is_wanted = rank < 0 || (size_t)rank == i;

            message->lists[i] = list_to_proto(build, is_wanted ? &program->ranks[i] : &empty);
        }
    }
    return message;
}

/* ---- the rest of a plan ---- */

static void stages_from_proto(struct field_check *check, const Gems__Plan *message, struct plan *plan)
{
    if (!field_count(check, "stage_layers", message->n_stage_layers, plan->n_stages) ||
        !field_count(check, "stage_recompute", message->n_stage_recompute, plan->n_stages) ||
        !field_count(check, "stage_node", message->n_stage_node, (size_t)plan->n_stages + 1)) {
        return;
    }
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        plan->stage_layers[i] = message->stage_layers[i];
        plan->stage_recompute[i] =
            field_below(check, "stage_recompute", message->stage_recompute[i], RECOMPUTE_AUTO);
    }
    for (uint32_t i = 0; i <= plan->n_stages; i++) {
        plan->stage_node[i] = message->stage_node[i];
        if (i == 0 ? plan->stage_node[0] != 0 : plan->stage_node[i] <= plan->stage_node[i - 1]) {
            field_fail(check, "stage_node", "stages out of order");
        }
    }
}

static int edges_from_proto(const Gems__Plan *message, struct plan *plan, struct gems_error *err)
{
    struct field_check check = { .message = "PlanEdge", .err = err };

    field_at_most(&check, "edges", message->n_edges, CODEC_MAX_EDGES);
    if (check.st < 0 || message->n_edges == 0) {
        return check.st;
    }
    plan->edges = calloc(message->n_edges, sizeof *plan->edges);
    if (!plan->edges) {
        return gems_error_set(err, GEMS_E_NOMEM, "plan: no memory for edges");
    }
    plan->n_edges = (uint32_t)message->n_edges;
    for (size_t i = 0; i < message->n_edges; i++) {
        const Gems__PlanEdge *from = message->edges[i];
        struct plan_edge *edge = &plan->edges[i];

        edge->node = field_below(&check, "node", from->node, plan->stage_node[plan->n_stages]);
        edge->to_stage = (uint16_t)field_below(&check, "to_stage", from->to_stage, plan->n_stages);
        edge->from_stage = (uint16_t)field_below(&check, "from_stage", from->from_stage, edge->to_stage);
    }
    return check.st;
}

static int memory_from_proto(const Gems__Plan *message, struct plan *plan, struct gems_error *err)
{
    struct field_check check = { .message = "Plan", .err = err };

    if (!field_count(&check, "memory", message->n_memory, plan->n_ranks)) {
        return check.st;
    }
    plan->memory = calloc(plan->n_ranks, sizeof *plan->memory);
    if (!plan->memory) {
        return gems_error_set(err, GEMS_E_NOMEM, "plan: no memory for ranks");
    }
    for (uint32_t i = 0; i < plan->n_ranks; i++) {
        const Gems__RankMemory *from = message->memory[i];

        plan->memory[i] = (struct rank_memory){
            .weights_bytes = from->weights,
            .gradients_bytes = from->gradients,
            .optimizer_bytes = from->optimizer,
            .activations_bytes = from->activations,
            .buffers_bytes = from->buffers,
            .workspace_bytes = from->workspace,
            .total_bytes = from->total,
            .limit_bytes = from->limit,
        };
    }
    return GEMS_OK;
}

static int head_from_proto(const Gems__Plan *message, struct plan *plan, struct gems_error *err)
{
    struct field_check check = { .message = "Plan", .err = err };

    plan->schedule = (enum schedule_kind)field_below(&check, "schedule", message->schedule, SCHEDULE_COUNT);
    plan->n_stages = (uint32_t)field_at_most(&check, "stages", message->stages, SPEC_MAX_STAGES);
    plan->n_groups = (uint32_t)field_at_most(&check, "groups", message->groups, CODEC_MAX_RANKS);
    plan->n_chains = (uint32_t)field_at_most(&check, "chains", message->chains, CODEC_MAX_CHAINS);
    plan->n_ranks = (uint32_t)field_at_most(&check, "ranks", message->ranks, CODEC_MAX_RANKS);
    if (check.st == GEMS_OK && (!plan->n_stages || !plan->n_groups || !plan->n_chains || !plan->n_ranks)) {
        field_fail(&check, "stages", "stages, groups, chains and ranks are at least one");
    }
    if (check.st == GEMS_OK && (plan->n_ranks % plan->n_groups || plan->n_stages % plan_width(plan) ||
                                plan->n_groups * plan->n_chains > PLAN_MAX_COPIES)) {
        field_fail(&check, "ranks", "ranks form equal groups, and stages go on them evenly");
    }
    plan->microbatch = message->microbatch;
    plan->n_microbatches = message->microbatches;
    plan->n_blocks = message->blocks;
    plan->pass_microbatches = message->pass_microbatches;
    plan->recompute = (enum recompute)field_below(&check, "recompute", message->recompute, RECOMPUTE_AUTO + 1);
    plan->n_train = message->n_train;
    plan->n_eval = message->n_eval;
    plan->steps_per_epoch = message->steps_per_epoch;
    plan->steps_total = message->steps_total;
    plan->step_seconds = field_number(&check, "step_seconds", message->step_seconds);
    plan->samples_per_second = field_number(&check, "samples_per_second", message->samples_per_second);
    plan->idle_fraction = field_number(&check, "idle_fraction", message->idle_fraction);
    plan->parameters = message->parameters;
    plan->fits = message->fits;
    field_text(&check, "advice", message->advice, plan->advice, sizeof plan->advice);
    if (check.st == GEMS_OK) {
        stages_from_proto(&check, message, plan);
    }
    return check.st;
}

int plan_from_proto(const Gems__Plan *message, struct plan *ret_plan, struct gems_error *err)
{
    int st;

    memset(ret_plan, 0, sizeof *ret_plan);
    if ((st = head_from_proto(message, ret_plan, err)) < 0 ||
        (st = edges_from_proto(message, ret_plan, err)) < 0 ||
        (st = memory_from_proto(message, ret_plan, err)) < 0 ||
        (st = program_from_proto(message->train, ret_plan, &ret_plan->train, err)) < 0 ||
        (st = program_from_proto(message->train_last, ret_plan, &ret_plan->train_last, err)) < 0 ||
        (st = program_from_proto(message->eval, ret_plan, &ret_plan->eval, err)) < 0 ||
        (st = program_from_proto(message->eval_last, ret_plan, &ret_plan->eval_last, err)) < 0) {
        plan_fini(ret_plan);
        memset(ret_plan, 0, sizeof *ret_plan);
    }
    return st;
}

static void edges_to_proto(struct build *build, const struct plan *plan, Gems__Plan *message)
{
    message->edges = build_array(build, plan->n_edges, sizeof *message->edges);
    message->n_edges = message->edges ? plan->n_edges : 0;
    for (size_t i = 0; i < message->n_edges; i++) {
        Gems__PlanEdge *edge = build_message(build, &gems__plan_edge__descriptor);

        if (edge) {
            edge->node = plan->edges[i].node;
            edge->from_stage = plan->edges[i].from_stage;
            edge->to_stage = plan->edges[i].to_stage;
        }
        message->edges[i] = edge;
    }
}

static void memory_to_proto(struct build *build, const struct plan *plan, Gems__Plan *message)
{
    message->memory = build_array(build, plan->n_ranks, sizeof *message->memory);
    message->n_memory = message->memory ? plan->n_ranks : 0;
    for (size_t i = 0; i < message->n_memory; i++) {
        const struct rank_memory *from = &plan->memory[i];
        Gems__RankMemory *memory = build_message(build, &gems__rank_memory__descriptor);

        if (memory) {
            memory->weights = from->weights_bytes;
            memory->gradients = from->gradients_bytes;
            memory->optimizer = from->optimizer_bytes;
            memory->activations = from->activations_bytes;
            memory->buffers = from->buffers_bytes;
            memory->workspace = from->workspace_bytes;
            memory->total = from->total_bytes;
            memory->limit = from->limit_bytes;
        }
        message->memory[i] = memory;
    }
}

static void head_to_proto(struct build *build, const struct plan *plan, Gems__Plan *message)
{
    message->schedule = (uint32_t)plan->schedule;
    message->stages = plan->n_stages;
    message->groups = plan->n_groups;
    message->chains = plan->n_chains;
    message->ranks = plan->n_ranks;
    message->microbatch = plan->microbatch;
    message->microbatches = plan->n_microbatches;
    message->blocks = plan->n_blocks;
    message->pass_microbatches = plan->pass_microbatches;
    message->recompute = (uint32_t)plan->recompute;
    message->stage_layers = build_numbers(build, plan->stage_layers, plan->n_stages);
    message->n_stage_layers = message->stage_layers ? plan->n_stages : 0;
    message->stage_recompute = build_numbers(build, plan->stage_recompute, plan->n_stages);
    message->n_stage_recompute = message->stage_recompute ? plan->n_stages : 0;
    message->stage_node = build_numbers(build, plan->stage_node, plan->n_stages + 1);
    message->n_stage_node = message->stage_node ? plan->n_stages + 1 : 0;
    message->n_train = plan->n_train;
    message->n_eval = plan->n_eval;
    message->steps_per_epoch = plan->steps_per_epoch;
    message->steps_total = plan->steps_total;
    message->step_seconds = plan->step_seconds;
    message->samples_per_second = plan->samples_per_second;
    message->idle_fraction = plan->idle_fraction;
    message->parameters = plan->parameters;
    message->fits = plan->fits;
    message->advice = build_text(build, plan->advice);
}

Gems__Plan *plan_to_proto(const struct plan *plan, int rank)
{
    struct build build = { false };
    Gems__Plan *message = build_message(&build, &gems__plan__descriptor);

    if (message) {
        head_to_proto(&build, plan, message);
        edges_to_proto(&build, plan, message);
        memory_to_proto(&build, plan, message);
        message->train = program_to_proto(&build, &plan->train, rank);
        message->train_last = program_to_proto(&build, &plan->train_last, rank);
        message->eval = program_to_proto(&build, &plan->eval, rank);
        message->eval_last = program_to_proto(&build, &plan->eval_last, rank);
    }
    return build_end(&build, message);
}
