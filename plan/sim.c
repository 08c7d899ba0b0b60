#include "plan/sim.h"

#include <math.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/rng.h"
#include "plan/match.h"
#include "plan/post.h"

/* Unknown times are NaN. */
struct rank_state {
    const struct instr_list *list;
    uint32_t next; /* instruction */
    double now;
    struct sim_span *spans;
    bool is_queued;
    /* receives: those that may be posted once the list is past after[] */
    int64_t *after;
    uint32_t *posts, n_posts, next_post; /* by after */
    uint32_t *blocked, n_blocked;        /* due, but their memory is still being sent */
    double *reached;                     /* when the list came to a receive */
    /* sends, by slot and by GRAD_OUT buffer: without a known end, and the latest end */
    struct neighbours neighbours;
    uint32_t *act_open, *grad_open;
    double *act_end, *grad_end;
};

struct sim {
    const struct plan *plan;
    const struct program *program;
    const struct sim_costs *costs;
    struct match match;
    struct rank_state *ranks;
    struct sim_result *result;
    double *reduce_at, *gather_at; /* by rank * n_stages + stage: reached */
    uint32_t *queue, n_queue;      /* ranks to look at */
};

static double delay(const struct sim *sim, uint32_t rank, uint32_t i, uint64_t what)
{
    return sim->costs->delay > 0 ? sim->costs->delay * rng_unit(sim->costs->delay_seed, what,
                                                                ((uint64_t)rank << 32) | i)
                                 : 0;
}

static void wake(struct sim *sim, uint32_t r)
{
    if (!sim->ranks[r].is_queued) {
        sim->ranks[r].is_queued = true;
        sim->queue[sim->n_queue++] = r;
    }
}

/* GRAD_OUT buffer of the backward at index i, that of the send behind it; false if
 * it sends nothing. */
static bool find_grad_buffer(const struct instr_list *list, uint32_t i, uint32_t *ret_buffer)
{
    if (i + 1 == list->n || list->items[i + 1].op != INSTR_SEND_GRAD) {
        return false;
    }
    *ret_buffer = list->items[i + 1].slot;
    return true;
}

/* Raises *inout_time to the end of all sends from the memory that the instruction
 * at index i writes; false if one has no known end. */
static bool wait_sends(const struct rank_state *rank, uint32_t i, double *inout_time)
{
    const struct instr *writer = &rank->list->items[i];
    uint32_t buffer;

    if (writer->op == INSTR_LOAD || writer->op == INSTR_FORWARD || writer->op == INSTR_EVALUATE ||
        writer->op == INSTR_RECV_ACT || writer->op == INSTR_RECOMPUTE) {
        const struct neighbours *near = &rank->neighbours;

        for (uint32_t k = near->first[writer->slot]; k < near->first[writer->slot + 1]; k++) {
            if (rank->act_open[near->items[k]]) {
                return false;
            }
            *inout_time = fmax(*inout_time, rank->act_end[near->items[k]]);
        }
    } else if ((writer->op == INSTR_BACKWARD || writer->op == INSTR_BACKWARD_INPUT) &&
               find_grad_buffer(rank->list, i, &buffer)) {
        *inout_time = fmax(*inout_time, rank->grad_end[buffer]);
        return !rank->grad_open[buffer];
    }
    return true;
}

/* Counts the send at index i as under way, or as ended. */
static void count_send(struct rank_state *rank, uint32_t i, bool is_end)
{
    const struct instr *send = &rank->list->items[i];
    bool is_act = send->op == INSTR_SEND_ACT;
    uint32_t *open = is_act ? &rank->act_open[send->slot] : &rank->grad_open[send->slot];
    double *end = is_act ? &rank->act_end[send->slot] : &rank->grad_end[send->slot];

    if (is_end) {
        *open -= 1;
        *end = fmax(*end, rank->spans[i].end);
    } else {
        *open += 1;
    }
}

/* The message of the receive at index i of rank r, if both ends are known. */
static void try_arrive(struct sim *sim, uint32_t r, uint32_t i)
{
    struct rank_state *rank = &sim->ranks[r];
    const struct instr *recv = &rank->list->items[i];
    uint32_t j = sim->match.partner[r][i];
    struct rank_state *sender = &sim->ranks[recv->peer];
    const struct sim_costs *costs = sim->costs;
    double bytes, start;

    if (j == MATCH_NONE || isnan(rank->spans[i].start) || isnan(sender->spans[j].start)) {
        return;
    }
    bytes = costs->edge_bytes ? (double)costs->edge_bytes[recv->edge] : 0;
    bytes *= (double)program_samples(sim->program, recv->microbatch) / sim->program->microbatch;
    start = fmax(rank->spans[i].start, sender->spans[j].start);
    rank->spans[i].end = sender->spans[j].end =
        start + costs->latency + delay(sim, r, i, 2) +
        (costs->bytes_second > 0 ? bytes / costs->bytes_second : 0);
    count_send(sender, j, true);
    wake(sim, r);
    wake(sim, recv->peer);
}

