#include "worker/rank/wish.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

int wish_init(struct wish *wish, struct link *link, uint32_t rank, uint32_t n_ranks,
              struct gems_error *err)
{
    *wish = (struct wish){ .link = link, .rank = rank, .n_ranks = n_ranks };
    if (rank != 0) {
        return GEMS_OK;
    }
    wish->out[0] = calloc(n_ranks, sizeof *wish->out[0]);
    wish->out[1] = calloc(n_ranks, sizeof *wish->out[1]);
    if (!wish->out[0] || !wish->out[1]) {
        return gems_error_set(err, GEMS_E_NOMEM, "wishes: no host memory");
    }
    return GEMS_OK;
}

void wish_fini(struct wish *wish)
{
    free(wish->out[0]);
    free(wish->out[1]);
    memset(wish, 0, sizeof *wish);
}

static uint64_t wish_tag(void)
{
    return program_tag(TAG_CONTROL, 0, 0, 0, 0, 0);
}

static void post(struct wish *wish)
{
    link_recv(wish->link, &wish->in, 0, wish_tag(), &wish->value[0], sizeof wish->value[0]);
}

void wish_start(struct wish *wish)
{
    if (wish->rank != 0) {
        post(wish);
    }
}

static int wait_out(struct wish *wish, uint64_t parity, struct gems_error *err)
{
    for (uint32_t i = 1; i < wish->n_ranks; i++) {
        struct link_request *request = &wish->out[parity][i];
        int status;

        if (atomic_load_explicit(&request->state, memory_order_acquire) == LINK_IDLE) {
            continue;
        }
        status = link_wait(request, err);
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

static int send_all(struct wish *wish, uint64_t step, enum trainer_wish answer,
                    struct gems_error *err)
{
    uint64_t parity = step % 2;
    int status = wait_out(wish, parity, err);

    if (status < 0) {
        return status;
    }
    wish->value[parity] = (uint64_t)answer;
    for (uint32_t i = 1; i < wish->n_ranks; i++) {
        link_send(wish->link, &wish->out[parity][i], i, wish_tag(), &wish->value[parity],
                  sizeof wish->value[0]);
    }
    return GEMS_OK;
}

int wish_exchange(struct wish *wish, uint64_t step, bool is_first, bool has_next,
                  enum trainer_wish answer, enum trainer_wish *ret_wish, struct gems_error *err)
{
    uint64_t value = TRAINER_GO_ON;
    int status = GEMS_OK;

    if (!is_first) {
        status = wish->rank == 0 ? GEMS_OK : link_wait(&wish->in, err);
        value = wish->rank == 0 ? wish->previous : wish->value[0];
    }
    if (status < 0) {
        return status;
    }
    if (value > TRAINER_CHECKPOINT_AND_STOP) {
        return gems_error_set(err, GEMS_E_PEER, "rank 0 sent an unknown wish");
    }
    wish->previous = (uint64_t)answer;
    *ret_wish = (enum trainer_wish)value;
    if (!has_next || value == TRAINER_CHECKPOINT_AND_STOP) {
        return GEMS_OK;
    }
    if (wish->rank == 0) {
        return send_all(wish, step, answer, err);
    }
    if (!is_first) { /* else wish_start's receive is still open */
        post(wish);
    }
    return GEMS_OK;
}

bool wish_goes_on(const struct wish *wish, bool is_first)
{
    if (is_first) {
        return true;
    }
    if (wish->rank == 0) {
        return wish->previous != TRAINER_CHECKPOINT_AND_STOP;
    }
    return link_done(&wish->in) && wish->value[0] != TRAINER_CHECKPOINT_AND_STOP;
}

int wish_finish(struct wish *wish, struct gems_error *err)
{
    int status = GEMS_OK;

    for (uint64_t parity = 0; parity < 2 && status == GEMS_OK && wish->rank == 0; parity++) {
        status = wait_out(wish, parity, err);
    }
    return status;
}
