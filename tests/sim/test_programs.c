/* Any job gives programs that are proven, never stop, and stay within the planned
 * memory whatever the machine's times; and whatever is broken in a program is
 * found by the checker. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "plan/check.h"
#include "plan/layout_grad.h"
#include "plan/match.h"
#include "plan/planner.h"
#include "plan/post.h"
#include "plan/sim.h"
#include "tests/sim/random_job.h"

enum { N_JOBS = 500, N_PARTS = 8, MAX_BUFFERS = 64 };

struct trial {
    struct random_job job;
    struct plan plan;
    struct memory_map maps[RANDOM_MAX_DEVICES];
    bool *has_gradient;
};

static void trial_init(struct trial *t, uint64_t seed)
{
    struct gems_error err = { 0 };

    random_job(seed, &t->job);
    ck_assert_msg(planner_plan(&t->job.graph, &t->job.spec, &t->job.facts, t->job.devices,
                               t->job.n_devices, &t->plan, &err) == GEMS_OK,
                  "seed %llu: %s", (unsigned long long)seed, err.text);
    ck_assert_int_eq(layout_gradients(&t->job.graph, &t->has_gradient, NULL), GEMS_OK);
    for (uint32_t r = 0; r < t->plan.n_ranks; r++) {
        ck_assert_int_eq(memory_map_make(&t->job.graph, &t->job.spec, &t->plan, &t->job.facts, r,
                                         &t->maps[r], NULL),
                         GEMS_OK);
    }
}

static void trial_fini(struct trial *t)
{
    for (uint32_t r = 0; r < t->plan.n_ranks; r++) {
        memory_map_fini(&t->maps[r]);
    }
    plan_fini(&t->plan);
    free(t->has_gradient);
    random_job_fini(&t->job);
}

static uint32_t list_programs(struct plan *plan, struct program *ret_programs[4])
{
    struct program *all[] = { &plan->train, &plan->train_last, &plan->eval, &plan->eval_last };
    uint32_t n = 0;

    for (int i = 0; i < 4; i++) {
        if (all[i]->n_ranks) {
            ret_programs[n++] = all[i];
        }
    }
    return n;
}

/* From the first byte that may land in the slot to the end of its use. */
struct use {
    double start, end;
    uint32_t slot, microbatch;
};

static void check_memory_in_time(const struct trial *t, const struct program *program,
                                 const struct sim_result *result, uint32_t rank)
{
    const struct instr_list *list = &program->ranks[rank];
    const struct memory_map *map = &t->maps[rank];
    struct use *uses = calloc(list->n + 1, sizeof *uses);
    uint32_t n = 0;

    for (uint32_t i = 0; i < list->n; i++) {
        const struct instr *instr = &list->items[i];
        const struct sim_span *span = &result->spans[rank][i];
        struct use *use = uses;

        if (instr->op != INSTR_RECV_ACT && instr->op != INSTR_LOAD && instr->op != INSTR_FORWARD &&
            instr->op != INSTR_EVALUATE && instr->op != INSTR_BACKWARD &&
            instr->op != INSTR_BACKWARD_INPUT && instr->op != INSTR_BACKWARD_WEIGHT &&
            instr->op != INSTR_RECOMPUTE && instr->op != INSTR_SEND_ACT) {
            continue;
        }
        while (use < uses + n &&
               (use->slot != instr->slot || use->microbatch != instr->microbatch)) {
            use++;
        }
        if (use == uses + n) {
            *use = (struct use){ span->start, span->end, instr->slot, instr->microbatch };
            n++;
        }
        use->start = fmin(use->start, span->start);
        use->end = fmax(use->end, span->end);
    }
    for (uint32_t a = 0; a < n; a++) {
        const struct memory_slot *x = &map->slots[uses[a].slot];

        ck_assert_uint_le(x->offset + x->bytes, map->activations_bytes);
        for (uint32_t b = 0; b < a; b++) {
            const struct memory_slot *y = &map->slots[uses[b].slot];
            bool is_apart = x->offset >= y->offset + y->bytes || y->offset >= x->offset + x->bytes;

            ck_assert_msg(is_apart || uses[a].start >= uses[b].end - 1e-12 ||
                              uses[b].start >= uses[a].end - 1e-12,
                          "rank %u: slots %u and %u in use at once", rank, uses[a].slot,
                          uses[b].slot);
        }
    }
    free(uses);
}

/* Gradient buffers: received into GRAD_IN until backward is done, written by
 * backward into GRAD_OUT until sent. */
