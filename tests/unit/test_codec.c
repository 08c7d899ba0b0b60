/* The codec: what goes in comes out, and nothing out of range comes in. */
#include "proto/codec.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/rng.h"
#include "model/passes.h"
#include "proto/messages.h"
#include "tests/lib/run_suite.h"

static uint64_t random_at; /* position in the stream of random numbers */

static uint32_t below(uint32_t n)
{
    return (uint32_t)rng_below(42, rng_stream(RNG_SYNTHETIC, 0), random_at++, n);
}

static double unit(void)
{
    return rng_unit(42, rng_stream(RNG_SYNTHETIC, 0), random_at++);
}

/* Packs and unpacks, as between two processes; the message is freed. */
static void *through_wire(ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    uint8_t *bytes = NULL;
    size_t n = 0;
    ProtobufCMessage *copy;

    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(proto_pack(message, &bytes, &n, NULL), GEMS_OK);
    msg_free(message);
    copy = protobuf_c_message_unpack(descriptor, NULL, n, bytes);
    ck_assert_ptr_nonnull(copy);
    free(bytes);
    return copy;
}

/* ---- spec ---- */

static void fill_spec(struct job_spec *spec)
{
    memset(spec, 0, sizeof *spec); /* padding too: compared as bytes */
    *spec = (struct job_spec){
        .name = "tiles",
        .model = { .zoo = "resnet", .version = 2, .depth = 110, .layers = 3, .filters = 4, .n_hidden = 2,
                   .hidden = { 512, 256 }, .classes = 10, .channels = 3, .height = 32, .width = 48 },
        .data = { .format = DATA_IDX, .train = "/data/train", .eval = "/data/eval", .height = 32,
                  .width = 48, .channels = 3, .samples = 9, .eval_samples = 8, .is_flip = true,
                  .is_shift = true, .mean = 0.25, .std = 0.5 },
        .train = { .epochs = 7, .batch = 128, .optimizer = OPTIMIZER_SGD, .lr = 0.1, .momentum = 0.9,
                   .weight_decay = 1e-4, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-7, .is_nesterov = true,
                   .schedule = LR_STEP, .warmup_epochs = 1.5, .lr_step_epochs = 3, .lr_gamma = 0.5,
                   .precision = PRECISION_FP32, .seed = 1234567890123456789 },
        .parallel = { .schedule = SCHEDULE_GPIPE, .stages = 3, .groups = 1, .chunks = 2,
                      .gradient_blocks = 4, .microbatch = 16, .replications = 2,
                      .recompute = RECOMPUTE_AUTO, .n_balance = 3, .balance = { 9, 10, 11 } },
        .resources = { .devices_min = 3, .devices_max = 4, .kind = DEVICE_CPU, .memory_bytes = 1ull << 34 },
        .checkpoint_every_steps = 500,
        .checkpoint_every_epochs = 2,
        .checkpoint_keep = 3,
        .checkpoint_keep_best = 1,
        .limit_seconds = 14400,
        .max_restarts = 5,
    };
}

static bool spec_survives(const struct job_spec *spec, struct gems_error *err)
{
    Gems__JobSpec *message = through_wire(&spec_to_proto(spec)->base);
    struct job_spec copy;
    int st = spec_from_proto(message, &copy, err);

    msg_free(&message->base);
    if (st < 0) {
        static const struct job_spec zero;

        ck_assert_mem_eq(&copy, &zero, sizeof copy);
        return false;
    }
    ck_assert_mem_eq(&copy, spec, sizeof copy);
    return true;
}

START_TEST(spec_survives_the_wire)
{
    struct job_spec spec;
    struct gems_error err = { 0 };

    fill_spec(&spec);
    ck_assert_msg(spec_survives(&spec, &err), "%s", err.text);
}
END_TEST

