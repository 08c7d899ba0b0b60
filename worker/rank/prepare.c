#include "worker/rank/prepare.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

struct preparer {
    const struct plan *plan;
    const struct exec_memory *memory;
    const struct stage *const *stages;
    uint32_t n_stages, rank;
};

const struct program *plan_program(const struct plan *plan, enum program_kind kind)
{
    const struct program *const programs[PROGRAM_KIND_COUNT] = { &plan->train, &plan->train_last,
                                                                 &plan->eval, &plan->eval_last };

    return programs[kind];
}

static int refuse(const struct exec_item *item, const char *why, struct gems_error *err)
{
    return gems_error_set(err, GEMS_E_INTERNAL,
                          "program: %s of chain %u stage %u micro-batch %u: %s",
                          instr_name(item->instr.op), item->instr.chain, item->instr.stage,
                          item->instr.microbatch, why);
}

static bool is_receive(const struct instr *in)
{
    return in->op == INSTR_RECV_ACT || in->op == INSTR_RECV_GRAD;
}

static bool is_message(const struct instr *in)
{
    return in->op >= INSTR_SEND_ACT && in->op <= INSTR_RECV_GRAD;
}

static bool is_same_pass(const struct instr *a, const struct instr *b)
{
    return a->chain == b->chain && a->stage == b->stage && a->microbatch == b->microbatch;
}

/* First instruction of kind op that belongs to the same pass through the stage. */
static const struct instr *find_in_pass(const struct instr_list *list, enum instr_op op,
                                        const struct instr *pass)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->items[i].op == op && is_same_pass(&list->items[i], pass)) {
            return &list->items[i];
        }
    }
    return NULL;
}

static uint8_t *slot_memory(const struct preparer *p, uint32_t slot)
{
    return (uint8_t *)p->memory->activations + p->memory->map->slots[slot].offset;
}

static int bind_slot(const struct preparer *p, struct exec_item *item, struct gems_error *err)
{
    uint32_t slot = item->instr.slot;

    if (slot >= p->memory->map->n_slots) {
        return refuse(item, "no such slot", err);
    }
    if (item->variant->layout.slot_bytes > p->memory->map->slots[slot].bytes) {
        return refuse(item, "its slot is too small", err);
    }
    item->slot = slot_memory(p, slot);
    item->slot_area = (int32_t)slot;
    return GEMS_OK;
}

/* The gradient buffers of a BACKWARD are those of the messages around it. */
static int bind_gradients(const struct preparer *p, const struct instr_list *list,
                          struct exec_item *item, struct gems_error *err)
{
    const struct memory_map *map = p->memory->map;
    const struct instr *in = find_in_pass(list, INSTR_RECV_GRAD, &item->instr);
    const struct instr *out = find_in_pass(list, INSTR_SEND_GRAD, &item->instr);

    if ((in && in->slot >= map->n_grad_in) || (out && out->slot >= map->n_grad_out)) {
        return refuse(item, "no such gradient buffer", err);
    }
    if (in) {
        item->grad_in = (uint8_t *)p->memory->grad_in + in->slot * map->grad_in_bytes;
    }
    if (out) {
        item->grad_out = (uint8_t *)p->memory->grad_out + out->slot * map->grad_out_bytes;
        item->grad_out_area = (int32_t)(map->n_slots + out->slot);
    }
    return GEMS_OK;
}

static const struct layout_edge *edge_of(const struct layout_edge *edges, uint32_t n, uint32_t edge)
{
    for (uint32_t i = 0; i < n; i++) {
        if (edges[i].edge == edge) {
            return &edges[i];
        }
    }
    return NULL;
}

/* Start of the memory that a message's place is counted from. */
static int bind_buffer(const struct preparer *p, struct exec_item *item, struct gems_error *err)
{
    const struct memory_map *map = p->memory->map;
    const struct instr *in = &item->instr;

    switch ((enum instr_op)in->op) {
    case INSTR_RECV_GRAD:
        if (in->slot >= map->n_grad_in) {
            return refuse(item, "no such gradient buffer", err);
        }
        item->buffer = (uint8_t *)p->memory->grad_in + in->slot * map->grad_in_bytes;
        return GEMS_OK;
    case INSTR_SEND_GRAD:
        if (in->slot >= map->n_grad_out) {
            return refuse(item, "no such gradient buffer", err);
        }
        item->buffer = (uint8_t *)p->memory->grad_out + in->slot * map->grad_out_bytes;
        item->grad_out_area = (int32_t)(map->n_slots + in->slot);
        return GEMS_OK;
    default:
        if (bind_slot(p, item, err) < 0) {
            return GEMS_E_INTERNAL;
        }
        item->buffer = item->slot;
        return GEMS_OK;
    }
}