/* Posts what is due and has its memory free. */
static void post_receives(struct sim *sim, uint32_t r)
{
    struct rank_state *rank = &sim->ranks[r];
    uint32_t kept = 0, n;

    while (rank->next_post < rank->n_posts &&
           rank->after[rank->posts[rank->next_post]] < (int64_t)rank->next) {
        rank->blocked[rank->n_blocked++] = rank->posts[rank->next_post++];
    }
    n = rank->n_blocked;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = rank->blocked[k];
        int64_t after = rank->after[i];
        double time = 0;

        if (sim->costs->is_strict) {
            time = rank->reached[i];
        } else if (after >= 0) {
            /* the end of a send is waited for with that of its neighbours */
            time = instr_is_send(&rank->list->items[after]) ? rank->spans[after].start
                                                            : rank->spans[after].end;
        }
        if (!wait_sends(rank, i, &time)) {
            rank->blocked[kept++] = i;
            continue;
        }
        rank->spans[i].start = time;
        try_arrive(sim, r, i);
    }
    rank->n_blocked = kept;
}

/* Of the time of a whole micro-batch. */
static double share_of(const struct sim *sim, const struct instr *instr)
{
    return (double)program_samples(sim->program, instr->microbatch) / sim->program->microbatch;
}

/* Of the time of a whole backward. */
static double half_of(const struct sim_costs *costs, const struct instr *instr)
{
    double weight = 0.5;

    if (costs->weight && costs->backward && costs->backward[instr->stage] > 0) {
        weight = costs->weight[instr->stage] / costs->backward[instr->stage];
    }
    return instr->op == INSTR_BACKWARD_WEIGHT ? weight : 1 - weight;
}

static double duration(const struct sim *sim, uint32_t r, const struct instr *instr)
{
    const struct sim_costs *costs = sim->costs;
    const double *table = NULL;
    double share = 1;

    switch ((enum instr_op)instr->op) {
    case INSTR_FORWARD:
    case INSTR_EVALUATE:
        table = costs->forward;
        share = share_of(sim, instr);
        break;
    case INSTR_RECOMPUTE:
        table = costs->forward;
        share = share_of(sim, instr);
        break;
    case INSTR_BACKWARD:
        table = costs->backward;
        share = share_of(sim, instr);
        break;
    case INSTR_BACKWARD_INPUT:
    case INSTR_BACKWARD_WEIGHT:
        table = costs->backward;
        share = share_of(sim, instr) * half_of(costs, instr);
        break;
    case INSTR_COMBINE:
        table = costs->combine;
        break;
    case INSTR_REDUCE:
        table = costs->reduce;
        break;
    case INSTR_UPDATE:
        table = costs->update;
        break;
    case INSTR_GATHER:
        table = costs->gather;
        break;
    default:
        break;
    }
    return table ? table[instr->stage] * share / (costs->speed ? costs->speed[r] : 1) : 0;
}

/* The tensors that the pass at index i reads have arrived: their receives stand
 * before it, with nothing but its load between. */
static bool wait_receives(const struct rank_state *rank, uint32_t i, double *inout_time)
{
    while (i > 0) {
        const struct instr *before = &rank->list->items[i - 1];

        if (instr_is_recv(before)) {
            if (isnan(rank->spans[i - 1].end)) {
                return false;
            }
            *inout_time = fmax(*inout_time, rank->spans[i - 1].end);
        } else if (before->op != INSTR_LOAD) {
            break;
        }
        i--;
    }
    return true;
}

/* All copies of the stage have reached the same instruction. */
static bool wait_copies(const struct sim *sim, const double *reached, uint32_t stage,
                        double *inout_time)
{
    uint32_t copies[PLAN_MAX_COPIES];
    uint32_t n = plan_copies(sim->plan, stage, copies, PLAN_MAX_COPIES);

    for (uint32_t c = 0; c < n; c++) {
        double time = reached[copies[c] * sim->plan->n_stages + stage];

        if (isnan(time)) {
            return false;
        }
        *inout_time = fmax(*inout_time, time);
    }
    return true;
}