START_TEST(random_specs_survive_the_wire)
{
    int n_good = 0;

    for (int round = 0; round < 2000; round++) {
        struct job_spec spec;

        fill_spec(&spec);
        spec.model.n_hidden = below(ZOO_MAX_HIDDEN + 1);
        for (uint32_t i = 0; i < ZOO_MAX_HIDDEN; i++) {
            spec.model.hidden[i] = i < spec.model.n_hidden ? 1 + below(4096) : 0;
        }
        spec.data.format = (enum data_format)below(DATA_IMAGEFOLDER + 1);
        spec.data.mean = unit();
        spec.data.samples = 1 + below(1000000);
        spec.data.is_flip = below(2);
        spec.train.epochs = below(3);
        spec.train.steps = spec.train.epochs ? 0 : 1 + below(1000);
        spec.train.optimizer = (enum optimizer)below(OPTIMIZER_ADAMW + 1);
        spec.train.lr = unit();
        spec.train.schedule = (enum lr_schedule)below(LR_COSINE + 1);
        spec.train.seed = rng_u64(1, 2, (uint64_t)round);
        spec.parallel.schedule = (enum schedule_kind)below(SCHEDULE_COUNT);
        spec.parallel.n_balance = below(SPEC_MAX_STAGES + 1);
        spec.parallel.stages = 0;
        for (uint32_t i = 0; i < SPEC_MAX_STAGES; i++) {
            spec.parallel.balance[i] = i < spec.parallel.n_balance ? 1 + below(100) : 0;
        }
        spec.resources.devices_min = below(4);
        n_good += spec_survives(&spec, NULL) == (spec_check(&spec, NULL) == GEMS_OK);
    }
    ck_assert_int_eq(n_good, 2000); /* refused exactly where spec_check refuses */
}
END_TEST

static void set_text(char **field, size_t n)
{
    free(*field == (char *)protobuf_c_empty_string ? NULL : *field);
    *field = malloc(n + 1);
    memset(*field, '/', n);
    (*field)[n] = '\0';
}

/* Each breaks one thing in a good message. */
static const char *break_spec(Gems__JobSpec *m, int which)
{
    switch (which) {
    case 0:
        set_text(&m->name, SPEC_NAME_BYTES);
        return "field name: 64 bytes, at most 63";
    case 1:
        set_text(&m->model->zoo, 32);
        return "field zoo";
    case 2:
        set_text(&m->data->train, SPEC_PATH_BYTES);
        return "field train: 1024 bytes";
    case 3:
        set_text(&m->data->eval, SPEC_PATH_BYTES);
        return "field eval";
    case 4:
        m->data->format = DATA_IMAGEFOLDER + 1;
        return "JobSpec.data, field format";
    case 5:
        m->train->optimizer = UINT32_MAX;
        return "JobSpec.train, field optimizer";
    case 6:
        m->train->schedule = LR_COSINE + 1;
        return "JobSpec.train, field schedule";
    case 7:
        m->train->precision = 9;
        return "field precision";
    case 8:
        m->train->lr = NAN;
        return "field lr: not a finite number";
    case 9:
        m->train->weight_decay = INFINITY;
        return "field weight_decay";
    case 10:
        m->parallel->schedule = SCHEDULE_COUNT;
        return "JobSpec.parallel, field schedule";
    case 11:
        m->parallel->recompute = RECOMPUTE_AUTO + 1;
        return "field recompute";
    case 12:
        m->resources->kind = DEVICE_CUDA + 1;
        return "field kind";
    case 13:
        m->data->std = -INFINITY;
        return "field std";
    case 14:
        m->train->batch = 0; /* spec_check's */
        return "train.batch";
    case 15:
        m->parallel->balance = realloc(m->parallel->balance, (SPEC_MAX_STAGES + 1) * sizeof(uint32_t));
        memset(m->parallel->balance, 1, (SPEC_MAX_STAGES + 1) * sizeof(uint32_t));
        m->parallel->n_balance = SPEC_MAX_STAGES + 1;
        return "field balance: 257, at most 256";
    case 16:
        m->model->hidden = realloc(m->model->hidden, (ZOO_MAX_HIDDEN + 1) * sizeof(uint32_t));
        memset(m->model->hidden, 1, (ZOO_MAX_HIDDEN + 1) * sizeof(uint32_t));
        m->model->n_hidden = ZOO_MAX_HIDDEN + 1;
        return "field hidden: 17, at most 16";
    case 17:
        gems__train_spec__free_unpacked(m->train, NULL);
        m->train = NULL;
        return "JobSpec, field train: missing";
    case 18:
        gems__resource_spec__free_unpacked(m->resources, NULL);
        m->resources = NULL;
        return "JobSpec, field resources: missing";
    default:
        return NULL;
    }
}

