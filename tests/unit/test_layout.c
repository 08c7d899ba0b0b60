/* A layout is run with symbols in place of numbers: every byte of memory knows
 * the hash of the expression it holds. What backward produces, for any cut of any
 * network, must be the expressions of the definition (model/backward.h), and every
 * operator must find what it needs still in place. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "model/backward.h"
#include "model/passes.h"
#include "plan/layout.h"
#include "plan/layout_grad.h"
#include "plan/make.h"
#include "plan/planner.h"
#include "tests/sim/random_graph.h"

typedef uint64_t hash;

static hash mix(hash a, hash b)
{
    hash h = (a ^ 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull + b;

    h = (h ^ (h >> 31)) * 0xc4ceb9fe1a85ec53ull;
    return (h ^ (h >> 29)) | 1;
}

/* Addition of floats is commutative, not associative. */
static hash sum(hash a, hash b)
{
    return a < b ? mix(mix(7, a), b) : mix(mix(7, b), a);
}

enum { N_SPACES = SPACE_GRAD_OUT + 1 };

struct memory {
    hash *bytes[N_SPACES]; /* one hash for each LAYOUT_ALIGN bytes */
    uint64_t size[N_SPACES];
};

static void memory_init(struct memory *m, const struct layout *layout)
{
    const uint64_t sizes[N_SPACES] = { 0, layout->slot_bytes, layout->temp_bytes,
                                       layout->grad_in_bytes, layout->grad_out_bytes };

    for (int s = 0; s < N_SPACES; s++) {
        m->size[s] = sizes[s];
        m->bytes[s] = calloc(sizes[s] / LAYOUT_ALIGN + 1, sizeof(hash));
    }
}

static void memory_fini(struct memory *m)
{
    for (int s = 0; s < N_SPACES; s++) {
        free(m->bytes[s]);
    }
}

static void write_place(struct memory *m, struct place place, uint64_t bytes, hash value)
{
    ck_assert_int_ne(place.space, SPACE_NONE);
    ck_assert_uint_eq(place.offset % LAYOUT_ALIGN, 0);
    ck_assert_uint_le(place.offset + bytes, m->size[place.space]);
    for (uint64_t at = place.offset; at < place.offset + bytes; at += LAYOUT_ALIGN) {
        m->bytes[place.space][at / LAYOUT_ALIGN] = value;
    }
}

/* The whole tensor must hold one expression. */
static hash read_place(const struct memory *m, struct place place, uint64_t bytes)
{
    hash value;

    ck_assert_int_ne(place.space, SPACE_NONE);
    ck_assert_uint_le(place.offset + bytes, m->size[place.space]);
    value = m->bytes[place.space][place.offset / LAYOUT_ALIGN];
    for (uint64_t at = place.offset; at < place.offset + bytes; at += LAYOUT_ALIGN) {
        ck_assert_uint_eq(m->bytes[place.space][at / LAYOUT_ALIGN], value);
    }
    ck_assert_uint_ne(value, 0);
    return value;
}

/* The definition: expressions of all tensors of a graph. */
struct truth {
    hash *y, *kept;
    hash *gradient; /* by node, complete */
    hash *partial;  /* by edge: gradient as it leaves edge.to_stage */
};

static hash kept_of(hash y)
{
    return mix(2, y);
}

static hash dx_of(const struct graph *graph, uint32_t node, uint32_t k, hash dy, const hash *y)
{
    const struct node *n = &graph->nodes[node];
    hash h = mix(mix(3, node), dy);

    /* both summands of ADD get the same; what an operator reads is checked apart */
    (void)y;
    return n->kind == OP_ADD ? h : mix(h, k);
}

