#include "plan/sched.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

static const struct schedule schedules[SCHEDULE_COUNT] = {
    [SCHEDULE_AUTO] = { .name = "auto", .is_available = true },
    [SCHEDULE_SINGLE] = { .name = "single",
                          .n_chains = 1,
                          .chunks = 1,
                          .is_one_stage = true,
                          .is_available = true,
                          .generate = sched_single },
    [SCHEDULE_LAYER] = { .name = "layer",
                         .n_chains = 1,
                         .chunks = 1,
                         .is_available = true,
                         .generate = sched_layer },
    [SCHEDULE_GPIPE] = { .name = "gpipe",
                         .n_chains = 1,
                         .chunks = 1,
                         .is_available = true,
                         .generate = sched_gpipe },
    [SCHEDULE_1F1B] = { .name = "1f1b",
                        .n_chains = 1,
                        .chunks = 1,
                        .is_available = true,
                        .generate = sched_1f1b },
    [SCHEDULE_1F1B_INTERLEAVED] = { .name = "1f1b-interleaved",
                                    .n_chains = 1,
                                    .is_available = true,
                                    .generate = sched_1f1b_interleaved },
    [SCHEDULE_ZB_H1] = { .name = "zb-h1",
                         .n_chains = 1,
                         .chunks = 1,
                         .is_split = true,
                         .generate = sched_zb_h1 },
    [SCHEDULE_V_HALF] = { .name = "v-half",
                          .n_chains = 1,
                          .chunks = 2,
                          .is_v = true,
                          .is_split = true,
                          .generate = sched_v_half },
    [SCHEDULE_V_MIN] = { .name = "v-min",
                         .n_chains = 1,
                         .chunks = 2,
                         .is_v = true,
                         .is_split = true,
                         .generate = sched_v_min },
    [SCHEDULE_GEMS_MAST] = { .name = "gems-mast",
                             .n_chains = 2,
                             .chunks = 1,
                             .is_available = true,
                             .generate = sched_gems_mast },
    [SCHEDULE_GEMS_MASTER] = { .name = "gems-master",
                               .n_chains = 2,
                               .chunks = 1,
                               .is_available = true,
                               .generate = sched_gems_master },
    [SCHEDULE_CHIMERA] = { .name = "chimera",
                           .n_chains = 2,
                           .chunks = 1,
                           .is_even = true,
                           .is_available = true,
                           .generate = sched_chimera },
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
    return (unsigned)kind < SCHEDULE_COUNT && schedules[kind].is_available;
}

const struct schedule *schedule_find(enum schedule_kind kind)
{
    return (unsigned)kind < SCHEDULE_COUNT && kind != SCHEDULE_AUTO ? &schedules[kind] : NULL;
}

uint32_t schedule_chunks(const struct schedule *schedule, const struct parallel_spec *parallel)
{
    return schedule->chunks ? schedule->chunks : parallel->chunks ? parallel->chunks : 2;
}

uint32_t sched_pass_microbatches(const struct plan *plan, uint32_t n_passes)
{
    uint32_t n = (plan->n_microbatches + plan->n_groups - 1) / plan->n_groups;

    n_passes = n_passes ? n_passes : 2;
    return (n + n_passes - 1) / n_passes;
}

int schedule_check_width(const struct schedule *schedule, uint32_t width, struct gems_error *err)
{
    if (!schedule->is_even || width % 2 == 0) {
        return GEMS_OK;
    }
    gems_error_set(err, GEMS_E_INVALID,
                   "parallel.stages: %s runs on an even number of stages, not on %u",
                   schedule->name, width);
    if (width > 1) {
        gems_error_hint(err, "%u or %u stages, or gems-mast, which takes any number", width - 1,
                        width + 1);
    }
    return GEMS_E_INVALID;
}