START_TEST(spec_out_of_range_is_refused_by_field)
{
    struct gems_error err = { 0 };
    struct job_spec spec;
    Gems__JobSpec *message;
    const char *why;

    fill_spec(&spec);
    message = spec_to_proto(&spec);
    why = break_spec(message, _i);
    ck_assert_ptr_nonnull(why);
    ck_assert_int_eq(spec_from_proto(message, &spec, &err), GEMS_E_INVALID);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' is not in '%s'", why, err.text);
    ck_assert_str_eq(spec.name, "");
    msg_free(&message->base);
}
END_TEST

/* ---- graph ---- */

static void make_graph_of(struct graph *graph, const char *name, uint32_t depth, bool is_fused)
{
    struct zoo_spec zoo = { .version = 1, .depth = depth, .layers = 3, .filters = 16,
                            .classes = 10, .channels = 3, .height = 32, .width = 32 };
    struct gems_error err = { 0 };

    strcpy(zoo.zoo, name);

    ck_assert_msg(zoo_build(&zoo, graph, &err) == GEMS_OK, "%s", err.text);
    if (is_fused) {
        ck_assert_int_eq(graph_fuse(graph, NULL), GEMS_OK);
    }
}

static void make_graph(struct graph *graph, bool is_fused)
{
    make_graph_of(graph, "resnet", 20, is_fused);
}

static void same_node(const struct node *a, const struct node *b)
{
    ck_assert_int_eq(a->kind, b->kind);
    ck_assert_str_eq(a->name, b->name);
    ck_assert_uint_eq(a->layer, b->layer);
    ck_assert_uint_eq(a->n_inputs, b->n_inputs);
    for (uint32_t i = 0; i < a->n_inputs; i++) {
        ck_assert_uint_eq(a->inputs[i], b->inputs[i]);
    }
    ck_assert_uint_eq(a->out.c, b->out.c);
    ck_assert_uint_eq(a->out.h, b->out.h);
    ck_assert_uint_eq(a->out.w, b->out.w);
    ck_assert_int_eq(a->out.is_flat, b->out.is_flat);
    ck_assert_uint_eq(a->k, b->k);
    ck_assert_uint_eq(a->r, b->r);
    ck_assert_uint_eq(a->s, b->s);
    ck_assert_uint_eq(a->stride_h, b->stride_h);
    ck_assert_uint_eq(a->stride_w, b->stride_w);
    ck_assert_uint_eq(a->pad_h, b->pad_h);
    ck_assert_uint_eq(a->pad_w, b->pad_w);
    ck_assert_int_eq(a->has_bias, b->has_bias);
    ck_assert_int_eq(a->is_relu, b->is_relu);
    ck_assert_int_eq(a->is_residual, b->is_residual);
    ck_assert(a->eps == b->eps && a->decay == b->decay && a->rate == b->rate);
}

START_TEST(graph_survives_the_wire)
{
    struct graph graph;
    struct graph copy;
    struct gems_error err = { 0 };
    Gems__Graph *message;

    if (_i < 2) {
        make_graph(&graph, _i == 1);
    } else {
        make_graph_of(&graph, _i == 2 ? "vgg" : "amoebanet-d", 11, true);
    }
    message = through_wire(&graph_to_proto(&graph)->base);
    ck_assert_msg(graph_from_proto(message, &copy, &err) == GEMS_OK, "%s", err.text);
    ck_assert_str_eq(copy.name, graph.name);
    ck_assert_uint_eq(copy.n_nodes, graph.n_nodes);
    ck_assert_uint_eq(copy.n_layers, graph.n_layers);
    ck_assert_uint_eq(copy.n_classes, graph.n_classes);
    for (uint32_t i = 0; i < graph.n_nodes; i++) {
        same_node(&graph.nodes[i], &copy.nodes[i]);
    }
    msg_free(&message->base);
    graph_fini(&graph);
    graph_fini(&copy);
}
END_TEST