static void truth_make(const struct graph *graph, const struct plan *plan, struct truth *t)
{
    struct backward_step *steps = NULL;
    uint32_t n = 0, stage = plan->n_stages;

    t->y = calloc(graph->n_nodes, sizeof(hash));
    t->gradient = calloc(graph->n_nodes, sizeof(hash));
    t->partial = calloc(plan->n_edges + 1, sizeof(hash));
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        t->y[i] = mix(1, i);
        for (uint32_t k = 0; k < graph->nodes[i].n_inputs; k++) {
            t->y[i] = mix(t->y[i], t->y[graph->nodes[i].inputs[k]]);
        }
    }
    ck_assert_int_eq(backward_derive(graph, 0, graph->n_nodes, &steps, &n, NULL), 0);
    for (uint32_t s = 0; s <= n; s++) {
        /* gradients as they leave the stages that are done */
        while (stage > 0 && (s == n || steps[s].node < plan->stage_node[stage - 1])) {
            stage--;
            for (uint32_t e = 0; e < plan->n_edges; e++) {
                if (plan->edges[e].to_stage == stage) {
                    t->partial[e] = t->gradient[plan->edges[e].node];
                }
            }
        }
        if (s == n) {
            break;
        }
        const struct node *node = &graph->nodes[steps[s].node];
        hash dy = node->kind == OP_LOSS ? 99 : t->gradient[steps[s].node];

        for (uint32_t k = 0; k < node->n_inputs; k++) {
            hash dx = steps[s].how[k] == GRAD_PASS ? dy : dx_of(graph, steps[s].node, k, dy, t->y);
            hash *to = &t->gradient[node->inputs[k]];

            if (steps[s].how[k] != GRAD_NONE) {
                ck_assert_int_eq(steps[s].is_first[k], *to == 0);
                *to = *to ? sum(*to, dx) : dx;
            }
        }
    }
    free(steps);
}

static void truth_fini(struct truth *t)
{
    free(t->y);
    free(t->gradient);
    free(t->partial);
}

struct trial {
    const struct graph *graph;
    const struct plan *plan;
    const struct facts *facts;
    const struct truth *truth;
    const struct layout *layout;
    struct memory memory;
    uint32_t stage;
    bool is_split;
};

static uint64_t bytes_of(const struct trial *t, uint32_t node)
{
    return t->facts->ops[node].out_bytes;
}

/* What a pass leaves in TEMP is dead for the next one. */
static void forget_temp(struct trial *t)
{
    memset(t->memory.bytes[SPACE_TEMP], 0,
           (t->memory.size[SPACE_TEMP] / LAYOUT_ALIGN + 1) * sizeof(hash));
}

static void run_forward_step(struct trial *t, const struct layout_step *step)
{
    const struct node *node = &t->graph->nodes[step->node];

    for (uint32_t k = 0; k < node->n_inputs; k++) {
        ck_assert_uint_eq(read_place(&t->memory, step->x[k], bytes_of(t, node->inputs[k])),
                          t->truth->y[node->inputs[k]]);
    }
    if (bytes_of(t, step->node)) {
        write_place(&t->memory, step->y, bytes_of(t, step->node), t->truth->y[step->node]);
    }
    if (step->kept.space != SPACE_NONE) {
        write_place(&t->memory, step->kept, t->facts->ops[step->node].kept_bytes,
                    kept_of(t->truth->y[step->node]));
    }
}

static void run_forward_steps(struct trial *t)
{
    for (uint32_t s = 0; s < t->layout->n_forward; s++) {
        run_forward_step(t, &t->layout->forward[s]);
    }
}

static void run_forward(struct trial *t)
{
    const struct layout *layout = t->layout;

    if (layout->images.space != SPACE_NONE) {
        write_place(&t->memory, layout->images, bytes_of(t, 0), t->truth->y[0]);
    }
    if (layout->labels.space != SPACE_NONE) {
        write_place(&t->memory, layout->labels, t->facts->batch * 4, 55);
    }
    for (uint32_t i = 0; i < layout->n_in; i++) {
        uint32_t node = t->plan->edges[layout->in[i].edge].node;

        write_place(&t->memory, layout->in[i].act, layout->in[i].bytes, t->truth->y[node]);
    }
    run_forward_steps(t);
    for (uint32_t i = 0; i < layout->n_out; i++) {
        const struct plan_edge *edge = &t->plan->edges[layout->out[i].edge];

        if (edge->from_stage == t->stage) {
            ck_assert_uint_eq(read_place(&t->memory, layout->out[i].act, layout->out[i].bytes),
                              t->truth->y[edge->node]);
        }
    }
    if (layout->labels.space != SPACE_NONE) {
        ck_assert_uint_eq(read_place(&t->memory, layout->labels, t->facts->batch * 4), 55);
    }
}

