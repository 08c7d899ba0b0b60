#include "plan/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/rng.h"
#include "plan/match.h"

/* Unknown times are NaN. */
struct rank_state {
    const struct instr_list *list;
    const struct memory_map *map;
    uint32_t next; /* instruction */
    double now;
    uint32_t *open; /* receives that have not arrived */
    uint32_t n_open;
    uint32_t *pending; /* sends whose memory nobody has waited for yet */
    uint32_t n_pending;
    struct sim_span *spans;
    double *reached; /* when the list came to a receive */
};

struct sim {
    const struct plan *plan;
    const struct program *program;
    const struct sim_costs *costs;
    struct match match;
    struct rank_state *ranks;
    struct sim_result *result;
    double *reduce_at, *gather_at; /* by rank * n_stages + stage: reached */
    struct memory_map apart;       /* slot i alone at i */
};

static double delay(const struct sim *sim, uint32_t rank, uint32_t i, uint64_t what)
{
    return sim->costs->delay > 0 ? sim->costs->delay * rng_unit(sim->costs->delay_seed, what,
                                                                ((uint64_t)rank << 32) | i)
                                 : 0;
}

static bool is_overlapping(const struct rank_state *rank, uint32_t a, uint32_t b)
{
    const struct memory_slot *x = &rank->map->slots[a], *y = &rank->map->slots[b];

    return a == b || (x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes);
}

/* Does the send at index i read memory that the instruction writes? */
static bool is_sent_from(const struct rank_state *rank, uint32_t i, const struct instr *writer,
                         uint32_t grad_buffer)
{
    const struct instr *send = &rank->list->items[i];

    switch ((enum instr_op)writer->op) {
    case INSTR_LOAD:
    case INSTR_FORWARD:
    case INSTR_EVALUATE:
    case INSTR_RECV_ACT:
        return send->op == INSTR_SEND_ACT && is_overlapping(rank, send->slot, writer->slot);
    case INSTR_BACKWARD:
        return send->op == INSTR_SEND_GRAD && send->slot == grad_buffer;
    default:
        return false;
    }
}

/* GRAD_OUT buffer of the backward at index i: that of the send behind it. */
static uint32_t grad_buffer_of(const struct instr_list *list, uint32_t i)
{
    bool is_sent = i + 1 < list->n && list->items[i + 1].op == INSTR_SEND_GRAD;

    return is_sent ? list->items[i + 1].slot : UINT32_MAX;
}

/* Raises *inout_time to the end of all pending sends from the memory that the
 * instruction at index i writes; false if one has no known end. is_last: nothing
 * else will ask for them. */
static bool wait_sends(struct rank_state *rank, uint32_t i, bool is_last, double *inout_time)
{
    const struct instr *writer = &rank->list->items[i];
    uint32_t buffer = grad_buffer_of(rank->list, i), kept = 0;
    bool is_known = true;

    for (uint32_t k = 0; k < rank->n_pending; k++) {
        uint32_t send = rank->pending[k];
        bool is_meant = send < i && is_sent_from(rank, send, writer, buffer);

        if (is_meant && isnan(rank->spans[send].end)) {
            is_known = false;
        } else if (is_meant) {
            *inout_time = fmax(*inout_time, rank->spans[send].end);
        }
        if (!is_meant || !is_last) {
            rank->pending[kept++] = send;
        }
    }
    rank->n_pending = is_known && is_last ? kept : rank->n_pending;
    return is_known;
}

/* When the receive at index i is posted, if that is known yet. */
static bool find_posted(const struct sim *sim, struct rank_state *rank, uint32_t i)
{
    int64_t after = sim->costs->is_strict ? -1 : memory_recv_after(rank->map, rank->list, i);
    double time = sim->costs->is_strict ? rank->reached[i] : 0;

    if (after >= (int64_t)rank->next || isnan(time)) {
        return false;
    }
    if (after >= 0) {
        /* the end of a send is waited for below, with that of its neighbours */
        time = instr_is_send(&rank->list->items[after]) ? rank->spans[after].start
                                                        : rank->spans[after].end;
        if (isnan(time)) {
            return false;
        }
    }
    if (!wait_sends(rank, i, false, &time)) {
        return false;
    }
    rank->spans[i].start = time;
    return true;
}

/* Lets messages arrive for which both ends are known; true if one did. */
static bool settle_receives(struct sim *sim, uint32_t r)
{
    struct rank_state *rank = &sim->ranks[r];
    uint32_t kept = 0, n = rank->n_open;

    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = rank->open[k], j = sim->match.partner[r][i];
        const struct instr *recv = &rank->list->items[i];
        struct rank_state *sender = &sim->ranks[recv->peer];
        double bytes, share, start;

        if (isnan(rank->spans[i].start)) {
            find_posted(sim, rank, i);
        }
        if (j == MATCH_NONE || isnan(rank->spans[i].start) || isnan(sender->spans[j].start)) {
            rank->open[kept++] = i;
            continue;
        }
        share = (double)program_samples(sim->program, recv->microbatch) / sim->program->microbatch;
        bytes = sim->costs->edge_bytes ? (double)sim->costs->edge_bytes[recv->edge] * share : 0;
        start = fmax(rank->spans[i].start, sender->spans[j].start);
        rank->spans[i].end = sender->spans[j].end =
            start + sim->costs->latency + delay(sim, r, i, 2) +
            (sim->costs->bytes_second > 0 ? bytes / sim->costs->bytes_second : 0);
    }
    rank->n_open = kept;
    return kept < n;
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
        share = (double)program_samples(sim->program, instr->microbatch) / sim->program->microbatch;
        break;
    case INSTR_BACKWARD:
        table = costs->backward;
        share = (double)program_samples(sim->program, instr->microbatch) / sim->program->microbatch;
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
    uint32_t copies[2 * SPEC_MAX_STAGES];
    uint32_t n = plan_copies(sim->plan, stage, copies, 2 * SPEC_MAX_STAGES);

    for (uint32_t c = 0; c < n; c++) {
        double time = reached[copies[c] * sim->plan->n_stages + stage];

        if (isnan(time)) {
            return false;
        }
        *inout_time = fmax(*inout_time, time);
    }
    return true;
}