static const char *break_graph(Gems__Graph *m, int which)
{
    Gems__Node *node = m->nodes[5];

    switch (which) {
    case 0:
        set_text(&m->name, MODEL_NAME_BYTES);
        return "Graph, field name";
    case 1:
        node->kind = OP_KIND_COUNT;
        return "Node, field kind";
    case 2:
        set_text(&node->name, MODEL_NAME_BYTES);
        return "Node, field name";
    case 3:
        node->h++;
        return "its shape does not follow";
    case 4:
        m->layers++;
        return "field layers";
    case 5:
        m->nodes[2]->eps = NAN;
        return "field eps";
    case 6:
        m->nodes[1]->k = UINT32_MAX;
        return "field k";
    case 7:
        node->inputs[0] = 5; /* reads itself */
        return "";
    case 8:
        node->n_inputs = 0;
        return "";
    case 9:
        m->nodes[1]->stride_h = 0;
        return "";
    default:
        return NULL;
    }
}

START_TEST(graph_out_of_range_is_refused)
{
    struct graph graph;
    struct graph copy;
    struct gems_error err = { 0 };
    Gems__Graph *message;
    const char *why;

    make_graph(&graph, false);
    message = graph_to_proto(&graph);
    why = break_graph(message, _i);
    ck_assert_ptr_nonnull(why);
    ck_assert_int_eq(graph_from_proto(message, &copy, &err), GEMS_E_INVALID);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' is not in '%s'", why, err.text);
    ck_assert_ptr_null(copy.nodes);
    msg_free(&message->base);
    graph_fini(&graph);
}
END_TEST

/* ---- facts ---- */

START_TEST(facts_survive_the_wire_and_are_checked)
{
    struct op_facts ops[2] = { { 1, 2, 3, 4, 5, 0.5, 0.25, 0.125 }, { .out_bytes = 1ull << 48 } };
    struct fact_set facts = { .n_sizes = 2, .sizes = { { 32, 2, ops, true, false }, { 7, 0, NULL, false, true } },
                              .n_train = 1000, .n_eval = 100 };
    struct gems_error err = { 0 };
    struct fact_set copy;
    Gems__FactSet *message = through_wire(&facts_to_proto(&facts)->base);

    ck_assert_msg(facts_from_proto(message, &copy, &err) == GEMS_OK, "%s", err.text);
    ck_assert_uint_eq(copy.n_sizes, 2);
    ck_assert_uint_eq(copy.n_train, 1000);
    ck_assert_uint_eq(copy.n_eval, 100);
    ck_assert_uint_eq(copy.sizes[0].batch, 32);
    ck_assert_uint_eq(copy.sizes[0].n_nodes, 2);
    ck_assert_mem_eq(copy.sizes[0].ops, ops, sizeof ops);
    ck_assert(copy.sizes[0].is_measured && !copy.sizes[0].is_exact);
    ck_assert_uint_eq(copy.sizes[1].batch, 7);
    ck_assert(!copy.sizes[1].is_measured && copy.sizes[1].is_exact);
    fact_set_fini(&copy);

    message->sizes[0]->ops[1]->scratch_bytes = (1ull << 48) + 1;
    ck_assert_int_eq(facts_from_proto(message, &copy, &err), GEMS_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "field scratch_bytes"));
    ck_assert_uint_eq(copy.n_sizes, 0);
    message->sizes[0]->ops[1]->scratch_bytes = 0;
    message->sizes[0]->ops[0]->forward_seconds = -1;
    ck_assert_int_eq(facts_from_proto(message, &copy, &err), GEMS_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "field forward_seconds: negative"));
    message->sizes[0]->ops[0]->forward_seconds = NAN;
    ck_assert_int_eq(facts_from_proto(message, &copy, &err), GEMS_E_INVALID);
    msg_free(&message->base);
}
END_TEST

/* ---- plan ---- */