static void run_operator(struct trial *t, const struct layout_step *step)
{
    const struct node *node = &t->graph->nodes[step->node];
    unsigned needs = node_backward_needs(node);
    hash dy = 99, dx[MODEL_MAX_INPUTS];

    for (uint32_t k = 0; k < node->n_inputs; k++) {
        if (layout_reads_x(node) & (1u << k)) {
            ck_assert_uint_eq(read_place(&t->memory, step->x[k], bytes_of(t, node->inputs[k])),
                              t->truth->y[node->inputs[k]]);
        }
    }
    if (needs & NEED_Y) {
        ck_assert_uint_eq(read_place(&t->memory, step->y, bytes_of(t, step->node)),
                          t->truth->y[step->node]);
    }
    if (needs & NEED_KEPT && t->facts->ops[step->node].kept_bytes) {
        ck_assert_uint_eq(read_place(&t->memory, step->kept, t->facts->ops[step->node].kept_bytes),
                          kept_of(t->truth->y[step->node]));
    }
    if (node->kind != OP_LOSS) {
        dy = read_place(&t->memory, step->dy, bytes_of(t, step->node));
        ck_assert_uint_eq(dy, t->truth->gradient[step->node]);
    }
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        dx[k] = dx_of(t->graph, step->node, k, dy, t->truth->y);
        if (step->dx[k].space == SPACE_NONE) {
            continue;
        }
        write_place(&t->memory, step->dx[k], bytes_of(t, node->inputs[k]), dx[k]);
        if (node->kind != OP_ADD && node->kind != OP_RELU && node->kind != OP_LOSS) {
            ck_assert_uint_eq(read_place(&t->memory, step->dy, bytes_of(t, step->node)), dy);
        }
    }
}

/* The weight half reads what the whole would. */
static void run_weight(struct trial *t, const struct layout_step *step)
{
    struct layout_step reads = *step;

    ck_assert(step->kind == STEP_BACKWARD_WEIGHT);
    ck_assert_int_eq(step->dy.space, SPACE_SLOT);
    for (uint32_t k = 0; k < MODEL_MAX_INPUTS; k++) {
        ck_assert_int_eq(reads.dx[k].space, SPACE_NONE);
    }
    run_operator(t, &reads);
}

static void run_weights(struct trial *t)
{
    forget_temp(t);
    if (t->plan->stage_recompute[t->stage] == RECOMPUTE_ALL) {
        run_forward_steps(t);
    }
    for (uint32_t s = 0; s < t->layout->n_weight; s++) {
        const struct layout_step *step = &t->layout->weight[s];

        if (step->kind == STEP_REBUILD) {
            run_forward_step(t, step);
        } else {
            run_weight(t, step);
        }
    }
}