static void check_gradients_in_time(const struct trial *t, const struct program *program,
                                    const struct sim_result *result, uint32_t rank)
{
    const struct instr_list *list = &program->ranks[rank];
    const struct sim_span *spans = result->spans[rank];
    double in_free[MAX_BUFFERS] = { 0 }, out_free[MAX_BUFFERS] = { 0 };

    ck_assert_uint_le(t->maps[rank].n_grad_in, 2);
    ck_assert_uint_le(t->maps[rank].n_grad_out, MAX_BUFFERS);

    for (uint32_t i = 0; i < list->n; i++) {
        if (list->items[i].op != INSTR_BACKWARD && list->items[i].op != INSTR_BACKWARD_INPUT) {
            continue;
        }
        for (uint32_t j = i; j > 0 && list->items[j - 1].op == INSTR_RECV_GRAD; j--) {
            ck_assert_uint_lt(list->items[j - 1].slot, t->maps[rank].n_grad_in);
            ck_assert_double_ge(spans[j - 1].start, in_free[list->items[j - 1].slot]);
            ck_assert_double_le(spans[j - 1].end, spans[i].start);
        }
        for (uint32_t j = i; j > 0 && list->items[j - 1].op == INSTR_RECV_GRAD; j--) {
            in_free[list->items[j - 1].slot] = spans[i].end;
        }
        for (uint32_t j = i + 1; j < list->n && list->items[j].op == INSTR_SEND_GRAD; j++) {
            ck_assert_uint_lt(list->items[j].slot, t->maps[rank].n_grad_out);
            ck_assert_double_ge(spans[i].start, out_free[list->items[j].slot]);
        }
        for (uint32_t j = i + 1; j < list->n && list->items[j].op == INSTR_SEND_GRAD; j++) {
            double *free_at = &out_free[list->items[j].slot];

            *free_at = fmax(*free_at, spans[j].end);
        }
    }
}

/* The same with times that nobody foresaw. */
static void run_with_delays(const struct trial *t, const struct program *program, uint64_t seed)
{
    double f[SPEC_MAX_STAGES], b[SPEC_MAX_STAGES];
    struct sim_costs costs = {
        .forward = f,
        .backward = b,
        .latency = 0.1,
        .delay = 5,
        .delay_seed = seed,
        .maps = t->maps,
    };
    struct sim_result result;
    struct gems_error err = { 0 };

    for (uint32_t s = 0; s < t->plan.n_stages; s++) {
        f[s] = 1;
        b[s] = 2;
    }
    ck_assert_msg(sim_run(&t->plan, program, &costs, &result, &err) == GEMS_OK, "%s", err.text);
    for (uint32_t r = 0; r < program->n_ranks; r++) {
        check_memory_in_time(t, program, &result, r);
        check_gradients_in_time(t, program, &result, r);
    }
    sim_result_fini(&result);
}

/* Both ways to find when a receive may be posted agree. */
static void check_posts(const struct trial *t, const struct program *program)
{
    for (uint32_t r = 0; r < program->n_ranks; r++) {
        const struct instr_list *list = &program->ranks[r];
        int64_t *after = calloc(list->n + 1, sizeof *after);
        struct neighbours neighbours;

        ck_assert_int_eq(neighbours_make(&t->maps[r], t->maps[r].n_slots, &neighbours, NULL),
                         GEMS_OK);
        ck_assert_int_eq(post_make(&neighbours, list, after, NULL), GEMS_OK);
        for (uint32_t i = 0; i < list->n; i++) {
            if (instr_is_recv(&list->items[i])) {
                ck_assert_int_eq(after[i], memory_recv_after(&t->maps[r], list, i));
            }
        }
        neighbours_fini(&neighbours);
        free(after);
    }
}

static void check_samples(const struct program *program, uint64_t samples)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < program->n_microbatches; i++) {
        ck_assert_uint_ge(program_samples(program, i), 1);
        ck_assert_uint_le(program_samples(program, i), program->microbatch);
        sum += program_samples(program, i);
    }
    ck_assert_uint_eq(sum, samples);
}

