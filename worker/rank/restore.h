/* Tensors of a checkpoint on their way in, one call each: so no more than one
 * is in memory beside its place. Thread: compute. */
#ifndef GEMS_WORKER_RANK_RESTORE_H
#define GEMS_WORKER_RANK_RESTORE_H

#include "worker/rank/control.h"

/* Imports everything that the trainer needs from the checkpoint of a step. If
 * gemsd goes away meanwhile, waits for it and asks again. GEMS_E_NOTFOUND,
 * GEMS_E_INVALID name the tensor. */
int restore_run(struct control *control, struct trainer *trainer, uint64_t step,
                struct gems_error *err);

#endif