static int bind_message(const struct preparer *p, struct exec_item *item, struct gems_error *err)
{
    const struct instr *in = &item->instr;
    const struct layout *layout = &item->variant->layout;
    bool is_act = in->op == INSTR_SEND_ACT || in->op == INSTR_RECV_ACT;
    bool is_input = in->op == INSTR_RECV_ACT || in->op == INSTR_SEND_GRAD;
    const struct layout_edge *edge = is_input ? edge_of(layout->in, layout->n_in, in->edge)
                                              : edge_of(layout->out, layout->n_out, in->edge);
    struct place place;
    int status;

    if (!edge || in->edge >= p->plan->n_edges) {
        return refuse(item, "no such edge", err);
    }
    place = is_act ? edge->act : edge->grad;
    if (place.space == SPACE_NONE) {
        return refuse(item, "its tensor has no place", err);
    }
    if (in->peer >= p->plan->n_ranks) {
        return refuse(item, "impossible peer", err);
    }
    status = bind_buffer(p, item, err);
    if (status < 0) {
        return status;
    }
    item->buffer += place.offset;
    item->bytes = edge->bytes;
    item->tag =
        program_tag(is_act ? TAG_ACT : TAG_GRAD, in->chain, in->edge,
                    is_act ? p->plan->edges[in->edge].to_stage : plan_grad_stage(p->plan, in->edge),
                    in->microbatch, 0);
    return GEMS_OK;
}

static int bind_item(const struct preparer *p, const struct program *program,
                     const struct instr_list *list, struct exec_item *item, struct gems_error *err)
{
    int status = GEMS_OK;

    while (item->resident < p->n_stages && p->stages[item->resident]->index != item->instr.stage) {
        item->resident++;
    }
    if (item->resident == p->n_stages) {
        return refuse(item, "its stage is not on this rank", err);
    }
    item->variant =
        stage_variant_find(p->stages[item->resident],
                           program_samples(program, item->instr.microbatch), program->is_eval);
    switch ((enum instr_op)item->instr.op) {
    case INSTR_COMBINE:
        if (item->instr.slot >= p->memory->map->n_blocks) {
            return refuse(item, "no such gradient block", err);
        }
        break;
    case INSTR_REDUCE:
    case INSTR_UPDATE:
    case INSTR_GATHER:
        break;
    case INSTR_LOAD:
    case INSTR_FORWARD:
    case INSTR_EVALUATE:
    case INSTR_BACKWARD:
    case INSTR_SEND_ACT:
    case INSTR_RECV_ACT:
    case INSTR_SEND_GRAD:
    case INSTR_RECV_GRAD:
        break;
    default:
        return gems_error_set(err, GEMS_E_UNSUPPORTED, "program: %s is not in this version",
                              instr_name(item->instr.op));
    }
    /* a copy without micro-batches has no gradient blocks at all */
    if ((item->instr.op == INSTR_BACKWARD || item->instr.op == INSTR_COMBINE) &&
        item->instr.block >= p->memory->map->n_blocks) {
        return refuse(item, "no such gradient block", err);
    }
    if (item->instr.op >= INSTR_COMBINE && item->instr.op <= INSTR_GATHER) {
        item->variant = NULL;
        return GEMS_OK;
    }
    if (!item->variant) {
        return refuse(item, "no operators for its size", err);
    }
    if (is_message(&item->instr)) {
        return bind_message(p, item, err);
    }
    status = bind_slot(p, item, err);
    if (status == GEMS_OK && item->instr.op == INSTR_BACKWARD) {
        status = bind_gradients(p, list, item, err);
    }
    return status;
}

static enum instr_op input_of(const struct instr *in)
{
    switch ((enum instr_op)in->op) {
    case INSTR_FORWARD:
    case INSTR_EVALUATE:
        return INSTR_RECV_ACT;
    case INSTR_BACKWARD:
        return INSTR_RECV_GRAD;
    default:
        return INSTR_OP_COUNT;
    }
}

