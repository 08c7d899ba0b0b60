/* One checkpoint: one SQLite file, complete and describing itself.
 *
 * Tables: meta (one row: job, step, position, seed, spec, weights_hash),
 * tensors (kind, canonical order, name, dims, type, bytes, XXH3-128 of the
 * whole tensor), chunks (blocks of it as they came, each with a checksum).
 * Nothing in it depends on stages or ranks.
 *
 * A file is written under a temporary name, in one transaction, 64 KiB pages,
 * rollback journal, and takes its name when everything in it is durable: a
 * file with a final name is complete or damaged later, never half written.
 *
 * weights_hash = XXH3-128 over (name, NUL, hash of the tensor) of all tensors
 * of kind "weight" in canonical order.
 *
 * All calls block; one thread at a time per object.
 */
#ifndef GEMS_DAEMON_CHECKPOINT_FILE_H
#define GEMS_DAEMON_CHECKPOINT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/hash.h"

struct gems_error;
struct checkpoint_writer;
struct checkpoint_reader;

enum {
    CHECKPOINT_VERSION = 1,
    CHECKPOINT_NAME_BYTES = 128,
    CHECKPOINT_KIND_BYTES = 16,
    CHECKPOINT_MAX_DIMS = 4
};
enum { CHECKPOINT_MAX_TENSORS = 1 << 20, CHECKPOINT_MAX_CHUNK = 8 << 20 };

/* Where the run stood, which is known when the ranks have sent everything. */
struct checkpoint_end {
    uint64_t samples;
    uint32_t epoch, n_tensors;
    bool is_final;
};

struct checkpoint_meta {
    uint64_t job, step, seed;
    uint32_t attempt;
    int64_t when_us;
    struct checkpoint_end end;
};

struct checkpoint_tensor {
    char name[CHECKPOINT_NAME_BYTES], kind[CHECKPOINT_KIND_BYTES];
    uint32_t order, n_dims;
    uint64_t dims[CHECKPOINT_MAX_DIMS];
    uint64_t bytes;
    uint8_t hash[HASH_BYTES];
};

/* A piece of a tensor, as a rank sends it. Pieces of a tensor come in
 * ascending order; a piece at offset 0 starts the tensor afresh. */
struct checkpoint_shard {
    const char *name, *kind;
    uint32_t order, n_dims;
    uint64_t dims[CHECKPOINT_MAX_DIMS];
    uint64_t offset, total;
    const uint8_t *data;
    size_t n;
    uint8_t hash[HASH_BYTES]; /* of data */
};

struct checkpoint_result {
    uint64_t bytes; /* of the file */
    char weights_hash[HASH_HEX_BYTES];
};

/* DIR/STEP.ckpt, 12 digits. */
void checkpoint_path(const char *dir, uint64_t step, char *ret_path, size_t n);

/* Makes dir if needed and the temporary file in it. meta->end is not read. spec:
 * packed JobSpec. */
int checkpoint_writer_create(const char *dir, const struct checkpoint_meta *meta, const void *spec,
                             size_t n_spec, struct checkpoint_writer **ret_writer,
                             struct gems_error *err);
/* GEMS_E_INVALID: does not fit what came before or the tensor's size;
 * GEMS_E_DATA: checksum; GEMS_E_DISKFULL, GEMS_E_IO. */
int checkpoint_writer_add(struct checkpoint_writer *writer, const struct checkpoint_shard *shard,
                          struct gems_error *err);
/* Completes the file if it holds exactly end->n_tensors whole tensors. */
int checkpoint_writer_commit(struct checkpoint_writer *writer, const struct checkpoint_end *end,
                             struct checkpoint_result *ret_result, struct gems_error *err);
/* Removes what was not committed. */
void checkpoint_writer_destroy(struct checkpoint_writer *writer);

/* Reads the head and all tensor rows. GEMS_E_NOTFOUND, GEMS_E_DATA (damaged;
 * the text names file and place), GEMS_E_UNSUPPORTED (newer). */
int checkpoint_reader_open(const char *path, struct checkpoint_reader **ret_reader,
                           struct gems_error *err);
void checkpoint_reader_close(struct checkpoint_reader *reader);
const struct checkpoint_meta *checkpoint_reader_meta(const struct checkpoint_reader *reader);
const char *checkpoint_reader_weights_hash(const struct checkpoint_reader *reader);
/* Tensors by kind, then canonical order; NULL behind the last one. */
const struct checkpoint_tensor *checkpoint_reader_tensor(const struct checkpoint_reader *reader,
                                                         uint32_t i);
/* Index of a tensor; negative if it is not there. */
int checkpoint_reader_find(const struct checkpoint_reader *reader, const char *kind,
                           const char *name);
/* Chunk chunk_i (from 0) of tensor i, which must start at offset, its checksum
 * checked. *ret_data is owned by the caller. */
int checkpoint_reader_chunk(struct checkpoint_reader *reader, uint32_t i, uint64_t chunk_i,
                            uint64_t offset, uint8_t **ret_data, size_t *ret_n,
                            struct gems_error *err);

/* Reads everything and compares every hash. GEMS_E_DATA names what is wrong. */
int checkpoint_verify(const char *path, struct gems_error *err);

#endif
