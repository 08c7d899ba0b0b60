#include "worker/rank/messages.h"

#include <stdlib.h>

#include "common/error.h"

static bool is_overlapping(const struct memory_map *map, uint32_t a, uint32_t b)
{
    if (a == b) {
        return true;
    }
    if (a >= map->n_slots || b >= map->n_slots) {
        return false;
    }
    return map->slots[a].offset < map->slots[b].offset + map->slots[b].bytes &&
           map->slots[b].offset < map->slots[a].offset + map->slots[a].bytes;
}

/* Writes the areas under area a, unless ret_areas is NULL; returns their number. */
static uint32_t find_overlaps(const struct exec *exec, uint32_t a, uint32_t *ret_areas)
{
    uint32_t n = 0;

    for (uint32_t b = 0; b < exec->n_areas; b++) {
        if (!is_overlapping(exec->memory.map, a, b)) {
            continue;
        }
        if (ret_areas) {
            ret_areas[n] = b;
        }
        n++;
    }
    return n;
}

int messages_init(struct exec *exec, struct gems_error *err)
{
    uint32_t n = exec->memory.map->n_slots + exec->memory.map->n_grad_out;

    exec->n_areas = n;
    exec->in_flight = calloc(n + 1, sizeof(struct exec_item *));
    exec->overlap_first = calloc(n + 1, sizeof *exec->overlap_first);
    if (!exec->in_flight || !exec->overlap_first) {
        return gems_error_set(err, GEMS_E_NOMEM, "program: no host memory");
    }
    for (uint32_t a = 0; a < n; a++) {
        exec->overlap_first[a + 1] = exec->overlap_first[a] + find_overlaps(exec, a, NULL);
    }
    exec->overlaps = calloc(exec->overlap_first[n] + 1, sizeof *exec->overlaps);
    if (!exec->overlaps) {
        return gems_error_set(err, GEMS_E_NOMEM, "program: no host memory");
    }
    for (uint32_t a = 0; a < n; a++) {
        find_overlaps(exec, a, &exec->overlaps[exec->overlap_first[a]]);
    }
    return GEMS_OK;
}

void messages_fini(struct exec *exec)
{
    free(exec->in_flight);
    free(exec->overlaps);
    free(exec->overlap_first);
    exec->in_flight = NULL;
    exec->overlaps = exec->overlap_first = NULL;
}

/* ---- messages to oneself ---- */

/* The bytes go when both ends are there: with the send, or with the receive if the
 * send came before it. */
static int pass_on(struct exec *exec, struct exec_item *send, struct gems_error *err)
{
    struct exec_item *recv = send->partner;
    enum timeline_kind before = ledger_turn(&exec->ledger, TIMELINE_COPY);
    int status = exec->backend->device->copy_in(exec->device, recv->buffer, send->buffer,
                                                send->bytes, err);

    ledger_turn(&exec->ledger, before);
    send->is_sent = false;
    recv->is_arrived = true;
    return status;
}

static int post_receive(struct exec *exec, struct exec_item *item, uint64_t run_i,
                        struct gems_error *err);

/* Whoever waits for a send whose receive is not posted posts it: nobody else would.
 * Its memory is in use by instructions before this one, or by sends that are waited
 * for in turn; a program that passed program_check has no circle of them. */
static int take_pending(struct exec *exec, struct exec_item *send, struct gems_error *err)
{
    struct exec_item *recv = send->partner;
    int status;

    if (recv->after > exec->n_done || recv->is_wanted) {
        return gems_error_set(err, GEMS_E_INTERNAL,
                              "program: %s of chain %u stage %u micro-batch %u: its receive on the "
                              "same rank waits for what waits for it",
                              instr_name(send->instr.op), send->instr.chain, send->instr.stage,
                              send->instr.microbatch);
    }
    recv->is_wanted = true;
    status = post_receive(exec, recv, exec->run_i, err);
    recv->is_wanted = false;
    return status;
}

/* ---- waiting: link_wait tells the ledger ---- */

static bool is_send_done(const struct exec_item *item)
{
    return item->partner ? !item->is_sent : link_done(&item->request);
}

static int wait_send(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    if (item->partner) {
        return item->is_sent ? take_pending(exec, item, err) : GEMS_OK;
    }
    return link_wait(&item->request, err);
}

static bool is_area_idle(const struct exec *exec, uint32_t area)
{
    for (uint32_t i = exec->overlap_first[area]; i < exec->overlap_first[area + 1]; i++) {
        const struct exec_item *item = exec->in_flight[exec->overlaps[i]];

        for (; item; item = item->next_in_area) {
            if (!is_send_done(item)) {
                return false;
            }
        }
    }
    return true;
}