static void run_backward(struct trial *t)
{
    const struct layout *layout = t->layout;

    forget_temp(t);
    if (t->plan->stage_recompute[t->stage] == RECOMPUTE_ALL) {
        run_forward_steps(t);
    }
    for (uint32_t i = 0; i < layout->n_out; i++) {
        if (layout->out[i].grad.space != SPACE_NONE) {
            ck_assert_int_eq(layout->out[i].grad.space, SPACE_GRAD_IN);
            write_place(&t->memory, layout->out[i].grad, layout->out[i].bytes,
                        t->truth->partial[layout->out[i].edge]);
        }
    }
    for (uint32_t s = 0; s < layout->n_backward; s++) {
        const struct layout_step *step = &layout->backward[s];
        uint64_t bytes = bytes_of(t, step->node);

        if (step->kind == STEP_BACKWARD || step->kind == STEP_BACKWARD_INPUT) {
            ck_assert_int_eq(step->kind == STEP_BACKWARD, !t->is_split);
            run_operator(t, step);
        } else if (step->kind == STEP_REBUILD) {
            run_forward_step(t, step);
        } else if (step->kind == STEP_ADD) {
            write_place(&t->memory, step->dx[0], bytes,
                        sum(read_place(&t->memory, step->x[0], bytes),
                            read_place(&t->memory, step->x[1], bytes)));
        } else {
            ck_assert_int_eq(step->kind, STEP_COPY);
            write_place(&t->memory, step->dx[0], bytes, read_place(&t->memory, step->x[0], bytes));
        }
    }
    for (uint32_t i = 0; i < layout->n_in; i++) {
        if (layout->in[i].grad.space != SPACE_NONE) {
            ck_assert_int_eq(layout->in[i].grad.space, SPACE_GRAD_OUT);
            ck_assert_uint_eq(read_place(&t->memory, layout->in[i].grad, layout->in[i].bytes),
                              t->truth->partial[layout->in[i].edge]);
        }
    }
}

/* Every operator with weights or a gradient to write runs exactly once. */
static void check_coverage(const struct trial *t)
{
    struct backward_step *visits = NULL;
    uint32_t n = 0, *n_runs = calloc(t->graph->n_nodes, sizeof *n_runs);
    uint32_t *n_weights = calloc(t->graph->n_nodes, sizeof *n_weights);

    ck_assert_int_eq(backward_derive(t->graph, t->plan->stage_node[t->stage],
                                     t->plan->stage_node[t->stage + 1], &visits, &n, NULL),
                     0);
    for (uint32_t s = 0; s < t->layout->n_backward; s++) {
        enum step_kind kind = t->layout->backward[s].kind;

        n_runs[t->layout->backward[s].node] += kind == STEP_BACKWARD || kind == STEP_BACKWARD_INPUT;
    }
    for (uint32_t s = 0; s < t->layout->n_weight; s++) {
        n_weights[t->layout->weight[s].node] += t->layout->weight[s].kind == STEP_BACKWARD_WEIGHT;
    }
    for (uint32_t i = 0; i < n; i++) {
        bool is_run = visits[i].has_weights && !t->is_split;

        for (uint32_t k = 0; k < t->graph->nodes[visits[i].node].n_inputs; k++) {
            is_run = is_run || visits[i].how[k] == GRAD_WRITE;
        }
        ck_assert_uint_eq(n_runs[visits[i].node], is_run);
        ck_assert_uint_eq(n_weights[visits[i].node], visits[i].has_weights && t->is_split);
        n_runs[visits[i].node] = n_weights[visits[i].node] = 0;
    }
    for (uint32_t i = 0; i < t->graph->n_nodes; i++) {
        ck_assert_uint_eq(n_runs[i], 0);
        ck_assert_uint_eq(n_weights[i], 0);
    }
    free(n_weights);
    free(visits);
    free(n_runs);
}

/* Random layers to random stages; only what layouts read is filled in. */
static void cut_at_random(struct draw *draw, const struct graph *graph, struct job_spec *spec,
                          struct plan *ret_plan)
{
    uint32_t n_stages = draw_between(draw, 1, graph->n_layers < 6 ? graph->n_layers : 6);
    uint32_t counts[6], left = graph->n_layers - n_stages;
    struct plan_device devices[6] = { 0 };
    struct fact_set facts = { 0 };
    struct make_input input = {
        .graph = graph,
        .spec = spec,
        .facts = &facts,
        .devices = devices,
        .schedule = SCHEDULE_LAYER,
        .n_stages = n_stages,
        .counts = counts,
        .is_trial = true,
    };
    struct gems_error err = { 0 };