static void fill_program(struct program *program, const struct plan *plan, bool is_eval)
{
    ck_assert_int_eq(program_init(program, plan->n_ranks, NULL), GEMS_OK);
    program->is_eval = is_eval;
    program->n_microbatches = plan->n_microbatches;
    program->microbatch = plan->microbatch;
    program->last_microbatch = 1 + below(plan->microbatch);
    for (uint32_t rank = 0; rank < plan->n_ranks; rank++) {
        for (uint32_t n = below(60); n > 0; n--) {
            struct instr instr = {
                .op = (uint8_t)below(INSTR_OP_COUNT),
                .chain = (uint8_t)below(plan->n_chains),
                .stage = (uint16_t)below(plan->n_stages),
                .segment = (uint16_t)below(UINT16_MAX + 1),
                .peer = (uint16_t)below(plan->n_ranks),
                .microbatch = below(plan->n_microbatches),
                .edge = below(plan->n_edges),
                .slot = (uint16_t)below(UINT16_MAX + 1),
                .block = (uint16_t)below(UINT16_MAX + 1),
                .is_first = (uint8_t)below(2),
            };

            ck_assert_int_eq(program_add(program, rank, &instr, NULL), GEMS_OK);
        }
    }
}

static void fill_plan(struct plan *plan)
{
    memset(plan, 0, sizeof *plan);
    plan->schedule = (enum schedule_kind)below(SCHEDULE_COUNT);
    plan->n_stages = 2 + below(6);
    plan->n_groups = 1 + below(2);
    plan->n_chains = 1 + below(2);
    plan->n_ranks = plan->n_stages * plan->n_groups;
    plan->microbatch = 1 + below(64);
    plan->n_microbatches = 1 + below(64);
    plan->n_blocks = 1 + below(8);
    plan->pass_microbatches = below(9);
    plan->recompute = (enum recompute)below(RECOMPUTE_AUTO + 1);
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        plan->stage_layers[i] = 1 + below(10);
        plan->stage_recompute[i] = below(RECOMPUTE_AUTO);
        plan->stage_node[i + 1] = plan->stage_node[i] + 1 + below(30);
    }
    plan->n_edges = plan->n_stages - 1;
    plan->edges = calloc(plan->n_edges, sizeof *plan->edges);
    for (uint32_t i = 0; i < plan->n_edges; i++) {
        plan->edges[i] = (struct plan_edge){ plan->stage_node[i + 1] - 1, (uint16_t)i, (uint16_t)(i + 1) };
    }
    plan->n_train = below(100000);
    plan->n_eval = below(100000);
    plan->steps_per_epoch = below(1000);
    plan->steps_total = below(100000);
    fill_program(&plan->train, plan, false);
    if (below(2)) {
        fill_program(&plan->train_last, plan, false);
    }
    if (below(2)) {
        fill_program(&plan->eval, plan, true);
        fill_program(&plan->eval_last, plan, true);
    }
    plan->memory = calloc(plan->n_ranks, sizeof *plan->memory);
    for (uint32_t i = 0; i < plan->n_ranks; i++) {
        plan->memory[i] = (struct rank_memory){ below(1 << 30), below(1 << 30), below(1 << 30), below(1 << 30),
                                                below(1 << 30), below(1 << 30), below(1 << 30), 1ull << 40 };
    }
    plan->step_seconds = unit();
    plan->samples_per_second = 100 * unit();
    plan->idle_fraction = unit();
    plan->parameters = below(1 << 30);
    plan->fits = below(2);
    strcpy(plan->advice, "batch 2 -> 1 would fit");
}

static void same_program(const struct program *a, const struct program *b, int rank)
{
    ck_assert_uint_eq(a->n_ranks, b->n_ranks);
    ck_assert_int_eq(a->is_eval, b->is_eval);
    ck_assert_uint_eq(a->n_microbatches, b->n_microbatches);
    ck_assert_uint_eq(a->microbatch, b->microbatch);
    ck_assert_uint_eq(a->last_microbatch, b->last_microbatch);
    for (uint32_t r = 0; r < a->n_ranks; r++) {
        if (rank >= 0 && r != (uint32_t)rank) {
            ck_assert_uint_eq(b->ranks[r].n, 0);
            continue;
        }
        ck_assert_uint_eq(a->ranks[r].n, b->ranks[r].n);
        for (uint32_t i = 0; i < a->ranks[r].n; i++) {
            const struct instr *x = &a->ranks[r].items[i];
            const struct instr *y = &b->ranks[r].items[i];

            ck_assert(x->op == y->op && x->chain == y->chain && x->stage == y->stage &&
                      x->segment == y->segment && x->peer == y->peer &&
                      x->microbatch == y->microbatch && x->edge == y->edge && x->slot == y->slot &&
                      x->block == y->block && x->is_first == y->is_first);
        }
    }
}