START_TEST(every_job_gives_proven_programs)
{
    for (uint32_t k = 0; k < N_JOBS; k++) {
        uint64_t seed = (uint64_t)_i * N_JOBS + k;
        struct program *programs[4];
        struct trial t;
        uint32_t layers = 0, n;

        trial_init(&t, seed);
        for (uint32_t s = 0; s < t.plan.n_stages; s++) {
            ck_assert_uint_ge(t.plan.stage_layers[s], 1);
            layers += t.plan.stage_layers[s];
        }
        ck_assert_uint_eq(layers, t.job.graph.n_layers);
        check_samples(&t.plan.train, t.job.spec.train.batch);
        if (t.plan.train_last.n_ranks) {
            check_samples(&t.plan.train_last, t.plan.n_train % t.job.spec.train.batch);
        }
        if (t.plan.eval_last.n_ranks) {
            check_samples(&t.plan.eval_last, t.plan.n_eval % t.job.spec.train.batch);
        }
        n = list_programs(&t.plan, programs);
        for (uint32_t p = 0; p < n; p++) {
            struct gems_error err = { 0 };

            ck_assert_msg(program_check(&t.plan, t.has_gradient, programs[p], t.maps, &err) ==
                              GEMS_OK,
                          "seed %llu: %s", (unsigned long long)seed, err.text);
            check_posts(&t, programs[p]);
            for (uint64_t d = 0; d < 3; d++) {
                run_with_delays(&t, programs[p], seed * 3 + d);
            }
        }
        trial_fini(&t);
    }
}
END_TEST

/* The rank makes the same map from the facts of its own operators. */
START_TEST(rank_and_planner_count_the_same_bytes)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct trial t;

        trial_init(&t, seed);
        for (uint32_t r = 0; r < t.plan.n_ranks; r++) {
            uint32_t stages[PLAN_MAX_RESIDENT], n = plan_resident(&t.plan, r, stages);
            struct fact_set own = { .n_sizes = t.job.facts.n_sizes };
            struct memory_map map;

            for (uint32_t f = 0; f < own.n_sizes; f++) {
                random_facts(&t.job.graph, t.job.facts.sizes[f].batch, &own.sizes[f]);
                for (uint32_t i = 0; i < t.job.graph.n_nodes; i++) {
                    bool is_needed = false;

                    for (uint32_t k = 0; k < n; k++) {
                        is_needed = is_needed || (i >= t.plan.stage_node[stages[k]] &&
                                                  i < t.plan.stage_node[stages[k] + 1]);
                        for (uint32_t e = 0; e < t.plan.n_edges; e++) {
                            is_needed = is_needed || (t.plan.edges[e].node == i &&
                                                      t.plan.edges[e].to_stage == stages[k]);
                        }
                    }
                    if (!is_needed) {
                        own.sizes[f].ops[i] = (struct op_facts){ 0 };
                    }
                }
            }
            ck_assert_int_eq(
                memory_map_make(&t.job.graph, &t.job.spec, &t.plan, &own, r, &map, NULL), GEMS_OK);
            ck_assert_mem_eq(&map.total, &t.maps[r].total, sizeof map.total);
            ck_assert_uint_eq(map.n_slots, t.maps[r].n_slots);
            ck_assert_mem_eq(map.slots, t.maps[r].slots, map.n_slots * sizeof *map.slots);
            ck_assert_uint_eq(t.plan.memory[r].total_bytes, map.total.total_bytes);
            memory_map_fini(&map);
            fact_set_fini(&own);
        }
        trial_fini(&t);
    }
}
END_TEST

/* Slots of the two chains of gems-mast share memory: what a rank holds is what
 * the fuller of its two stages needs, not their sum. */
START_TEST(mirrored_chains_share_activation_memory)
{
    uint32_t n_seen = 0;

    for (uint64_t seed = 0; seed < 300; seed++) {
        struct trial t;

        trial_init(&t, seed);
        for (uint32_t r = 0; t.plan.schedule == SCHEDULE_GEMS_MAST && r < t.plan.n_ranks; r++) {
            uint64_t chains[2] = { 0, 0 };
            bool is_seen[1024] = { false };

            for (uint32_t i = 0; i < t.plan.train.ranks[r].n; i++) {
                const struct instr *instr = &t.plan.train.ranks[r].items[i];

                if (instr->op == INSTR_FORWARD && !is_seen[instr->slot]) {
                    is_seen[instr->slot] = true;
                    chains[instr->chain] += t.maps[r].slots[instr->slot].bytes;
                }
            }
            /* evaluation has slots of its own in the same memory */
            if (!t.plan.eval.n_ranks && !t.plan.eval_last.n_ranks) {
                ck_assert_uint_le(t.maps[r].activations_bytes,
                                  (chains[0] > chains[1] ? chains[0] : chains[1]) + 1024 * 4);
                n_seen++;
            }
        }
        trial_fini(&t);
    }
    ck_assert_uint_gt(n_seen, 50);
}
END_TEST