    for (uint32_t s = 0; s < n_stages; s++) {
        uint32_t more = s + 1 == n_stages ? left : draw_between(draw, 0, left);

        counts[s] = 1 + more;
        left -= more;
    }
    spec->train.batch = spec->parallel.microbatch = draw_between(draw, 1, 3);
    spec->parallel.gradient_blocks = 2;
    facts.n_sizes = 1;
    random_facts(graph, spec->parallel.microbatch, &facts.sizes[0]);
    ck_assert_msg(plan_make(&input, ret_plan, &err) == GEMS_OK, "%s", err.text);
    fact_set_fini(&facts);
}

static void run_stage(struct trial *t, bool is_eval)
{
    struct layout layout;

    ck_assert_int_eq(layout_make(t->graph, t->plan, t->stage, t->facts, is_eval, &layout, NULL), 0);
    t->layout = &layout;
    memory_init(&t->memory, &layout);
    run_forward(t);
    if (!is_eval) {
        run_backward(t);
        if (t->is_split) {
            run_weights(t);
        }
        check_coverage(t);
    } else {
        ck_assert_uint_eq(layout.n_backward + layout.n_weight, 0);
    }
    memory_fini(&t->memory);
    layout_fini(&layout);
}

static void run_trial(uint64_t seed)
{
    struct draw draw = { seed, 0 };
    struct job_spec spec;
    struct graph graph;
    struct plan plan;
    struct truth truth = { 0 };
    struct facts facts;

    spec_init(&spec);
    random_graph(&draw, &graph);
    cut_at_random(&draw, &graph, &spec, &plan);
    random_facts(&graph, plan.microbatch, &facts);
    truth_make(&graph, &plan, &truth);
    for (uint32_t i = 0; i < plan.n_stages * 7; i++) {
        struct trial t = {
            .graph = &graph, .plan = &plan, .facts = &facts, .truth = &truth, .stage = i / 7
        };

        /* evaluation, and training in halves or not with each recomputation */
        plan.schedule = i % 7 > 2 ? SCHEDULE_ZB_H1 : SCHEDULE_1F1B;
        plan.stage_recompute[t.stage] = i % 7 % 3;
        t.is_split = i % 7 > 2 && i % 7 < 6;
        run_stage(&t, i % 7 == 6);
    }
    truth_fini(&truth);
    facts_fini(&facts);
    plan_fini(&plan);
    graph_fini(&graph);
}

enum { N_TRIALS = 100, N_PARTS = 4 };

START_TEST(layout_computes_what_the_model_defines)
{
    for (int i = 0; i < N_TRIALS; i++) {
        run_trial((uint64_t)_i * N_TRIALS + (uint64_t)i);
    }
}
END_TEST

/* The rank knows the facts of its own nodes and of those whose output enters. */
START_TEST(layout_asks_for_facts_of_its_own_stage_only)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct draw draw = { seed, 0 };
        struct job_spec spec;
        struct graph graph;
        struct plan plan;
        struct facts all, own;

        spec_init(&spec);
        random_graph(&draw, &graph);
        cut_at_random(&draw, &graph, &spec, &plan);
        random_facts(&graph, plan.microbatch, &all);
        for (uint32_t stage = 0; stage < plan.n_stages; stage++) {
            struct layout with_all, with_own;

            random_facts(&graph, plan.microbatch, &own);
            for (uint32_t i = 0; i < graph.n_nodes; i++) {
                bool is_needed = i >= plan.stage_node[stage] && i < plan.stage_node[stage + 1];

                for (uint32_t e = 0; e < plan.n_edges; e++) {
                    is_needed =
                        is_needed || (plan.edges[e].node == i && plan.edges[e].to_stage == stage);
                }
                if (!is_needed) {
                    own.ops[i] = (struct op_facts){ 0 };
                }
            }
            ck_assert_int_eq(layout_make(&graph, &plan, stage, &all, false, &with_all, NULL), 0);
            ck_assert_int_eq(layout_make(&graph, &plan, stage, &own, false, &with_own, NULL), 0);
            ck_assert_uint_eq(with_all.slot_bytes, with_own.slot_bytes);
            ck_assert_uint_eq(with_all.temp_bytes, with_own.temp_bytes);
            ck_assert_uint_eq(with_all.grad_in_bytes, with_own.grad_in_bytes);
            ck_assert_uint_eq(with_all.grad_out_bytes, with_own.grad_out_bytes);
            ck_assert_uint_eq(with_all.scratch_bytes, with_own.scratch_bytes);
            layout_fini(&with_all);
            layout_fini(&with_own);
            facts_fini(&own);
        }
        facts_fini(&all);
        plan_fini(&plan);
        graph_fini(&graph);
    }
}
END_TEST

