/* Messages of a running program: what SEND and RECV do, and who waits for them.
 * A part of exec.h, where the rules stand. Thread: compute. */
#ifndef GEMS_WORKER_RANK_MESSAGES_H
#define GEMS_WORKER_RANK_MESSAGES_H

#include "worker/rank/exec.h"

/* Areas of exec->memory, which must be final. */
int messages_init(struct exec *exec, struct gems_error *err);
void messages_fini(struct exec *exec); /* also of a zeroed one */

int messages_send(struct exec *exec, struct exec_item *item, struct gems_error *err);
/* Posts the receive, unless that was done before; waits for its memory. */
int messages_receive(struct exec *exec, struct exec_item *item, struct gems_error *err);

/* Posts all receives, of this program and the next, whose memory is free once
 * n_done instructions are done. */
int messages_post(struct exec *exec, uint32_t n_done, struct gems_error *err);

/* Waits for the tensors that a pass reads. */
int messages_wait_inputs(struct exec *exec, const struct exec_item *item, struct gems_error *err);
/* Waits for the sends from the memory of an area; -1: none. */
int messages_drain(struct exec *exec, int32_t area, struct gems_error *err);

#endif