/* Which receives each FORWARD and BACKWARD reads. Every receive is read once. */
static int bind_inputs(struct exec_program *program, struct gems_error *err)
{
    uint32_t n = 0, n_receives = 0;

    for (uint32_t i = 0; i < program->n_items; i++) {
        n_receives += is_receive(&program->items[i].instr);
    }
    program->inputs = calloc(n_receives + 1, sizeof *program->inputs);
    if (!program->inputs) {
        return gems_error_set(err, GEMS_E_NOMEM, "program: no host memory");
    }
    for (uint32_t i = 0; i < program->n_items; i++) {
        struct exec_item *item = &program->items[i];
        enum instr_op op = input_of(&item->instr);

        item->first_input = n;
        for (uint32_t j = 0; op != INSTR_OP_COUNT && j < i; j++) {
            if (program->items[j].instr.op == op &&
                is_same_pass(&program->items[j].instr, &item->instr)) {
                if (n == n_receives) {
                    return refuse(item, "reads a tensor that was read before", err);
                }
                program->inputs[n++] = j;
            }
        }
        item->n_inputs = n - item->first_input;
    }
    if (n != n_receives) {
        return gems_error_set(err, GEMS_E_INTERNAL, "program: a received tensor is never read");
    }
    return GEMS_OK;
}

static int compare_posts(const void *a, const void *b)
{
    const struct exec_post *x = a, *y = b;

    if (x->after != y->after) {
        return x->after < y->after ? -1 : 1;
    }
    return x->item < y->item ? -1 : x->item > y->item;
}

static int posts_alloc(struct exec_posts *posts, uint32_t n, struct gems_error *err)
{
    posts->posts = calloc(n + 1, sizeof *posts->posts);
    return posts->posts ? GEMS_OK : gems_error_set(err, GEMS_E_NOMEM, "program: no host memory");
}

static int make_own_posts(const struct preparer *p, const struct instr_list *list,
                          struct exec_program *program, struct gems_error *err)
{
    struct exec_posts *own = &program->own;
    int status = posts_alloc(own, list->n, err);

    for (uint32_t i = 0; status == GEMS_OK && i < list->n; i++) {
        if (is_receive(&list->items[i])) {
            own->posts[own->n++] =
                (struct exec_post){ i, (uint32_t)(memory_recv_after(p->memory->map, list, i) + 1) };
        }
    }
    if (own->posts) {
        qsort(own->posts, own->n, sizeof *own->posts, compare_posts);
    }
    return status;
}

/* Receives that depend on nothing in their own program wait for the one before
 * it only: both lists one behind the other, with other micro-batch numbers in
 * the second, ask the same question. Messages of equal tag match in order, so
 * the earlier program must have posted its receive of that tag, too. */
static int make_early_posts(const struct preparer *p, const struct instr_list *before,
                            const struct instr_list *list, const struct exec_program *program,
                            struct exec_posts *ret_posts, const struct exec_program *program_before,
                            struct gems_error *err)
{
    struct instr_list both = { .n = before->n + list->n };
    int status = posts_alloc(ret_posts, program->own.n, err);

    both.items = calloc(both.n + 1, sizeof *both.items);
    if (status < 0 || !both.items) {
        free(both.items);
        return gems_error_set(err, GEMS_E_NOMEM, "program: no host memory");
    }
    if (before->n) {
        memcpy(both.items, before->items, before->n * sizeof *both.items);
    }
    for (uint32_t i = 0; i < list->n; i++) {
        both.items[before->n + i] = list->items[i];
        both.items[before->n + i].microbatch += program_before->program->n_microbatches;
    }
    for (uint32_t k = 0; k < program->own.n && program->own.posts[k].after == 0; k++) {
        uint32_t i = program->own.posts[k].item;
        int64_t after = memory_recv_after(p->memory->map, &both, before->n + i) + 1;

        for (uint32_t j = (uint32_t)after; j < before->n; j++) {
            if (is_receive(&before->items[j]) && before->items[j].peer == list->items[i].peer &&
                program_before->items[j].tag == program->items[i].tag) {
                after = j + 1;
            }
        }
        ret_posts->posts[ret_posts->n++] = (struct exec_post){ i, (uint32_t)after };
    }
    qsort(ret_posts->posts, ret_posts->n, sizeof *ret_posts->posts, compare_posts);
    free(both.items);
    return GEMS_OK;
}