/* Bytes of a plain back end in fp32: tensors without padding, three doubles a channel
 * kept by batch-norms, masks of a byte an element if it has them. */
static void plain_facts(const struct graph *graph, bool has_masks, struct facts *ret_facts)
{
    *ret_facts = (struct facts){ .batch = 1, .n_nodes = graph->n_nodes };
    ret_facts->ops = calloc(graph->n_nodes, sizeof *ret_facts->ops);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct node *node = &graph->nodes[i];
        struct op_facts *op = &ret_facts->ops[i];

        op->out_bytes = node->kind == OP_LOSS ? 0 : 4 * shape_count(&node->out);
        if (node->kind == OP_BATCHNORM) {
            op->kept_bytes = 24 * node->out.c + (has_masks ? shape_count(&node->out) : 0);
        }
    }
}

static uint64_t slot_of_resnet(enum recompute recompute, uint32_t side, bool has_masks,
                               uint64_t *ret_temp)
{
    struct zoo_spec spec = { .zoo = "resnet",
                             .version = 2,
                             .depth = 110,
                             .classes = 10,
                             .channels = 3,
                             .height = side,
                             .width = side };
    struct plan plan = { .schedule = SCHEDULE_SINGLE, .n_stages = 1, .n_groups = 1, .n_chains = 1 };
    struct layout layout;
    struct facts facts;
    struct graph graph;
    uint64_t bytes;

    ck_assert_int_eq(zoo_build(&spec, &graph, NULL), 0);
    ck_assert_int_eq(graph_fuse(&graph, NULL), 0);
    plan.stage_node[1] = graph.n_nodes;
    plan.stage_recompute[0] = recompute;
    plain_facts(&graph, has_masks, &facts);
    ck_assert_int_eq(layout_make(&graph, &plan, 0, &facts, false, &layout, NULL), 0);
    bytes = layout.slot_bytes;
    *ret_temp = layout.temp_bytes;
    layout_fini(&layout);
    facts_fini(&facts);
    graph_fini(&graph);
    return bytes;
}

/* The design's promise: 9,500 S^2 bytes an image, where a framework that keeps what every
 * operator reads holds 18,637 S^2; with masks or without. */
START_TEST(cheap_recomputation_halves_what_resnet_110_keeps)
{
    uint32_t side = _i ? 256 : 64;
    uint64_t area = (uint64_t)side * side, temp_none, temp_cheap, temp_all;
    uint64_t none = slot_of_resnet(RECOMPUTE_NONE, side, true, &temp_none);

    ck_assert_uint_ge(slot_of_resnet(RECOMPUTE_NONE, side, false, &temp_none), 18000 * area);
    ck_assert_uint_le(none, 21500 * area);
    ck_assert_uint_le(slot_of_resnet(RECOMPUTE_CHEAP, side, true, &temp_cheap), 9500 * area);
    /* what is made again is held for a moment */
    ck_assert_uint_le(temp_cheap, temp_none + 800 * area);
    ck_assert_uint_le(slot_of_resnet(RECOMPUTE_ALL, side, true, &temp_all), 20 * area);
    ck_assert_uint_ge(temp_all, none * 9 / 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layout");
    TCase *tcase = tcase_create("symbols");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, layout_computes_what_the_model_defines, 0, N_PARTS);
    tcase_add_test(tcase, layout_asks_for_facts_of_its_own_stage_only);
    tcase_add_loop_test(tcase, cheap_recomputation_halves_what_resnet_110_keeps, 0, 2);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