/* Runs the next instruction of a rank if everything it waits for is known. */
static bool advance(struct sim *sim, uint32_t r)
{
    struct rank_state *rank = &sim->ranks[r];
    uint32_t i = rank->next;
    const struct instr *instr = &rank->list->items[i];
    double start = rank->now, length;

    if (instr_is_send(instr) || instr_is_recv(instr)) {
        if (instr_is_send(instr)) {
            rank->spans[i].start = rank->now;
            rank->pending[rank->n_pending++] = i;
        } else {
            rank->reached[i] = rank->now;
        }
        rank->next++;
        return true;
    }
    if (instr->op == INSTR_REDUCE || instr->op == INSTR_GATHER) {
        double *reached = instr->op == INSTR_REDUCE ? sim->reduce_at : sim->gather_at;

        reached[r * sim->plan->n_stages + instr->stage] = rank->now;
        if (!wait_copies(sim, reached, instr->stage, &start)) {
            return false;
        }
    }
    if (instr->op != INSTR_LOAD && instr->op != INSTR_COMBINE && instr->op != INSTR_UPDATE &&
        !wait_receives(rank, i, &start)) {
        return false;
    }
    if (!wait_sends(rank, i, instr->op != INSTR_LOAD, &start)) {
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
    bool is_moving = true;

    while (is_moving) {
        is_moving = false;
        for (uint32_t r = 0; r < sim->program->n_ranks; r++) {
            struct rank_state *rank = &sim->ranks[r];

            is_moving = settle_receives(sim, r) || is_moving;
            while (rank->next < rank->list->n && advance(sim, r)) {
                is_moving = true;
            }
        }
    }
    for (uint32_t r = 0; r < sim->program->n_ranks; r++) {
        result->step_seconds = fmax(result->step_seconds, sim->ranks[r].now);
        busy += result->busy_seconds[r];
    }
    result->idle_fraction =
        result->step_seconds > 0 ? 1 - busy / (result->step_seconds * sim->program->n_ranks) : 0;
    return report_stop(sim, err);
}

static int start_rank(struct sim *sim, uint32_t r, struct sim_span *spans, struct gems_error *err)
{
    struct rank_state *rank = &sim->ranks[r];
    uint32_t n = sim->program->ranks[r].n;

    rank->list = &sim->program->ranks[r];
    rank->map = sim->costs->maps ? &sim->costs->maps[r] : &sim->apart;
    rank->spans = spans;
    rank->open = calloc(n + 1, sizeof *rank->open);
    rank->pending = calloc(n + 1, sizeof *rank->pending);
    rank->reached = calloc(n + 1, sizeof *rank->reached);
    if (!rank->open || !rank->pending || !rank->reached) {
        return gems_error_set(err, GEMS_E_NOMEM, "simulation of rank %u: no memory", r);
    }
    for (uint32_t i = 0; i < n; i++) {
        spans[i] = (struct sim_span){ NAN, NAN };
        rank->reached[i] = NAN;
        if (instr_is_recv(&rank->list->items[i])) {
            rank->open[rank->n_open++] = i;
        }
    }
    return GEMS_OK;
}

/* A map in which no two slots overlap, for programs whose bytes are not known. */
static int make_apart(struct sim *sim, struct gems_error *err)
{
    uint32_t n = 1;

    for (uint32_t r = 0; r < sim->program->n_ranks; r++) {
        for (uint32_t i = 0; i < sim->program->ranks[r].n; i++) {
            uint32_t slot = sim->program->ranks[r].items[i].slot;

            n = slot >= n ? slot + 1 : n;
        }
    }
    sim->apart.slots = calloc(n, sizeof *sim->apart.slots);
    if (!sim->apart.slots) {
        return gems_error_set(err, GEMS_E_NOMEM, "simulation: no memory");
    }
    for (uint32_t i = 0; i < n; i++) {
        sim->apart.slots[i] = (struct memory_slot){ i, 1 };
    }
    sim->apart.n_slots = n;
    return GEMS_OK;
}

static int start(struct sim *sim, struct gems_error *err)
{
    uint32_t n_ranks = sim->program->n_ranks, n = 0, n_copies = n_ranks * sim->plan->n_stages;
    struct sim_result *result = sim->result;
    int status = sim->costs->maps ? GEMS_OK : make_apart(sim, err);

    for (uint32_t r = 0; r < n_ranks; r++) {
        n += sim->program->ranks[r].n;
    }
    result->n_ranks = n_ranks;
    result->busy_seconds = calloc(n_ranks + 1, sizeof *result->busy_seconds);
    result->spans = calloc(n_ranks + 1, sizeof *result->spans);
    result->storage = calloc(n + 1, sizeof *result->storage);
    sim->ranks = calloc(n_ranks + 1, sizeof *sim->ranks);
    sim->reduce_at = calloc(2 * (size_t)n_copies + 1, sizeof *sim->reduce_at);
    if (status < 0 || !result->busy_seconds || !result->spans || !result->storage || !sim->ranks ||
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
        free(sim.ranks[r].open);
        free(sim.ranks[r].pending);
        free(sim.ranks[r].reached);
    }
    free(sim.ranks);
    free(sim.reduce_at);
    free(sim.apart.slots);
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
