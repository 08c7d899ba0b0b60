/* Shared by checkpoint_*.c: the schema and the hash over the weights. */
#ifndef GEMS_DAEMON_CHECKPOINT_PRIVATE_H
#define GEMS_DAEMON_CHECKPOINT_PRIVATE_H

#include "daemon/checkpoint_file.h"

enum { CHECKPOINT_APPLICATION = 0x47454d43, CHECKPOINT_CHUNK_SHIFT = 24 };

/* Key of a chunk: tensors apart, chunks of one in order. */
static inline int64_t checkpoint_chunk_key(int64_t tensor_id, uint64_t chunk_i)
{
    return (tensor_id << CHECKPOINT_CHUNK_SHIFT) + (int64_t)chunk_i;
}

/* Tensors sorted by kind and order; orders of a kind must be 0, 1, 2 ... for
 * "weight". GEMS_E_INVALID. */
int checkpoint_weights_hash(const struct checkpoint_tensor *tensors, uint32_t n,
                            char ret_hash[HASH_HEX_BYTES], struct gems_error *err);

#endif
