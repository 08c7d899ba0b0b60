/* A walk over each rank's list that plays the executor with symbols.
 *
 * A pass is a FORWARD, BACKWARD or EVALUATE with its receives and load directly
 * before and its sends directly behind; the walk knows the pass it is in and what
 * is still owed to it. The sums of gradients are followed in check_sum.c. */
#include "plan/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "plan/check_sum.h"
#include "plan/match.h"
#include "plan/sched.h"
#include "plan/sim.h"

struct slot_state {
    bool is_held, is_forward_done, is_input_done;
    uint32_t chain, stage, microbatch;
};

struct check {
    const struct plan *plan;
    const bool *has_gradient;
    const struct program *program;
    const struct memory_map *maps;
    struct gems_error *err;
    uint8_t *n_forward, *n_backward; /* by stage * N + micro-batch */
    uint32_t *chain_of;              /* by micro-batch: 1 + chain of all groups, 0: not seen */
    struct check_sum *sums;          /* by rank * n_stages + stage */
    /* of the rank being walked */
    uint32_t rank, index;
    struct slot_state *slots;
    uint32_t n_slots;
    struct pass {
        uint32_t n_recv, n_send_left; /* receives so far; sends owed */
        bool is_loaded, is_backward;
        uint32_t chain, stage, microbatch, slot, grad_in, grad_out;
    } before, behind;   /* being collected for the next pass; owed by the last one */
    bool is_recomputed; /* TEMP holds the forward of `recomputed` */
    struct pass recomputed;
};