/* Both ends of a message to oneself stand in one list, the send before. */
static int bind_partners(const struct preparer *p, const struct instr_list *list,
                         struct exec_program *program, struct gems_error *err)
{
    for (uint32_t i = 0; i < program->n_items; i++) {
        struct exec_item *send = &program->items[i], *recv = send + 1;
        struct exec_item *end = &program->items[program->n_items];

        if (!is_message(&send->instr) || send->instr.peer != p->rank || send->partner) {
            continue;
        }
        while (recv < end && (!is_message(&recv->instr) || recv->instr.peer != p->rank ||
                              recv->tag != send->tag)) {
            recv++;
        }
        if (recv == end || is_receive(&send->instr) || !is_receive(&recv->instr) ||
            recv->bytes != send->bytes) {
            return refuse(send, "the rank does not receive what it sends to itself", err);
        }
        send->partner = recv;
        recv->partner = send;
        recv->after =
            (uint32_t)(memory_recv_after(p->memory->map, list, (uint32_t)(recv - program->items)) +
                       1);
    }
    return GEMS_OK;
}

static int prepare_one(const struct preparer *p, const struct program *program,
                       struct exec_program *ret_program, struct gems_error *err)
{
    const struct instr_list *list = &program->ranks[p->rank];
    uint32_t n = program->n_microbatches;
    int status;

    ret_program->program = program;
    ret_program->n_items = list->n;
    ret_program->items = calloc(list->n + 1, sizeof *ret_program->items);
    ret_program->reduce_copies = calloc(p->n_stages + 1, sizeof *ret_program->reduce_copies);
    ret_program->loss_sum = calloc(n + 1, sizeof *ret_program->loss_sum);
    ret_program->n_correct = calloc(n + 1, sizeof *ret_program->n_correct);
    ret_program->has_loss = calloc(n + 1, sizeof *ret_program->has_loss);
    if (!ret_program->items || !ret_program->reduce_copies || !ret_program->loss_sum ||
        !ret_program->n_correct || !ret_program->has_loss) {
        return gems_error_set(err, GEMS_E_NOMEM, "program: no host memory");
    }
    for (uint32_t i = 0; i < list->n; i++) {
        struct exec_item *item = &ret_program->items[i];

        *item = (struct exec_item){ .instr = list->items[i], .slot_area = -1, .grad_out_area = -1 };
        if (item->instr.op != INSTR_REDUCE && item->instr.microbatch >= n) {
            return refuse(item, "no such micro-batch", err);
        }
        status = bind_item(p, program, list, item, err);
        if (status < 0) {
            return status;
        }
        if (item->instr.op == INSTR_REDUCE) {
            ret_program->reduce_copies[item->resident] = item->instr.microbatch;
        }
        if ((item->instr.op == INSTR_FORWARD || item->instr.op == INSTR_EVALUATE) &&
            item->instr.stage + 1u == p->plan->n_stages) {
            ret_program->has_loss[item->instr.microbatch] = true;
        }
    }
    status = bind_partners(p, list, ret_program, err);
    return status < 0 ? status : bind_inputs(ret_program, err);
}

int prepare_programs(const struct plan *plan, uint32_t rank, const struct exec_memory *memory,
                     const struct stage *const *stages, uint32_t n_stages,
                     struct exec_program ret_programs[PROGRAM_KIND_COUNT], struct gems_error *err)
{
    struct preparer p = { plan, memory, stages, n_stages, rank };
    int status;

    for (int kind = 0; kind < PROGRAM_KIND_COUNT; kind++) {
        const struct program *program = plan_program(plan, (enum program_kind)kind);

        if (program->n_ranks == 0) {
            continue;
        }
        status = prepare_one(&p, program, &ret_programs[kind], err);
        if (status == GEMS_OK) {
            status = make_own_posts(&p, &program->ranks[rank], &ret_programs[kind], err);
        }
        if (status < 0) {
            return status;
        }
    }
    for (int kind = 0; kind < PROGRAM_KIND_COUNT; kind++) {
        for (int before = 0; before < PROGRAM_KIND_COUNT; before++) {
            struct exec_program *program = &ret_programs[kind], *other = &ret_programs[before];

            if (!program->program || !other->program) {
                continue;
            }
            status =
                make_early_posts(&p, &other->program->ranks[rank], &program->program->ranks[rank],
                                 program, &program->early[before], other, err);
            if (status < 0) {
                return status;
            }
        }
    }
    return GEMS_OK;
}

void prepare_fini(struct exec_program programs[PROGRAM_KIND_COUNT])
{
    for (int kind = 0; kind < PROGRAM_KIND_COUNT; kind++) {
        struct exec_program *program = &programs[kind];

        free(program->items);
        free(program->inputs);
        free(program->own.posts);
        for (int before = 0; before < PROGRAM_KIND_COUNT; before++) {
            free(program->early[before].posts);
        }
        free(program->reduce_copies);
        free(program->loss_sum);
        free(program->n_correct);
        free(program->has_loss);
        memset(program, 0, sizeof *program);
    }
}