/* Reaches a reduction or gathering; the last copy to come wakes the others. */
static bool meet_copies(struct sim *sim, uint32_t r, const struct instr *instr, double *inout_time)
{
    double *all = instr->op == INSTR_REDUCE ? sim->reduce_at : sim->gather_at;
    double *own = &all[r * sim->plan->n_stages + instr->stage];
    uint32_t copies[PLAN_MAX_COPIES], n;

    if (isnan(*own)) {
        *own = sim->ranks[r].now;
        n = plan_copies(sim->plan, instr->stage, copies, PLAN_MAX_COPIES);
        for (uint32_t c = 0; c < n; c++) {
            wake(sim, copies[c]);
        }
    }
    return wait_copies(sim, all, instr->stage, inout_time);
}

static void pass_message(struct sim *sim, uint32_t r)
{
    struct rank_state *rank = &sim->ranks[r];
    uint32_t i = rank->next++, partner = sim->match.partner[r][i];
    const struct instr *instr = &rank->list->items[i];

    if (!instr_is_send(instr)) {
        rank->reached[i] = rank->now;
        return;
    }
    rank->spans[i].start = rank->now;
    count_send(rank, i, false);
    if (partner != MATCH_NONE) {
        try_arrive(sim, instr->peer, partner);
    }
}

/* Runs the next instruction of a rank if everything it waits for is known. */
static bool advance(struct sim *sim, uint32_t r)
{
    struct rank_state *rank = &sim->ranks[r];
    uint32_t i = rank->next;
    const struct instr *instr = &rank->list->items[i];
    bool is_pass = instr->op == INSTR_FORWARD || instr->op == INSTR_EVALUATE ||
                   instr->op == INSTR_BACKWARD || instr->op == INSTR_BACKWARD_INPUT;
    double start = rank->now, length;

    if (instr_is_send(instr) || instr_is_recv(instr)) {
        pass_message(sim, r);
        return true;
    }
    if (((instr->op == INSTR_REDUCE || instr->op == INSTR_GATHER) &&
         !meet_copies(sim, r, instr, &start)) ||
        (is_pass && !wait_receives(rank, i, &start)) || !wait_sends(rank, i, &start)) {
        return false;
    }
    length = duration(sim, r, instr);
    sim->result->busy_seconds[r] += length;
    rank->spans[i] = (struct sim_span){ start, start + length + delay(sim, r, i, 1) };
    rank->now = rank->spans[i].end;
    rank->next++;
    return true;
}

static int report_stop(const struct sim *sim, struct gems_error *err)
{
    for (uint32_t r = 0; r < sim->program->n_ranks; r++) {
        const struct rank_state *rank = &sim->ranks[r];
        const struct instr *instr;

        if (rank->next == rank->list->n) {
            continue;
        }
        instr = &rank->list->items[rank->next];
        return gems_error_set(
            err, GEMS_E_INTERNAL,
            "program: deadlock: rank %u waits for ever at instruction %u (%s chain "
            "%u stage %u micro-batch %u)",
            r, rank->next, instr_name(instr->op), instr->chain, instr->stage, instr->microbatch);
    }
    return GEMS_OK;
}

static int run(struct sim *sim, struct gems_error *err)
{
    struct sim_result *result = sim->result;
    double busy = 0;

    for (uint32_t r = 0; r < sim->program->n_ranks; r++) {
        wake(sim, r);
    }
    while (sim->n_queue) {
        uint32_t r = sim->queue[--sim->n_queue];
        struct rank_state *rank = &sim->ranks[r];

        rank->is_queued = false;
        do {
            post_receives(sim, r);
        } while (rank->next < rank->list->n && advance(sim, r));
    }
    for (uint32_t r = 0; r < sim->program->n_ranks; r++) {
        result->step_seconds = fmax(result->step_seconds, sim->ranks[r].now);
        busy += result->busy_seconds[r];
    }
    if (result->step_seconds > 0) {
        result->idle_fraction = 1 - busy / (result->step_seconds * sim->program->n_ranks);
    }
    return report_stop(sim, err);
}

static uint32_t count_slots(const struct instr_list *list)
{
    uint32_t n = 1;

    for (uint32_t i = 0; i < list->n; i++) {
        n = list->items[i].slot >= n ? list->items[i].slot + 1u : n;
    }
    return n;
}

static int compare_posts(const void *a, const void *b, void *arg)
{
    const int64_t *after = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    if (after[x] != after[y]) {
        return after[x] < after[y] ? -1 : 1;
    }
    return x < y ? -1 : 1;
}

