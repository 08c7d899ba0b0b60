/* Read-ahead: decodes, augments and normalises the micro-batches that a rank
 * will ask for, in the order it will ask, in threads of its own.
 *
 * Which sample stands where is a pure function: position q of epoch e holds
 * sample perm(seed, e)[q] (a Feistel permutation: no table, any restart point);
 * evaluation keeps the data set's order. Augmentation of a sample is keyed by
 * (seed, epoch, sample). Values: (pixel / 255 - mean) / std.
 *
 * Buffers come from the caller (the rank's arena), LOADER_DEPTH of them.
 * Thread: create, next and destroy on the compute thread.
 */
#ifndef GEMS_WORKER_DATA_LOADER_H
#define GEMS_WORKER_DATA_LOADER_H

#include <stdbool.h>

#include "worker/data/dataset.h"

struct loader;

/* One micro-batch to read: positions [first, first + n) of an epoch. */
struct loader_item {
    uint64_t epoch;
    uint64_t first;
    uint32_t n;
    bool is_eval;
    bool has_images, has_labels; /* what is wanted of this one: a rank of a mirrored pair
                                    reads images for one chain and labels for the other */
};

/* The sequence of items, asked for in order; false: no more. Called in the
 * loader's threads under its lock: must be quick and must not fail. */
typedef bool (*loader_sequence_fn)(void *arg, uint64_t i, struct loader_item *ret_item);

struct loader_config {
    struct dataset *train, *eval; /* borrowed; eval may be NULL */
    bool has_images, has_labels;  /* what any item of this rank wants */
    bool is_f64;                  /* images as double, else float */
    bool is_flip, is_shift;
    double mean, std;
    uint64_t seed;
    uint32_t max_batch;
    uint32_t n_threads;
    loader_sequence_fn sequence;
    void *sequence_arg;
    void *buffers; /* loader_buffer_bytes() x depth, aligned to 64 */
    uint32_t depth;
};

uint64_t loader_buffer_bytes(uint32_t max_batch, uint32_t channels, uint32_t height, uint32_t width,
                             bool is_f64, bool has_images, bool has_labels);

int loader_create(const struct loader_config *config, struct loader **ret_loader,
                  struct gems_error *err);
void loader_destroy(struct loader *loader);

/* Waits for item i (ascending) and lends its images [n][c][h][w] and labels
 * [n] (NULL: not wanted) until loader_release(i). GEMS_E_DATA: a sample could not be read. */
int loader_next(struct loader *loader, uint64_t i, const void **ret_images,
                const uint32_t **ret_labels, struct gems_error *err);
void loader_release(struct loader *loader, uint64_t i);

/* Sample at a position of a training epoch. */
uint64_t loader_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t position);

#endif
