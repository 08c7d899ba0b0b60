#include "plan/sched.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

static const struct schedule schedules[SCHEDULE_COUNT] = {
    [SCHEDULE_AUTO] = { "auto", 0, false, false, NULL },
    [SCHEDULE_SINGLE] = { "single", 1, true, false, sched_single },
    [SCHEDULE_LAYER] = { "layer", 1, false, false, sched_layer },
    [SCHEDULE_GPIPE] = { "gpipe", 1, false, true, sched_gpipe },
    [SCHEDULE_1F1B] = { "1f1b", 1, false, true, NULL },
    [SCHEDULE_1F1B_INTERLEAVED] = { "1f1b-interleaved", 1, false, true, NULL },
    [SCHEDULE_ZB_H1] = { "zb-h1", 1, false, true, NULL },
    [SCHEDULE_V_HALF] = { "v-half", 1, false, true, NULL },
    [SCHEDULE_V_MIN] = { "v-min", 1, false, true, NULL },
    [SCHEDULE_GEMS_MAST] = { "gems-mast", 2, false, true, sched_gems_mast },
    [SCHEDULE_GEMS_MASTER] = { "gems-master", 2, false, true, NULL },
    [SCHEDULE_CHIMERA] = { "chimera", 2, false, true, NULL },
};

const char *schedule_name(enum schedule_kind kind)
{
    return (unsigned)kind < SCHEDULE_COUNT ? schedules[kind].name : "unknown";
}

int schedule_from_name(const char *name)
{
    if (!strcmp(name, "gems-basic")) {
        return SCHEDULE_LAYER;
    }
    for (int i = 0; i < SCHEDULE_COUNT; i++) {
        if (!strcmp(name, schedules[i].name)) {
            return i;
        }
    }
    return -1;
}

bool schedule_is_available(enum schedule_kind kind)
{
    return kind == SCHEDULE_AUTO || ((unsigned)kind < SCHEDULE_COUNT && schedules[kind].generate);
}

const struct schedule *schedule_find(enum schedule_kind kind)
{
    return (unsigned)kind < SCHEDULE_COUNT && kind != SCHEDULE_AUTO ? &schedules[kind] : NULL;
}

static uint32_t rank_of(const struct sched *s, uint32_t chain, uint32_t stage)
{
    return plan_rank(s->plan, 0, chain, stage);
}

static int add(struct sched *s, uint32_t chain, uint32_t stage, struct instr instr)
{
    instr.chain = (uint8_t)chain;
    instr.stage = (uint16_t)stage;
    return program_add(s->program, rank_of(s, chain, stage), &instr, s->err);
}

int sched_forward(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch,
                  uint32_t slot)
{
    const struct plan *plan = s->plan;
    struct instr instr = {
        .microbatch = microbatch,
        .slot = (uint16_t)(slot + s->input->first_slot),
    };
    int status = GEMS_OK;

    instr.op = INSTR_RECV_ACT;
    for (uint32_t e = 0; e < plan->n_edges && status == GEMS_OK; e++) {
        if (plan->edges[e].to_stage == stage) {
            instr.edge = e;
            instr.peer = (uint16_t)rank_of(s, chain, plan->edges[e].from_stage);
            status = add(s, chain, stage, instr);
        }
    }
    instr.edge = 0;
    instr.peer = 0;
    if (status == GEMS_OK && (stage == 0 || stage + 1 == plan->n_stages)) {
        instr.op = INSTR_LOAD;
        status = add(s, chain, stage, instr);
    }
    if (status == GEMS_OK) {
        instr.op = s->input->is_eval ? INSTR_EVALUATE : INSTR_FORWARD;
        status = add(s, chain, stage, instr);
    }
    instr.op = INSTR_SEND_ACT;
    for (uint32_t e = 0; e < plan->n_edges && status == GEMS_OK; e++) {
        if (plan->edges[e].from_stage == stage) {
            instr.edge = e;
            instr.peer = (uint16_t)rank_of(s, chain, plan->edges[e].to_stage);
            status = add(s, chain, stage, instr);
        }
    }
    return status;
}

/* Receives (to the stage) or sends (from it) of the gradients of edges. */
static int add_gradients(struct sched *s, uint32_t chain, uint32_t stage, struct instr instr)
{
    const struct plan *plan = s->plan;
    bool is_send = instr.op == INSTR_SEND_GRAD;
    int status = GEMS_OK;

    for (uint32_t e = 0; e < plan->n_edges && status == GEMS_OK; e++) {
        uint32_t from = plan->edges[e].to_stage, to = plan_grad_stage(plan, e);

        if (s->input->has_gradient[plan->edges[e].node] && (is_send ? from : to) == stage) {
            instr.edge = e;
            instr.peer = (uint16_t)rank_of(s, chain, is_send ? to : from);
            status = add(s, chain, stage, instr);
        }
    }
    return status;
}

