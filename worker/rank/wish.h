/* Spreads rank 0's wishes (trainer_events.wish): the answer after step s acts
 * after step s + 1 on every rank, so its message has a whole step to arrive.
 * Thread: compute. */
#ifndef GEMS_WORKER_RANK_WISH_H
#define GEMS_WORKER_RANK_WISH_H

#include "plan/plan.h"
#include "worker/rank/trainer.h"

struct wish {
    struct link *link;
    uint32_t rank, n_ranks;
    uint64_t value[2];           /* sent, by parity of the step; [0] receives on other ranks */
    struct link_request *out[2]; /* owned, rank 0: [n_ranks] each */
    struct link_request in;
    uint64_t previous; /* rank 0: answer after the step before */
};

int wish_init(struct wish *wish, struct link *link, uint32_t rank, uint32_t n_ranks,
              struct gems_error *err);
void wish_fini(struct wish *wish); /* also of a zeroed one */

/* Once, before the first step of a run of at least two steps. */
void wish_start(struct wish *wish);
/* After step s: what was wished after step s - 1; for the first step
 * TRAINER_GO_ON. has_next: a step follows for which an answer goes out
 * (answer: rank 0's) and comes in. */
int wish_exchange(struct wish *wish, uint64_t step, bool is_first, bool has_next,
                  enum trainer_wish answer, enum trainer_wish *ret_wish, struct gems_error *err);
/* Whether the step after the running one is known to come: the wish that
 * acts behind the running one has arrived and does not stop. */
bool wish_goes_on(const struct wish *wish, bool is_first);
/* Waits for what is still being sent. */
int wish_finish(struct wish *wish, struct gems_error *err);

#endif