static int start_rank(struct sim *sim, uint32_t r, struct sim_span *spans, struct gems_error *err)
{
    struct rank_state *rank = &sim->ranks[r];
    uint32_t n = sim->program->ranks[r].n, n_slots = count_slots(&sim->program->ranks[r]);
    int status;

    rank->list = &sim->program->ranks[r];
    rank->spans = spans;
    rank->after = calloc(n + 1, sizeof *rank->after);
    rank->posts = calloc(n + 1, sizeof *rank->posts);
    rank->blocked = calloc(n + 1, sizeof *rank->blocked);
    rank->reached = calloc(n + 1, sizeof *rank->reached);
    rank->act_open = calloc(2 * (size_t)n_slots, sizeof *rank->act_open);
    rank->act_end = calloc(2 * (size_t)n_slots, sizeof *rank->act_end);
    if (!rank->after || !rank->posts || !rank->blocked || !rank->reached || !rank->act_open ||
        !rank->act_end) {
        return gems_error_set(err, GEMS_E_NOMEM, "simulation of rank %u: no memory", r);
    }
    rank->grad_open = rank->act_open + n_slots;
    rank->grad_end = rank->act_end + n_slots;
    status = neighbours_make(sim->costs->maps ? &sim->costs->maps[r] : NULL, n_slots,
                             &rank->neighbours, err);
    if (status == GEMS_OK) {
        status = post_make(&rank->neighbours, rank->list, rank->after, err);
    }
    for (uint32_t i = 0; i < n; i++) {
        spans[i] = (struct sim_span){ NAN, NAN };
        if (instr_is_recv(&rank->list->items[i])) {
            rank->after[i] = sim->costs->is_strict ? i : rank->after[i];
            rank->posts[rank->n_posts++] = i;
        }
    }
    qsort_r(rank->posts, rank->n_posts, sizeof *rank->posts, compare_posts, rank->after);
    return status;
}

static void end_rank(struct rank_state *rank)
{
    free(rank->after);
    free(rank->posts);
    free(rank->blocked);
    free(rank->reached);
    free(rank->act_open);
    free(rank->act_end);
    neighbours_fini(&rank->neighbours);
}

static int start(struct sim *sim, struct gems_error *err)
{
    uint32_t n_ranks = sim->program->n_ranks, n = 0, n_copies = n_ranks * sim->plan->n_stages;
    struct sim_result *result = sim->result;
    int status = GEMS_OK;

    for (uint32_t r = 0; r < n_ranks; r++) {
        n += sim->program->ranks[r].n;
    }
    result->n_ranks = n_ranks;
    result->busy_seconds = calloc(n_ranks + 1, sizeof *result->busy_seconds);
    result->spans = calloc(n_ranks + 1, sizeof *result->spans);
    result->storage = calloc(n + 1, sizeof *result->storage);
    sim->ranks = calloc(n_ranks + 1, sizeof *sim->ranks);
    sim->queue = calloc(n_ranks + 1, sizeof *sim->queue);
    sim->reduce_at = calloc(2 * (size_t)n_copies + 1, sizeof *sim->reduce_at);
    if (!result->busy_seconds || !result->spans || !result->storage || !sim->ranks || !sim->queue ||
        !sim->reduce_at) {
        return gems_error_set(err, GEMS_E_NOMEM, "simulation: no memory");
    }
    sim->gather_at = sim->reduce_at + n_copies;
    for (uint32_t i = 0; i < 2 * n_copies; i++) {
        sim->reduce_at[i] = NAN;
    }
    n = 0;
    for (uint32_t r = 0; r < n_ranks && status == GEMS_OK; r++) {
        result->spans[r] = result->storage + n;
        n += sim->program->ranks[r].n;
        status = start_rank(sim, r, result->spans[r], err);
    }
    return status;
}

int sim_run(const struct plan *plan, const struct program *program, const struct sim_costs *costs,
            struct sim_result *ret_result, struct gems_error *err)
{
    struct sim_result result = { 0 };
    struct sim sim = { .plan = plan, .program = program, .costs = costs, .result = &result };
    int status = match_make(program, true, &sim.match, err);

    if (status < 0) {
        return status;
    }
    status = start(&sim, err);
    if (status == GEMS_OK) {
        status = run(&sim, err);
    }
    for (uint32_t r = 0; sim.ranks && r < program->n_ranks; r++) {
        end_rank(&sim.ranks[r]);
    }
    free(sim.ranks);
    free(sim.queue);
    free(sim.reduce_at);
    match_fini(&sim.match);
    if (status == GEMS_OK) {
        *ret_result = result;
    } else {
        sim_result_fini(&result);
    }
    return status;
}

void sim_result_fini(struct sim_result *result)
{
    free(result->busy_seconds);
    free(result->spans);
    free(result->storage);
    *result = (struct sim_result){ 0 };
}