/* --- planted faults --- */

static void remove_at(struct instr_list *list, uint32_t i)
{
    memmove(&list->items[i], &list->items[i + 1], (list->n - i - 1) * sizeof *list->items);
    list->n--;
}

static void insert_at(struct program *program, uint32_t rank, uint32_t i, struct instr instr)
{
    struct instr_list *list = &program->ranks[rank];

    ck_assert_int_eq(program_add(program, rank, &instr, NULL), GEMS_OK);
    memmove(&list->items[i + 1], &list->items[i], (list->n - i - 1) * sizeof *list->items);
    list->items[i] = instr;
}

/* A random instruction for which the test says yes; false if there is none. */
static bool pick(struct draw *draw, const struct program *program,
                 bool (*is_wanted)(const struct instr *), uint32_t *ret_rank, uint32_t *ret_i)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < program->n_ranks; r++) {
        for (uint32_t i = 0; i < program->ranks[r].n; i++) {
            if (is_wanted(&program->ranks[r].items[i]) && draw_between(draw, 0, n++) == 0) {
                *ret_rank = r;
                *ret_i = i;
            }
        }
    }
    return n > 0;
}

static bool is_message(const struct instr *instr)
{
    return instr_is_send(instr) || instr_is_recv(instr);
}

static bool is_backward(const struct instr *instr)
{
    return instr->op == INSTR_BACKWARD || instr->op == INSTR_BACKWARD_WEIGHT;
}

static bool is_pass(const struct instr *instr)
{
    return instr->op == INSTR_BACKWARD || instr->op == INSTR_BACKWARD_INPUT ||
           instr->op == INSTR_BACKWARD_WEIGHT || instr->op == INSTR_FORWARD;
}

static bool is_any(const struct instr *instr)
{
    (void)instr;
    return true;
}

static bool is_reduce(const struct instr *instr)
{
    return instr->op == INSTR_REDUCE;
}

static bool is_combine(const struct instr *instr)
{
    return instr->op == INSTR_COMBINE;
}

/* Each breaks the program and returns true, or finds nothing to break. */
static bool drop_one(struct draw *draw, struct program *program)
{
    uint32_t r, i;

    if (!pick(draw, program, is_any, &r, &i)) {
        return false;
    }
    remove_at(&program->ranks[r], i);
    return true;
}

static bool drop_send(struct draw *draw, struct program *program)
{
    uint32_t r, i;

    if (!pick(draw, program, instr_is_send, &r, &i)) {
        return false;
    }
    remove_at(&program->ranks[r], i);
    return true;
}

static bool swap_slots(struct draw *draw, struct program *program)
{
    uint32_t r, i;

    if (!pick(draw, program, is_pass, &r, &i)) {
        return false;
    }
    program->ranks[r].items[i].slot++;
    return true;
}

static bool repeat_backward(struct draw *draw, struct program *program)
{
    uint32_t r, i;

    if (!pick(draw, program, is_backward, &r, &i)) {
        return false;
    }
    insert_at(program, r, i, program->ranks[r].items[i]);
    return true;
}

static bool change_tag(struct draw *draw, struct program *program)
{
    struct instr *instr;
    uint32_t r, i;

    if (!pick(draw, program, is_message, &r, &i)) {
        return false;
    }
    instr = &program->ranks[r].items[i];
    switch (draw_between(draw, 0, 3)) {
    case 0:
        instr->edge++;
        break;
    case 1:
        instr->microbatch++;
        break;
    case 2:
        instr->peer++;
        break;
    default:
        instr->chain ^= 1;
        break;
    }
    return true;
}

static bool change_block(struct draw *draw, struct program *program)
{
    uint32_t r, i;

    if (!pick(draw, program, is_backward, &r, &i)) {
        return false;
    }
    if (draw_chance(draw, 50)) {
        program->ranks[r].items[i].block++;
    } else {
        program->ranks[r].items[i].is_first ^= 1;
    }
    return true;
}

static bool change_mask(struct draw *draw, struct program *program)
{
    uint32_t r, i;

    if (!pick(draw, program, is_reduce, &r, &i)) {
        return false;
    }
    program->ranks[r].items[i].microbatch ^= 3;
    return true;
}

static bool swap_combine(struct draw *draw, struct program *program)
{
    struct instr *instr;
    uint32_t r, i;

    if (!pick(draw, program, is_combine, &r, &i)) {
        return false;
    }
    instr = &program->ranks[r].items[i];
    instr->slot = instr->block;
    return true;
}