static void same_plan(const struct plan *a, const struct plan *b, int rank)
{
    ck_assert_int_eq(a->schedule, b->schedule);
    ck_assert_uint_eq(a->n_stages, b->n_stages);
    ck_assert_uint_eq(a->n_groups, b->n_groups);
    ck_assert_uint_eq(a->n_chains, b->n_chains);
    ck_assert_uint_eq(a->n_ranks, b->n_ranks);
    ck_assert_uint_eq(a->microbatch, b->microbatch);
    ck_assert_uint_eq(a->n_microbatches, b->n_microbatches);
    ck_assert_uint_eq(a->n_blocks, b->n_blocks);
    ck_assert_uint_eq(a->pass_microbatches, b->pass_microbatches);
    ck_assert_int_eq(a->recompute, b->recompute);
    ck_assert_mem_eq(a->stage_layers, b->stage_layers, sizeof a->stage_layers);
    ck_assert_mem_eq(a->stage_recompute, b->stage_recompute, sizeof a->stage_recompute);
    ck_assert_mem_eq(a->stage_node, b->stage_node, sizeof a->stage_node);
    ck_assert_uint_eq(a->n_edges, b->n_edges);
    ck_assert_mem_eq(a->edges, b->edges, a->n_edges * sizeof *a->edges);
    ck_assert_uint_eq(a->n_train, b->n_train);
    ck_assert_uint_eq(a->n_eval, b->n_eval);
    ck_assert_uint_eq(a->steps_per_epoch, b->steps_per_epoch);
    ck_assert_uint_eq(a->steps_total, b->steps_total);
    ck_assert_mem_eq(a->memory, b->memory, a->n_ranks * sizeof *a->memory);
    ck_assert(a->step_seconds == b->step_seconds && a->samples_per_second == b->samples_per_second &&
              a->idle_fraction == b->idle_fraction);
    ck_assert_uint_eq(a->parameters, b->parameters);
    ck_assert_int_eq(a->fits, b->fits);
    ck_assert_str_eq(a->advice, b->advice);
    same_program(&a->train, &b->train, rank);
    same_program(&a->train_last, &b->train_last, rank);
    same_program(&a->eval, &b->eval, rank);
    same_program(&a->eval_last, &b->eval_last, rank);
}

START_TEST(random_plans_survive_the_wire)
{
    for (int round = 0; round < 200; round++) {
        struct gems_error err = { 0 };
        struct plan plan;
        struct plan copy;
        Gems__Plan *message;
        int rank;

        fill_plan(&plan);
        rank = round % 2 ? -1 : (int)below(plan.n_ranks);
        message = through_wire(&plan_to_proto(&plan, rank)->base);
        ck_assert_msg(plan_from_proto(message, &copy, &err) == GEMS_OK, "%s", err.text);
        same_plan(&plan, &copy, rank);
        msg_free(&message->base);
        plan_fini(&plan);
        plan_fini(&copy);
    }
}
END_TEST