int sched_backward(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch,
                   uint32_t slot, uint32_t grad_buffer)
{
    struct blocks *sums = &s->sums[rank_of(s, chain, stage) * s->plan->n_stages + stage];
    struct instr pass = {
        .op = INSTR_BACKWARD,
        .microbatch = microbatch,
        .slot = (uint16_t)(slot + s->input->first_slot),
    };
    struct instr message = { .microbatch = microbatch, .slot = (uint16_t)grad_buffer };
    uint32_t to, from;
    bool is_first;
    int status;

    message.op = INSTR_RECV_GRAD;
    status = add_gradients(s, chain, stage, message);
    if (status < 0) {
        return status;
    }
    pass.block = (uint16_t)blocks_add(sums, &is_first);
    pass.is_first = is_first;
    status = add(s, chain, stage, pass);
    if (status < 0) {
        return status;
    }
    message.op = INSTR_SEND_GRAD;
    status = add_gradients(s, chain, stage, message);
    while (status == GEMS_OK && blocks_combine(sums, microbatch, &to, &from)) {
        status = add(s, chain, stage,
                     (struct instr){ .op = INSTR_COMBINE,
                                     .microbatch = microbatch,
                                     .slot = (uint16_t)from,
                                     .block = (uint16_t)to });
    }
    return status;
}

static int finish_stage(struct sched *s, uint32_t rank, uint32_t stage)
{
    uint32_t copies[2 * SPEC_MAX_STAGES], mask = 0;
    uint32_t n = plan_copies(s->plan, stage, copies, 2 * SPEC_MAX_STAGES);
    struct instr instr = { .op = INSTR_REDUCE, .stage = (uint16_t)stage };
    int status = GEMS_OK;

    for (uint32_t c = 0; c < n; c++) {
        mask |= (uint32_t)s->sums[copies[c] * s->plan->n_stages + stage].has_any << c;
    }
    if (n > 1) {
        instr.microbatch = mask;
        status = program_add(s->program, rank, &instr, s->err);
    }
    instr.microbatch = 0;
    instr.op = INSTR_UPDATE;
    if (status == GEMS_OK) {
        status = program_add(s->program, rank, &instr, s->err);
    }
    instr.op = INSTR_GATHER;
    if (status == GEMS_OK && n > 1) {
        status = program_add(s->program, rank, &instr, s->err);
    }
    return status;
}

/* Copies of a stage must reduce in one order: the later stages first, whose
 * gradients are complete first. */
static int finish(struct sched *s)
{
    int status = GEMS_OK;

    for (uint32_t rank = 0; rank < s->plan->n_ranks; rank++) {
        uint32_t stages[PLAN_MAX_RESIDENT];
        uint32_t n = plan_resident(s->plan, rank, stages);

        while (n-- > 0 && status == GEMS_OK) {
            status = finish_stage(s, rank, stages[n]);
        }
    }
    return status;
}

int sched_make(const struct sched_input *input, struct program *ret_program, struct gems_error *err)
{
    const struct plan *plan = input->plan;
    const struct schedule *schedule = schedule_find(plan->schedule);
    struct program program = { 0 };
    struct sched s = { .input = input, .plan = plan, .program = &program, .err = err };
    int status;

    if (!schedule || !schedule->generate) {
        return gems_error_set(err, GEMS_E_UNSUPPORTED,
                              "parallel.schedule: %s is not in this version",
                              schedule_name(plan->schedule));
    }
    status = program_init(&program, plan->n_ranks, err);
    if (status < 0) {
        return status;
    }
    program.is_eval = input->is_eval;
    program.n_microbatches = input->n_microbatches;
    program.microbatch = input->microbatch;
    program.last_microbatch = input->last_microbatch;
    s.sums = calloc((size_t)plan->n_ranks * plan->n_stages, sizeof *s.sums);
    if (!s.sums) {
        status = gems_error_set(err, GEMS_E_NOMEM, "program of %u ranks: no memory", plan->n_ranks);
        goto out;
    }
    if (input->is_eval) {
        status = sched_eval(&s);
        goto out;
    }
    for (uint32_t rank = 0; rank < plan->n_ranks; rank++) {
        for (uint32_t stage = 0; stage < plan->n_stages; stage++) {
            bool is_mirror_only = plan->n_chains > 1 && rank_of(&s, 0, stage) != rank;

            blocks_init(&s.sums[rank * plan->n_stages + stage],
                        is_mirror_only ? gradient_split(plan->n_blocks) : 0, plan->n_blocks,
                        input->n_microbatches);
        }
    }
    status = schedule->generate(&s);
    if (status == GEMS_OK) {
        status = finish(&s);
    }
out:
    free(s.sums);
    if (status == GEMS_OK) {
        *ret_program = program;
    } else {
        program_fini(&program);
    }
    return status;
}
