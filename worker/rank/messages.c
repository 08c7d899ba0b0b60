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

/* ---- waiting: link_wait tells the ledger ---- */

static bool is_area_idle(const struct exec *exec, uint32_t area)
{
    for (uint32_t i = exec->overlap_first[area]; i < exec->overlap_first[area + 1]; i++) {
        const struct exec_item *item = exec->in_flight[exec->overlaps[i]];

        for (; item; item = item->next_in_area) {
            if (!link_done(&item->request)) {
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
            int status = link_wait(&(*head)->request, err);

            if (status < 0) {
                return status;
            }
            *head = (*head)->next_in_area;
        }
    }
    return GEMS_OK;
}

/* ---- receives ---- */

static int post_receive(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    int status =
        item->instr.op == INSTR_RECV_ACT ? messages_drain(exec, item->slot_area, err) : GEMS_OK;

    if (status < 0) {
        return status;
    }
    link_recv(exec->link, &item->request, item->instr.peer, item->tag, item->buffer, item->bytes);
    item->is_posted = true;
    return GEMS_OK;
}

/* Posts what is due and whose memory is not being sent; returns through
 * inout_i the first that is left. */
static int post_due(struct exec *exec, struct exec_program *program, const struct exec_posts *posts,
                    uint32_t n_done, uint32_t *inout_i, struct gems_error *err)
{
    uint32_t i = *inout_i;

    for (; i < posts->n && posts->posts[i].after <= n_done; i++) {
        struct exec_item *item = &program->items[posts->posts[i].item];

        if (!item->is_posted &&
            (item->instr.op != INSTR_RECV_ACT || is_area_idle(exec, (uint32_t)item->slot_area))) {
            int status = post_receive(exec, item, err);

            if (status < 0) {
                return status;
            }
        }
    }
    while (*inout_i < i && program->items[posts->posts[*inout_i].item].is_posted) {
        (*inout_i)++;
    }
    return GEMS_OK;
}

int messages_post(struct exec *exec, uint32_t n_done, struct gems_error *err)
{
    const struct exec_run *run = exec->run;
    struct exec_program *next;
    int status = post_due(exec, exec->program, &exec->program->own, n_done, &exec->own_i, err);

    if (status < 0 || !run->is_next_certain) {
        return status;
    }
    next = &exec->programs[run->next];
    if (exec->early_i == next->early[exec->kind].n ||
        next->early[exec->kind].posts[exec->early_i].after > n_done ||
        !run->is_next_certain(run->arg)) {
        return GEMS_OK;
    }
    return post_due(exec, next, &next->early[exec->kind], n_done, &exec->early_i, err);
}

int messages_wait_inputs(struct exec *exec, const struct exec_item *item, struct gems_error *err)
{
    for (uint32_t i = 0; i < item->n_inputs; i++) {
        struct exec_item *input =
            &exec->program->items[exec->program->inputs[item->first_input + i]];
        int status = link_wait(&input->request, err);

        if (status < 0) {
            return status;
        }
        input->is_posted = false;
    }
    return GEMS_OK;
}

/* ---- what the list says ---- */

int messages_send(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    int32_t area = item->instr.op == INSTR_SEND_ACT ? item->slot_area : item->grad_out_area;

    (void)err;
    link_send(exec->link, &item->request, item->instr.peer, item->tag, item->buffer, item->bytes);
    item->next_in_area = exec->in_flight[area];
    exec->in_flight[area] = item;
    return GEMS_OK;
}

int messages_receive(struct exec *exec, struct exec_item *item, struct gems_error *err)
{
    return item->is_posted ? GEMS_OK : post_receive(exec, item, err);
}