/* Waits for the sends from the memory of an area. */
int messages_drain(struct exec *exec, int32_t area, struct gems_error *err)
{
    if (area < 0) {
        return GEMS_OK;
    }
    for (uint32_t i = exec->overlap_first[area]; i < exec->overlap_first[area + 1]; i++) {
        struct exec_item **head = &exec->in_flight[exec->overlaps[i]];

        while (*head) {
            int status = wait_send(exec, *head, err);

            if (status < 0) {
                return status;
            }
            *head = (*head)->next_in_area;
        }
    }
    return GEMS_OK;
}

/* ---- receives ---- */

static int wait_receive(struct exec_item *item, struct gems_error *err)
{
    if (!item->partner) {
        return link_wait(&item->request, err);
    }
    return item->is_arrived ? GEMS_OK
                            : gems_error_set(err, GEMS_E_INTERNAL,
                                             "program: %s of chain %u stage %u micro-batch %u: "
                                             "nothing was sent",
                                             instr_name(item->instr.op), item->instr.chain,
                                             item->instr.stage, item->instr.microbatch);
}

/* run_i: this run or the next. */
static int post_receive(struct exec *exec, struct exec_item *item, uint64_t run_i,
                        struct gems_error *err)
{
    int status =
        item->instr.op == INSTR_RECV_ACT ? messages_drain(exec, item->slot_area, err) : GEMS_OK;

    if (status < 0) {
        return status;
    }
    item->posted_run = run_i;
    if (item->partner) {
        return item->partner->is_sent ? pass_on(exec, item->partner, err) : GEMS_OK;
    }
    link_recv(exec->link, &item->request, item->instr.peer, item->tag, item->buffer, item->bytes);
    return GEMS_OK;
}

/* Posts what is due for a run and whose memory is not being sent; returns through
 * inout_i the first that is left. Behind it others may have been posted, and even
 * read, before. */
static int post_due(struct exec *exec, struct exec_program *program, const struct exec_posts *posts,
                    uint64_t run_i, uint32_t *inout_i, struct gems_error *err)
{
    uint32_t i = *inout_i;

    for (; i < posts->n && posts->posts[i].after <= exec->n_done; i++) {
        struct exec_item *item = &program->items[posts->posts[i].item];

        if (item->posted_run != run_i &&
            (item->instr.op != INSTR_RECV_ACT || is_area_idle(exec, (uint32_t)item->slot_area))) {
            int status = post_receive(exec, item, run_i, err);

            if (status < 0) {
                return status;
            }
        }
    }
    while (*inout_i < i && program->items[posts->posts[*inout_i].item].posted_run == run_i) {
        (*inout_i)++;
    }
    return GEMS_OK;
}

int messages_post(struct exec *exec, uint32_t n_done, struct gems_error *err)
{
    const struct exec_run *run = exec->run;
    struct exec_program *next;
    int status;

    exec->n_done = n_done;
    status = post_due(exec, exec->program, &exec->program->own, exec->run_i, &exec->own_i, err);
    if (status < 0 || !run->is_next_certain) {
        return status;
    }
    next = &exec->programs[run->next];
    if (exec->early_i == next->early[exec->kind].n ||
        next->early[exec->kind].posts[exec->early_i].after > n_done ||
        !run->is_next_certain(run->arg)) {
        return GEMS_OK;
    }
    return post_due(exec, next, &next->early[exec->kind], exec->run_i + 1, &exec->early_i, err);
}

int messages_wait_inputs(struct exec *exec, const struct exec_item *item, struct gems_error *err)
{
    for (uint32_t i = 0; i < item->n_inputs; i++) {
        struct exec_item *input =
            &exec->program->items[exec->program->inputs[item->first_input + i]];
        int status = wait_receive(input, err);

        if (status < 0) {
            return status;
        }
        input->is_arrived = false;
    }
    return GEMS_OK;
}

/* ---- what the list says ---- */

int messages_send(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    int32_t area = item->instr.op == INSTR_SEND_ACT ? item->slot_area : item->grad_out_area;

    if (item->partner) {
        item->is_sent = true;
        if (item->partner->posted_run == exec->run_i) {
            return pass_on(exec, item, err);
        }
    } else {
        link_send(exec->link, &item->request, item->instr.peer, item->tag, item->buffer,
                  item->bytes);
    }
    item->next_in_area = exec->in_flight[area];
    exec->in_flight[area] = item;
    return GEMS_OK;
}

int messages_receive(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    return item->posted_run == exec->run_i ? GEMS_OK : post_receive(exec, item, exec->run_i, err);
}