/* Two backwards in each other's place: the sums come out in another order. */
static bool swap_backwards(struct draw *draw, struct program *program)
{
    uint32_t r, i;

    if (!pick(draw, program, is_backward, &r, &i)) {
        return false;
    }
    for (uint32_t j = i + 1; j < program->ranks[r].n; j++) {
        struct instr *a = &program->ranks[r].items[i], *b = &program->ranks[r].items[j];

        if (is_backward(b) && a->microbatch != b->microbatch) {
            struct instr keep = *a;

            a->microbatch = b->microbatch;
            a->slot = b->slot;
            b->microbatch = keep.microbatch;
            b->slot = keep.slot;
            return true;
        }
    }
    return false;
}

static bool is_recompute(const struct instr *instr)
{
    return instr->op == INSTR_RECOMPUTE;
}

/* A forward that is recomputed too early: another pass uses TEMP after it. */
static bool recompute_early(struct draw *draw, struct program *program)
{
    struct instr moved;
    uint32_t r = 0, i = 0;

    if (!pick(draw, program, is_recompute, &r, &i) || i == 0) {
        return false;
    }
    moved = program->ranks[r].items[i];
    program->ranks[r].items[i] = program->ranks[r].items[i - 1];
    program->ranks[r].items[i - 1] = moved;
    return true;
}

static const struct {
    const char *name;
    bool (*plant)(struct draw *, struct program *);
} faults[] = {
    { "an instruction is missing", drop_one },
    { "a send is missing", drop_send },
    { "a pass is on another slot", swap_slots },
    { "a backward runs twice", repeat_backward },
    { "a message has another tag", change_tag },
    { "a backward adds to another buffer", change_block },
    { "a reduction sums other copies", change_mask },
    { "a buffer is combined with itself", swap_combine },
    { "two backwards are swapped", swap_backwards },
    { "a forward is recomputed too early", recompute_early },
};
enum { N_FAULTS = sizeof faults / sizeof faults[0] };

START_TEST(planted_fault_is_found)
{
    uint32_t n_planted = 0;

    for (uint64_t seed = 0; seed < 300; seed++) {
        struct draw draw = { seed + 1000000, 0 };
        struct trial t;

        trial_init(&t, seed);
        if (faults[_i].plant(&draw, &t.plan.train)) {
            struct gems_error err = { 0 };

            ck_assert_msg(program_check(&t.plan, t.has_gradient, &t.plan.train, t.maps, &err) < 0,
                          "seed %llu: %s, and the checker says yes", (unsigned long long)seed,
                          faults[_i].name);
            ck_assert_int_eq(err.status, GEMS_E_INTERNAL);
            ck_assert_str_ne(err.text, "");
            n_planted++;
        }
        trial_fini(&t);
    }
    ck_assert_uint_gt(n_planted, 30);
}
END_TEST

START_TEST(ranks_that_wait_for_each_other_are_found)
{
    struct program circle;
    struct trial t;
    struct gems_error err = { 0 };
    uint64_t seed = 0;
    struct instr *items;
    uint32_t middle = 0, n;

    /* rank 0 of two runs chain 1 before chain 0: it waits for rank 1, which waits for it */
    for (trial_init(&t, seed); t.plan.schedule != SCHEDULE_GEMS_MAST || t.plan.n_ranks != 2 ||
                               t.plan.n_groups != 1 || t.plan.n_microbatches < t.plan.n_blocks;
         trial_init(&t, ++seed)) {
        trial_fini(&t);
    }
    circle = t.plan.train;
    items = circle.ranks[0].items;
    n = circle.ranks[0].n;
    while (items[middle].chain == 0) {
        middle++;
    }
    for (uint32_t end = middle; end < n && items[end].chain == 1; end++) {
        struct instr moved = items[end];

        memmove(&items[end - middle + 1], &items[end - middle], middle * sizeof *items);
        items[end - middle] = moved;
    }
    ck_assert_int_lt(program_check(&t.plan, t.has_gradient, &circle, NULL, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "deadlock"));
    trial_fini(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("programs");
    TCase *tcase = tcase_create("properties");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, every_job_gives_proven_programs, 0, N_PARTS);
    tcase_add_test(tcase, rank_and_planner_count_the_same_bytes);
    tcase_add_test(tcase, mirrored_chains_share_activation_memory);
    tcase_add_loop_test(tcase, planted_fault_is_found, 0, N_FAULTS);
    tcase_add_test(tcase, ranks_that_wait_for_each_other_are_found);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