static const char *break_plan(Gems__Plan *m, int which)
{
    Gems__InstrList *list = m->train->lists[0];

    switch (which) {
    case 0:
        m->schedule = SCHEDULE_COUNT;
        return "Plan, field schedule";
    case 1:
        m->stages = SPEC_MAX_STAGES + 1;
        return "Plan, field stages";
    case 2:
        m->chains = 0;
        return "at least one";
    case 3:
        m->ranks++;
        return "Plan, field ranks";
    case 4:
        m->n_stage_node--;
        return "field stage_node: 3 values, 4 expected";
    case 5:
        m->stage_node[1] = 0;
        return "stages out of order";
    case 6:
        m->edges[0]->to_stage = 3;
        return "PlanEdge, field to_stage";
    case 7:
        m->edges[0]->from_stage = m->edges[0]->to_stage;
        return "PlanEdge, field from_stage";
    case 8:
        m->edges[0]->node = m->stage_node[3];
        return "PlanEdge, field node";
    case 9:
        m->step_seconds = NAN;
        return "field step_seconds";
    case 10:
        set_text(&m->advice, 512);
        return "field advice";
    case 11:
        list->n_slot--;
        return "InstrList, field slot";
    case 12:
        list->op[0] = INSTR_OP_COUNT;
        return "InstrList, field op";
    case 13:
        list->chain[0] = 1;
        return "InstrList, field chain";
    case 14:
        list->stage[0] = 3;
        return "InstrList, field stage";
    case 15:
        list->peer[1] = 3; /* of a send */
        return "InstrList, field peer";
    case 16:
        list->edge[1] = 2;
        return "InstrList, field edge";
    case 17:
        list->slot[0] = UINT16_MAX + 1;
        return "InstrList, field slot";
    case 18:
        list->first[0] = 2;
        return "InstrList, field first";
    case 19:
        m->train->ranks = 2;
        return "Program, field ranks";
    case 20:
        m->recompute = RECOMPUTE_AUTO + 1;
        return "Plan, field recompute";
    case 21:
        list->block[0] = UINT32_MAX;
        return "InstrList, field block";
    case 22:
        m->ranks = UINT32_MAX;
        return "Plan, field ranks";
    default:
        return NULL;
    }
}

START_TEST(plan_out_of_range_is_refused_by_field)
{
    struct instr forward = { .op = INSTR_FORWARD };
    struct instr send = { .op = INSTR_SEND_ACT, .peer = 1 };
    struct plan_edge edges[2] = { { 4, 0, 1 }, { 9, 1, 2 } };
    struct rank_memory memory[3] = { { 0 } };
    struct plan plan = { .n_stages = 3, .n_groups = 1, .n_chains = 1, .n_ranks = 3, .n_edges = 2,
                         .edges = edges, .memory = memory, .stage_node = { 0, 5, 10, 15 },
                         .stage_layers = { 1, 1, 1 } };
    struct gems_error err = { 0 };
    struct plan copy;
    Gems__Plan *message;
    const char *why;

    ck_assert_int_eq(program_init(&plan.train, 3, NULL), GEMS_OK);
    ck_assert_int_eq(program_add(&plan.train, 0, &forward, NULL), GEMS_OK);
    ck_assert_int_eq(program_add(&plan.train, 0, &send, NULL), GEMS_OK);
    message = plan_to_proto(&plan, -1);
    ck_assert_msg(plan_from_proto(message, &copy, &err) == GEMS_OK, "%s", err.text);
    plan_fini(&copy);
    why = break_plan(message, _i);
    ck_assert_ptr_nonnull(why);
    ck_assert_int_eq(plan_from_proto(message, &copy, &err), GEMS_E_INVALID);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' is not in '%s'", why, err.text);
    ck_assert_ptr_null(copy.train.ranks);
    ck_assert_ptr_null(copy.edges);
    message->n_stage_node = 4;
    if (message->train->lists[0]->n_slot == 1) {
        message->train->lists[0]->n_slot = 2;
    }
    msg_free(&message->base);
    program_fini(&plan.train);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codec");
    TCase *tcase = tcase_create("limits");

    suite_case(suite, "spec", spec_survives_the_wire);
    suite_case(suite, "random specs", random_specs_survive_the_wire);
    suite_case(suite, "facts", facts_survive_the_wire_and_are_checked);
    suite_case(suite, "random plans", random_plans_survive_the_wire);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, spec_out_of_range_is_refused_by_field, 0, 19);
    tcase_add_loop_test(tcase, graph_survives_the_wire, 0, 4);
    tcase_add_loop_test(tcase, graph_out_of_range_is_refused, 0, 10);
    tcase_add_loop_test(tcase, plan_out_of_range_is_refused_by_field, 0, 23);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