static int refuse(const struct check *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int refuse(const struct check *c, const char *format, ...)
{
    const struct instr_list *list = &c->program->ranks[c->rank];
    char text[160];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (c->index >= list->n) {
        return gems_error_set(c->err, GEMS_E_INTERNAL, "program: rank %u: %s", c->rank, text);
    }
    return gems_error_set(
        c->err, GEMS_E_INTERNAL,
        "program: rank %u instruction %u (%s chain %u stage %u micro-batch %u): %s", c->rank,
        c->index, instr_name(list->items[c->index].op), list->items[c->index].chain,
        list->items[c->index].stage, list->items[c->index].microbatch, text);
}

static uint32_t group_of(const struct check *c)
{
    return c->rank / plan_width(c->plan);
}

/* Is this message one of the stage's? Its peer must be the other stage's rank. */
static bool is_message_of(const struct check *c, const struct instr *instr)
{
    const struct plan *plan = c->plan;
    uint32_t from, to;

    if (instr->edge >= plan->n_edges) {
        return false;
    }
    from = plan->edges[instr->edge].from_stage;
    to = plan->edges[instr->edge].to_stage;
    if (instr->op == INSTR_SEND_GRAD || instr->op == INSTR_RECV_GRAD) {
        if (!c->has_gradient[plan->edges[instr->edge].node]) {
            return false;
        }
        from = to;
        to = plan_grad_stage(plan, instr->edge);
    }
    return instr_is_send(instr) ? from == instr->stage &&
                                      plan_rank(plan, group_of(c), instr->chain, to) == instr->peer
                                : to == instr->stage && plan_rank(plan, group_of(c), instr->chain,
                                                                  from) == instr->peer;
}

/* Messages that a pass of a stage has. */
static uint32_t count_messages(const struct check *c, uint32_t stage, bool is_send,
                               bool is_gradient)
{
    uint32_t n = 0;

    for (uint32_t e = 0; e < c->plan->n_edges; e++) {
        const struct plan_edge *edge = &c->plan->edges[e];

        if (is_gradient) {
            n += c->has_gradient[edge->node] &&
                 (is_send ? edge->to_stage : plan_grad_stage(c->plan, e)) == stage;
        } else {
            n += (is_send ? edge->from_stage : edge->to_stage) == stage;
        }
    }
    return n;
}

/* The slot is taken for a micro-batch, or already is. */
static int hold_slot(struct check *c, const struct instr *instr)
{
    const struct memory_map *map = c->maps ? &c->maps[c->rank] : NULL;
    struct slot_state *slot = &c->slots[instr->slot];

    if (map && instr->slot >= map->n_slots) {
        return refuse(c, "slot %u is not in memory", instr->slot);
    }
    if (slot->is_held) {
        return slot->chain == instr->chain && slot->stage == instr->stage &&
                       slot->microbatch == instr->microbatch && !slot->is_forward_done
                   ? GEMS_OK
                   : refuse(c, "slot %u is held by micro-batch %u", instr->slot, slot->microbatch);
    }
    for (uint32_t i = 0; map && i < map->n_slots && i < c->n_slots; i++) {
        const struct memory_slot *x = &map->slots[i], *y = &map->slots[instr->slot];

        if (c->slots[i].is_held && x->offset < y->offset + y->bytes &&
            y->offset < x->offset + x->bytes) {
            return refuse(c, "slot %u overlaps slot %u, held by micro-batch %u", instr->slot, i,
                          c->slots[i].microbatch);
        }
    }
    *slot = (struct slot_state){ .is_held = true,
                                 .chain = instr->chain,
                                 .stage = instr->stage,
                                 .microbatch = instr->microbatch };
    return GEMS_OK;
}

static bool is_pass_of(const struct pass *pass, const struct instr *instr)
{
    return pass->chain == instr->chain && pass->stage == instr->stage &&
           pass->microbatch == instr->microbatch;
}

/* A receive or load opens the pass to come, or belongs to it. */
static int open_pass(struct check *c, const struct instr *instr)
{
    bool is_backward = instr->op == INSTR_RECV_GRAD;
    struct pass *pass = &c->before;

    if (!pass->n_recv && !pass->is_loaded) {
        *pass = (struct pass){
            .is_backward = is_backward,
            .chain = instr->chain,
            .stage = instr->stage,
            .microbatch = instr->microbatch,
            .grad_in = instr->slot,
        };
    } else if (!is_pass_of(pass, instr) || pass->is_backward != is_backward) {
        return refuse(c, "does not belong to the pass that is being received");
    } else if (is_backward && pass->grad_in != instr->slot) {
        return refuse(c, "gradients of one pass lie in two buffers");
    }
    if (instr->op == INSTR_LOAD) {
        pass->is_loaded = true;
    } else if (!is_message_of(c, instr)) {
        return refuse(c, "edge %u from rank %u is not one of the stage's", instr->edge,
                      instr->peer);
    } else {
        pass->n_recv++;
    }
    return is_backward ? GEMS_OK : hold_slot(c, instr);
}

/* What stood before the pass is what it needs; what must follow is owed. */
static int run_pass(struct check *c, const struct instr *instr)
{
    bool is_backward = instr->op == INSTR_BACKWARD || instr->op == INSTR_BACKWARD_INPUT;
    bool is_end = instr->stage == 0 || instr->stage + 1u == c->plan->n_stages;
    uint8_t *n_done = is_backward ? c->n_backward : c->n_forward;
    uint32_t n = c->program->n_microbatches;
    uint32_t chain = group_of(c) * c->plan->n_chains + instr->chain + 1;

    if (instr->stage >= c->plan->n_stages || instr->microbatch >= n ||
        plan_rank(c->plan, group_of(c), instr->chain, instr->stage) != c->rank) {
        return refuse(c, "does not belong to this rank");
    }
    if ((c->before.n_recv || c->before.is_loaded) &&
        (!is_pass_of(&c->before, instr) || c->before.is_backward != is_backward)) {
        return refuse(c, "what was received before it is another pass's");
    }
    if (c->before.n_recv != count_messages(c, instr->stage, false, is_backward)) {
        return refuse(c, "%u tensors received instead of %u", c->before.n_recv,
                      count_messages(c, instr->stage, false, is_backward));
    }
    if (!is_backward && c->before.is_loaded != is_end) {
        return refuse(c, is_end ? "nothing was loaded" : "a middle stage loads nothing");
    }
    if (n_done[instr->stage * n + instr->microbatch]++) {
        return refuse(c, "was done before");
    }
    if (c->chain_of[instr->microbatch] && c->chain_of[instr->microbatch] != chain) {
        return refuse(c, "the micro-batch is on two chains");
    }
    c->chain_of[instr->microbatch] = chain;
    c->before = (struct pass){ 0 };
    c->behind = (struct pass){
        .n_send_left = count_messages(c, instr->stage, true, is_backward),
        .is_backward = is_backward,
        .chain = instr->chain,
        .stage = instr->stage,
        .microbatch = instr->microbatch,
        .slot = instr->slot,
        .grad_out = UINT32_MAX,
    };
    return GEMS_OK;
}

static int run_forward(struct check *c, const struct instr *instr)
{
    int status = run_pass(c, instr);

    if (status == GEMS_OK) {
        status = hold_slot(c, instr);
    }
    if (status == GEMS_OK) {
        c->slots[instr->slot].is_forward_done = true;
        c->slots[instr->slot].is_held = !c->program->is_eval || c->behind.n_send_left > 0;
    }
    return status;
}

static struct check_sum *sum_of(const struct check *c, uint32_t stage)
{
    return &c->sums[c->rank * c->plan->n_stages + stage];
}

/* The slot has gone through its forward, and through its input half or not. */
static int check_slot(const struct check *c, const struct instr *instr, bool is_input_done)
{
    const struct slot_state *slot = &c->slots[instr->slot];

    if (!slot->is_held || !slot->is_forward_done || slot->chain != instr->chain ||
        slot->stage != instr->stage || slot->microbatch != instr->microbatch ||
        slot->is_input_done != is_input_done) {
        return refuse(c, "slot %u does not hold its forward", instr->slot);
    }
    return GEMS_OK;
}

/* A stage that keeps nothing runs its forward again directly before. */
static int check_recomputed(struct check *c, const struct instr *instr)
{
    bool is_wanted = c->plan->stage_recompute[instr->stage] == RECOMPUTE_ALL;

    if (is_wanted != c->is_recomputed || (is_wanted && !is_pass_of(&c->recomputed, instr))) {
        return refuse(c, is_wanted ? "its forward was not recomputed" : "was recomputed in vain");
    }
    c->is_recomputed = false;
    return GEMS_OK;
}

static int run_recompute(struct check *c, const struct instr *instr)
{
    if (plan_rank(c->plan, group_of(c), instr->chain, instr->stage) != c->rank) {
        return refuse(c, "does not belong to this rank");
    }
    if (c->is_recomputed || c->before.n_recv || c->before.is_loaded) {
        return refuse(c, "stands between a pass and what it needs");
    }
    c->is_recomputed = true;
    c->recomputed = (struct pass){ .chain = instr->chain,
                                   .stage = instr->stage,
                                   .microbatch = instr->microbatch };
    return check_slot(c, instr, c->slots[instr->slot].is_input_done);
}

static int run_backward(struct check *c, const struct instr *instr)
{
    const struct schedule *schedule = schedule_find(c->plan->schedule);
    bool is_weight = instr->op == INSTR_BACKWARD_WEIGHT;
    bool is_half = is_weight || instr->op == INSTR_BACKWARD_INPUT;
    int status = is_weight ? GEMS_OK : run_pass(c, instr);
    const char *why;

    if (schedule && schedule->is_split != is_half) {
        return refuse(c, "%s runs backwards %s", schedule->name,
                      is_half ? "as a whole" : "in halves");
    }
    if (status == GEMS_OK) {
        status = check_slot(c, instr, is_weight);
    }
    if (status == GEMS_OK) {
        status = check_recomputed(c, instr);
    }
    if (status < 0) {
        return status;
    }
    c->slots[instr->slot].is_input_done = true;
    if (instr->op == INSTR_BACKWARD_INPUT) {
        return GEMS_OK;
    }
    c->slots[instr->slot].is_held = false;
    why = check_sum_backward(sum_of(c, instr->stage), instr);
    return why ? refuse(c, "%s", why) : GEMS_OK;
}

static int run_send(struct check *c, const struct instr *instr)
{
    bool is_gradient = instr->op == INSTR_SEND_GRAD;

    if (!c->behind.n_send_left || !is_pass_of(&c->behind, instr) ||
        c->behind.is_backward != is_gradient || !is_message_of(c, instr)) {
        return refuse(c, "edge %u to rank %u is not owed by the pass before it", instr->edge,
                      instr->peer);
    }
    if (!is_gradient && instr->slot != c->behind.slot) {
        return refuse(c, "sends slot %u instead of %u", instr->slot, c->behind.slot);
    }
    if (is_gradient && c->behind.grad_out != UINT32_MAX && c->behind.grad_out != instr->slot) {
        return refuse(c, "gradients of one pass lie in two buffers");
    }
    c->behind.grad_out = instr->slot;
    c->behind.n_send_left--;
    if (c->program->is_eval && !c->behind.n_send_left) {
        c->slots[instr->slot].is_held = false;
    }
    return GEMS_OK;
}

static int run_sum(struct check *c, const struct instr *instr)
{
    uint32_t copies[PLAN_MAX_COPIES];
    uint32_t n = plan_copies(c->plan, instr->stage, copies, PLAN_MAX_COPIES), own = 0;
    const char *why = "the stage is not on this rank";

    while (own < n && copies[own] != c->rank) {
        own++;
    }
    if (own < n) {
        struct check_sum *sum = sum_of(c, instr->stage);

        why = instr->op == INSTR_COMBINE ? check_sum_combine(sum, instr)
                                         : check_sum_finish(sum, instr, own, n);
    }
    return why ? refuse(c, "%s", why) : GEMS_OK;
}

static int run_instr(struct check *c, const struct instr *instr)
{
    bool is_send = instr_is_send(instr);

    if (!is_send && c->behind.n_send_left) {
        return refuse(c, "the pass before it still has to send");
    }
    if (instr->op == INSTR_BACKWARD_WEIGHT && (c->before.n_recv || c->before.is_loaded)) {
        return refuse(c, "stands between a pass and what it receives");
    }
    if (instr->stage >= c->plan->n_stages || instr->chain >= c->plan->n_chains) {
        return refuse(c, "no such stage");
    }
    if (c->is_recomputed && instr->op != INSTR_RECV_GRAD && instr->op != INSTR_BACKWARD &&
        instr->op != INSTR_BACKWARD_INPUT && instr->op != INSTR_BACKWARD_WEIGHT) {
        return refuse(c, "comes between a recomputed forward and its backward");
    }
    switch ((enum instr_op)instr->op) {
    case INSTR_LOAD:
    case INSTR_RECV_ACT:
    case INSTR_RECV_GRAD:
        return open_pass(c, instr);
    case INSTR_FORWARD:
        return c->program->is_eval ? refuse(c, "in an evaluation") : run_forward(c, instr);
    case INSTR_EVALUATE:
        return c->program->is_eval ? run_forward(c, instr) : refuse(c, "in a training step");
    case INSTR_BACKWARD:
    case INSTR_BACKWARD_INPUT:
    case INSTR_BACKWARD_WEIGHT:
        return c->program->is_eval ? refuse(c, "in an evaluation") : run_backward(c, instr);
    case INSTR_RECOMPUTE:
        return c->program->is_eval ? refuse(c, "in an evaluation") : run_recompute(c, instr);
    case INSTR_SEND_ACT:
    case INSTR_SEND_GRAD:
        return run_send(c, instr);
    case INSTR_COMBINE:
    case INSTR_REDUCE:
    case INSTR_UPDATE:
    case INSTR_GATHER:
        return c->program->is_eval ? refuse(c, "in an evaluation") : run_sum(c, instr);
    default:
        return refuse(c, "is not in this version");
    }
}

static int walk_rank(struct check *c)
{
    const struct instr_list *list = &c->program->ranks[c->rank];
    int status = GEMS_OK;

    c->before = c->behind = (struct pass){ 0 };
    c->is_recomputed = false;
    for (uint32_t i = 0; i < c->n_slots; i++) {
        c->slots[i] = (struct slot_state){ 0 };
    }
    for (c->index = 0; c->index < list->n && status == GEMS_OK; c->index++) {
        status = run_instr(c, &list->items[c->index]);
        if (status < 0) {
            return status;
        }
    }
    if (c->before.n_recv || c->before.is_loaded || c->behind.n_send_left || c->is_recomputed) {
        return refuse(c, "ends in the middle of a pass");
    }
    for (uint32_t i = 0; i < c->n_slots; i++) {
        if (c->slots[i].is_held) {
            return refuse(c, "slot %u is held at the end", i);
        }
    }
    return GEMS_OK;
}

static int check_complete(struct check *c)
{
    uint32_t n = c->program->n_microbatches;

    for (uint32_t i = 0; i < c->plan->n_stages * n; i++) {
        if (c->n_forward[i] != 1 || c->n_backward[i] != !c->program->is_eval) {
            return gems_error_set(c->err, GEMS_E_INTERNAL,
                                  "program: stage %u micro-batch %u: %u forwards, %u backwards",
                                  i / n, i % n, c->n_forward[i], c->n_backward[i]);
        }
    }
    for (uint32_t s = 0; s < c->plan->n_stages && !c->program->is_eval; s++) {
        const char *why = check_sum_stage(c->plan, c->program, c->sums, s);

        if (why) {
            return gems_error_set(c->err, GEMS_E_INTERNAL, "program: stage %u %s", s, why);
        }
    }
    return GEMS_OK;
}

static int check_messages(const struct check *c)
{
    const struct sim_costs costs = { .maps = c->maps, .is_strict = true };
    struct sim_result result;
    struct match match;
    int status = match_make(c->program, false, &match, c->err);

    if (status < 0) {
        return status;
    }
    match_fini(&match);
    status = sim_run(c->plan, c->program, &costs, &result, c->err);
    if (status == GEMS_OK) {
        sim_result_fini(&result);
    }
    return status;
}

static uint32_t count_slots(const struct program *program)
{
    uint32_t n = 1;

    for (uint32_t rank = 0; rank < program->n_ranks; rank++) {
        for (uint32_t i = 0; i < program->ranks[rank].n; i++) {
            uint32_t slot = program->ranks[rank].items[i].slot;

            n = slot >= n ? slot + 1 : n;
        }
    }
    return n;
}

int program_check(const struct plan *plan, const bool *has_gradient, const struct program *program,
                  const struct memory_map *maps, struct gems_error *err)
{
    struct check c = {
        .plan = plan,
        .has_gradient = has_gradient,
        .program = program,
        .maps = maps,
        .err = err,
        .n_slots = count_slots(program),
    };
    size_t n_passes = (size_t)plan->n_stages * program->n_microbatches;
    int status = GEMS_OK;

    c.n_forward = calloc(2 * n_passes + 1, 1);
    c.chain_of = calloc(program->n_microbatches + 1, sizeof *c.chain_of);
    c.sums = calloc((size_t)plan->n_ranks * plan->n_stages + 1, sizeof *c.sums);
    c.slots = calloc(c.n_slots, sizeof *c.slots);
    if (!c.n_forward || !c.chain_of || !c.sums || !c.slots) {
        status = gems_error_set(err, GEMS_E_NOMEM, "check of a program: no memory");
        goto out;
    }
    c.n_backward = c.n_forward + n_passes;
    if (program->n_ranks != plan->n_ranks || !plan_width(plan) ||
        plan->n_groups * plan->n_chains > PLAN_MAX_COPIES) {
        status = gems_error_set(err, GEMS_E_INTERNAL,
                                "program: %u ranks instead of %u, %u groups of %u chains",
                                program->n_ranks, plan->n_ranks, plan->n_groups, plan->n_chains);
    }
    for (c.rank = 0; c.rank < program->n_ranks && status == GEMS_OK; c.rank++) {
        status = walk_rank(&c);
    }
    if (status == GEMS_OK) {
        status = check_complete(&c);
    }
    if (status == GEMS_OK) {
        status = check_messages(&c);
    }
out:
    free(c.n_forward);
    free(c.chain_of);
    free(c.sums);
    free(c.slots);
    return status;
}
