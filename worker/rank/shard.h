/* Checkpoints on their way out: a rank's tensors as Shard chunks.
 *
 * A checkpoint between steps is given up, with a line in the log, if gemsd is
 * gone: training does not wait for it, and gemsd drops one that is not whole.
 * The final one waits for gemsd to come back and to say that it is durable,
 * and is sent again as a whole if the connection breaks before. Thread:
 * compute.
 */
#ifndef GEMS_WORKER_RANK_SHARD_H
#define GEMS_WORKER_RANK_SHARD_H

#include "worker/rank/control.h"

enum { SHARD_CHUNK_BYTES = 1 << 20 };

struct shard {
    struct control *control;
    struct trainer_position position;
    uint32_t epoch;
    bool is_final, is_broken; /* broken: gemsd went away in this checkpoint */
    uint64_t sent_step;       /* handed over whole and maybe not durable yet; 0: none */
};

/* As the functions of trainer_events. */
int shard_begin(struct shard *shard, const struct trainer_position *position, uint32_t epoch,
                bool is_final);
int shard_tensor(struct shard *shard, const struct trainer_tensor *tensor, const void *data);
int shard_end(struct shard *shard, uint32_t n_tensors);

#endif