static uint32_t rank_of(const struct sched *s, uint32_t chain, uint32_t stage)
{
    return plan_rank(s->plan, s->group, chain, stage);
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

static struct blocks *sums_of(struct sched *s, uint32_t rank, uint32_t stage, uint32_t chain)
{
    return &s->sums[(rank * s->plan->n_stages + stage) * 2 + chain];
}

static int combine(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch,
                   uint32_t to, uint32_t from)
{
    return add(s, chain, stage,
               (struct instr){ .op = INSTR_COMBINE,
                               .microbatch = microbatch,
                               .slot = (uint16_t)from,
                               .block = (uint16_t)to });
}

/* A device that holds the stage in both chains (the middle one of an odd number)
 * sums each chain by itself, in the same set of buffers, and then both: their
 * micro-batches may alternate. */
static int combine_chains(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch)
{
    struct blocks *own = sums_of(s, rank_of(s, chain, stage), stage, chain), *other;

    if (s->plan->n_chains < 2 || rank_of(s, 0, stage) != rank_of(s, 1, stage)) {
        return GEMS_OK;
    }
    other = sums_of(s, rank_of(s, chain, stage), stage, !chain);
    other->is_used = own->is_used;
    if (own->n_left || other->n_left || !own->has_any || !other->has_any) {
        return GEMS_OK;
    }
    return combine(s, chain, stage, microbatch, (chain ? other : own)->parts[0].buffer,
                   (chain ? own : other)->parts[0].buffer);
}

/* Gradients of a pass into their buffer, and what is complete with them. */
static int add_sums(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch)
{
    struct blocks *sums = sums_of(s, rank_of(s, chain, stage), stage, chain);
    uint32_t to, from;
    int status = GEMS_OK;

    sums->n_left--;
    while (status == GEMS_OK && blocks_combine(sums, microbatch, &to, &from)) {
        status = combine(s, chain, stage, microbatch, to, from);
    }
    return status == GEMS_OK ? combine_chains(s, chain, stage, microbatch) : status;
}

/* Before a backward or a half of it, where the stage keeps nothing. */
static int add_recompute(struct sched *s, uint32_t chain, uint32_t stage, struct instr pass)
{
    struct instr again = { .op = INSTR_RECOMPUTE,
                           .microbatch = pass.microbatch,
                           .slot = pass.slot };

    return s->plan->stage_recompute[stage] == RECOMPUTE_ALL ? add(s, chain, stage, again) : GEMS_OK;
}

/* A pass that reads gradients and sends on what it makes of them. */
static int add_gradient_pass(struct sched *s, uint32_t chain, uint32_t stage, struct instr pass,
                             uint32_t grad_in, uint32_t grad_out)
{
    struct instr message = { .microbatch = pass.microbatch, .slot = (uint16_t)grad_in };
    int status = add_recompute(s, chain, stage, pass);

    message.op = INSTR_RECV_GRAD;
    if (status == GEMS_OK) {
        status = add_gradients(s, chain, stage, message);
    }
    if (status == GEMS_OK) {
        status = add(s, chain, stage, pass);
    }
    message.op = INSTR_SEND_GRAD;
    message.slot = (uint16_t)grad_out;
    return status == GEMS_OK ? add_gradients(s, chain, stage, message) : status;
}

/* The pass with the gradient buffer that it adds to. */
static struct instr with_block(struct sched *s, uint32_t chain, uint32_t stage, struct instr pass)
{
    bool is_first;

    pass.block =
        (uint16_t)blocks_add(sums_of(s, rank_of(s, chain, stage), stage, chain), &is_first);
    pass.is_first = is_first;
    return pass;
}

int sched_backward(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch,
                   uint32_t slot, uint32_t grad_in, uint32_t grad_out)
{
    struct instr pass = {
        .op = INSTR_BACKWARD,
        .microbatch = microbatch,
        .slot = (uint16_t)(slot + s->input->first_slot),
    };
    int status =
        add_gradient_pass(s, chain, stage, with_block(s, chain, stage, pass), grad_in, grad_out);

    return status == GEMS_OK ? add_sums(s, chain, stage, microbatch) : status;
}

int sched_backward_input(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch,
                         uint32_t slot, uint32_t grad_in, uint32_t grad_out)
{
    struct instr pass = {
        .op = INSTR_BACKWARD_INPUT,
        .microbatch = microbatch,
        .slot = (uint16_t)(slot + s->input->first_slot),
    };

    return add_gradient_pass(s, chain, stage, pass, grad_in, grad_out);
}

int sched_backward_weight(struct sched *s, uint32_t chain, uint32_t stage, uint32_t microbatch,
                          uint32_t slot)
{
    struct instr pass = {
        .op = INSTR_BACKWARD_WEIGHT,
        .microbatch = microbatch,
        .slot = (uint16_t)(slot + s->input->first_slot),
    };
    int status = add_recompute(s, chain, stage, pass);

    if (status == GEMS_OK) {
        status = add(s, chain, stage, with_block(s, chain, stage, pass));
    }
    return status == GEMS_OK ? add_sums(s, chain, stage, microbatch) : status;
}

static int finish_stage(struct sched *s, uint32_t rank, uint32_t stage)
{
    uint32_t copies[PLAN_MAX_COPIES], mask = 0;
    uint32_t n = plan_copies(s->plan, stage, copies, PLAN_MAX_COPIES);
    struct instr instr = { .op = INSTR_REDUCE, .stage = (uint16_t)stage };
    int status = GEMS_OK;

    for (uint32_t c = 0; c < n; c++) {
        bool has_any =
            sums_of(s, copies[c], stage, 0)->has_any || sums_of(s, copies[c], stage, 1)->has_any;

        mask |= (uint32_t)has_any << c;
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

/* Sums of every stage of the group, from the blocks its chains own. */
static void start_sums(struct sched *s)
{
    for (uint32_t chain = 0; chain < s->plan->n_chains; chain++) {
        uint32_t first, last;

        plan_blocks(s->plan, s->group, chain, &first, &last);
        for (uint32_t stage = 0; stage < s->plan->n_stages; stage++) {
            struct blocks *sums = sums_of(s, rank_of(s, chain, stage), stage, chain);

            blocks_init(sums, first, s->plan->n_blocks, s->input->n_microbatches);
            sums->n_left = chain ? s->last - s->middle : s->middle - s->first;
        }
    }
}

static int generate(struct sched *s, const struct schedule *schedule)
{
    int status = GEMS_OK;

    for (s->group = 0; s->group < s->plan->n_groups && status == GEMS_OK; s->group++) {
        plan_share(s->plan, s->group, s->input->n_microbatches, &s->first, &s->middle, &s->last);
        if (s->input->is_eval) {
            status = sched_eval(s);
        } else {
            start_sums(s);
            status = schedule->generate(s);
        }
    }
    return status == GEMS_OK && !s->input->is_eval ? finish(s) : status;
}

static int check_layout(const struct plan *plan, const struct schedule *schedule,
                        struct gems_error *err)
{
    if (!schedule || !schedule->generate) {
        return gems_error_set(err, GEMS_E_UNSUPPORTED,
                              "parallel.schedule: %s is not in this version",
                              schedule_name(plan->schedule));
    }
    if (!plan_width(plan) || plan->n_ranks % plan->n_groups || plan->n_stages % plan_width(plan)) {
        return gems_error_set(err, GEMS_E_INTERNAL, "program: %u stages on %u ranks in %u groups",
                              plan->n_stages, plan->n_ranks, plan->n_groups);
    }
    if (schedule_check_width(schedule, plan_width(plan), err) < 0) {
        return GEMS_E_INVALID;
    }
    return plan_keeps_sums(plan)
               ? GEMS_OK
               : gems_error_set(err, GEMS_E_INVALID,
                                "parallel.gradient_blocks: %u cannot be dealt to %u copies",
                                plan->n_blocks, plan->n_groups * plan->n_chains);
}

int sched_make(const struct sched_input *input, struct program *ret_program, struct gems_error *err)
{
    const struct plan *plan = input->plan;
    const struct schedule *schedule = schedule_find(plan->schedule);
    struct program program = { 0 };
    struct sched s = {
        .input = input, .plan = plan, .program = &program, .err = err, .width = plan_width(plan)
    };
    int status = check_layout(plan, schedule, err);

    if (status == GEMS_OK) {
        status = program_init(&program, plan->n_ranks, err);
    }
    if (status < 0) {
        return status;
    }
    program.is_eval = input->is_eval;
    program.n_microbatches = input->n_microbatches;
    program.microbatch = input->microbatch;
    program.last_microbatch = input->last_microbatch;
    s.sums = calloc((size_t)plan->n_ranks * plan->n_stages * 2, sizeof *s.sums);
    status =
        s.sums ? generate(&s, schedule)
               : gems_error_set(err, GEMS_E_NOMEM, "program of %u ranks: no memory", plan->n_ranks);
    free(s.sums);
    if (status == GEMS_OK) {
        *ret_program = program;
    } else {
        program_fini(&program);
    }
    return status;
}
