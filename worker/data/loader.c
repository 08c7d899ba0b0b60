/* Threads that fill the buffers.
 *
 * Item i lives in buffer i % depth, from the moment the buffer is free until
 * loader_release(i). Each item is split into as many parts as there are
 * threads; a thread takes the next part of the oldest item that has one. What
 * a sample becomes depends on its item and place alone, never on who makes it.
 * All shared state is under one lock, which is not held while decoding.
 */
#include "worker/data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "worker/data/augment.h"
#include "worker/data/format.h"

enum { ALIGN = 64, MAX_THREADS = 256 };

struct slot {
    struct loader_item item;
    uint64_t i;      /* which item */
    bool is_open;    /* between its sequence call and its release */
    uint32_t taken;  /* samples given to threads */
    uint32_t done;   /* samples finished */
    uint32_t failed; /* place of the first sample that failed; item.n: none */
    struct gems_error error;
};

struct loader {
    struct loader_config config;
    uint32_t channels, height, width;
    struct augment_table table;
    struct slot *slots; /* depth */
    uint64_t buffer_bytes, labels_offset;
    pthread_mutex_t lock;
    pthread_cond_t work, ready; /* for threads; for the compute thread */
    uint64_t n_opened;          /* items asked of the sequence */
    bool is_ended;              /* the sequence has no more */
    atomic_bool is_stopping;
    pthread_t *threads;
    uint32_t n_started;
};

/* A thread's share of an item. */
struct part {
    struct loader_item item;
    uint32_t slot, first, n;
};

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static uint64_t image_bytes(uint32_t max_batch, uint32_t channels, uint32_t height, uint32_t width,
                            bool is_f64)
{
    return (uint64_t)max_batch * channels * height * width * (is_f64 ? 8 : 4);
}

uint64_t loader_buffer_bytes(uint32_t max_batch, uint32_t channels, uint32_t height, uint32_t width,
                             bool is_f64, bool has_images, bool has_labels)
{
    uint64_t bytes = 0;

    if (has_images) {
        bytes += round_up(image_bytes(max_batch, channels, height, width, is_f64));
    }
    if (has_labels) {
        bytes += round_up((uint64_t)max_batch * sizeof(uint32_t));
    }
    return bytes;
}

/* ---- making samples: no lock held ---- */

static struct dataset *set_of(const struct loader *loader, const struct loader_item *item)
{
    return item->is_eval ? loader->config.eval : loader->config.train;
}

static uint64_t sample_at(const struct loader *loader, const struct loader_item *item,
                          uint32_t place)
{
    uint64_t position = item->first + place;

    if (item->is_eval) {
        return position;
    }
    return loader_permute(loader->config.seed, item->epoch, dataset_samples(loader->config.train),
                          position);
}

static int make_image(const struct loader *loader, const struct loader_item *item, uint64_t sample,
                      uint8_t *pixels, void *ret_values, struct gems_error *err)
{
    const struct loader_config *config = &loader->config;
    struct augment augment = { 0 };
    int st = dataset_read(set_of(loader, item), sample, pixels, err);

    if (st < 0) {
        return st;
    }
    if (!item->is_eval) {
        augment = augment_draw(config->seed, item->epoch, sample, config->is_flip, config->is_shift,
                               loader->height, loader->width);
    }
    augment_apply(&augment, &loader->table, pixels, loader->channels, loader->height, loader->width,
                  config->is_f64, ret_values);
    return 0;
}

/* Makes a part; stops at its first failure, whose place is returned (else the
 * place behind the part). */
static uint32_t make_part(const struct loader *loader, const struct part *part, uint8_t *pixels,
                          struct gems_error *err)
{
    char *buffer = (char *)loader->config.buffers + part->slot * loader->buffer_bytes;
    uint32_t *labels = (uint32_t *)(buffer + loader->labels_offset);
    uint64_t bytes =
        image_bytes(1, loader->channels, loader->height, loader->width, loader->config.is_f64);

    for (uint32_t k = part->first; k < part->first + part->n; k++) {
        uint64_t sample = sample_at(loader, &part->item, k);

        if (part->item.has_labels) {
            labels[k] = dataset_label(set_of(loader, &part->item), sample);
        }
        if (part->item.has_images && !atomic_load(&loader->is_stopping) &&
            make_image(loader, &part->item, sample, pixels, buffer + k * bytes, err) < 0) {
            return k;
        }
    }
    return part->first + part->n;
}

/* ---- threads ---- */

/* What the sequence asks for must exist: checked here, reported by next(). */
static void check_item(const struct loader *loader, struct slot *slot)
{
    const struct loader_item *item = &slot->item;
    const struct dataset *set = set_of(loader, item);
    uint64_t n = set ? dataset_samples(set) : 0;

    slot->failed = item->n;
    if (item->n == 0 || item->n > loader->config.max_batch || item->first > n ||
        item->n > n - item->first) {
        gems_error_set(&slot->error, GEMS_E_INTERNAL,
                       "loader: item %llu asks for samples %llu to %llu of %llu, %u at once",
                       (unsigned long long)slot->i, (unsigned long long)item->first,
                       (unsigned long long)(item->first + item->n), (unsigned long long)n,
                       loader->config.max_batch);
    } else if (item->has_images > loader->config.has_images ||
               item->has_labels > loader->config.has_labels) {
        gems_error_set(&slot->error, GEMS_E_INTERNAL,
                       "loader: item %llu wants more than the buffers have room for",
                       (unsigned long long)slot->i);
    }
    if (slot->error.status) {
        slot->taken = slot->done = item->n;
    }
}

/* Opens items as far as buffers are free. Lock held. */
static void open_items(struct loader *loader)
{
    while (!loader->is_ended) {
        struct slot *slot = &loader->slots[loader->n_opened % loader->config.depth];

        if (slot->is_open) {
            return;
        }
        *slot = (struct slot){ .i = loader->n_opened };
        if (!loader->config.sequence(loader->config.sequence_arg, loader->n_opened, &slot->item)) {
            loader->is_ended = true;
            pthread_cond_broadcast(&loader->ready);
            return;
        }
        slot->is_open = true;
        loader->n_opened++;
        check_item(loader, slot);
        if (slot->done == slot->item.n) {
            pthread_cond_broadcast(&loader->ready);
        }
    }
}

/* The next part of the oldest item that has one. Lock held. */
static bool take_part(struct loader *loader, struct part *ret_part)
{
    uint64_t depth = loader->config.depth;

    for (uint64_t i = loader->n_opened < depth ? 0 : loader->n_opened - depth; i < loader->n_opened;
         i++) {
        struct slot *slot = &loader->slots[i % depth];
        uint32_t left = slot->item.n - slot->taken;
        uint32_t share = (slot->item.n + loader->config.n_threads - 1) / loader->config.n_threads;

        if (slot->is_open && slot->i == i && left > 0) {
            *ret_part = (struct part){ slot->item, (uint32_t)(i % depth), slot->taken,
                                       left < share ? left : share };
            slot->taken += ret_part->n;
            return true;
        }
    }
    return false;
}

/* Lock held. */
static void finish_part(struct loader *loader, const struct part *part, uint32_t end,
                        const struct gems_error *err)
{
    struct slot *slot = &loader->slots[part->slot];

    if (end < part->first + part->n && end < slot->failed) {
        slot->failed = end;
        slot->error = *err;
    }
    slot->done += part->n;
    if (slot->done == slot->item.n) {
        pthread_cond_broadcast(&loader->ready);
    }
}

static void *run(void *arg)
{
    struct loader *loader = arg;
    /* One image in bytes; its failure shows as that of the parts taken. */
    uint8_t *pixels = malloc((size_t)loader->channels * loader->height * loader->width);
    struct part part;

    pthread_mutex_lock(&loader->lock);
    while (!atomic_load(&loader->is_stopping)) {
        struct gems_error err = { 0 };
        uint32_t end;

        open_items(loader);
        if (!take_part(loader, &part)) {
            pthread_cond_wait(&loader->work, &loader->lock);
            continue;
        }
        pthread_mutex_unlock(&loader->lock);
        if (pixels) {
            end = make_part(loader, &part, pixels, &err);
        } else {
            gems_error_set(&err, GEMS_E_NOMEM, "loader: no memory for an image");
            end = part.first;
        }
        pthread_mutex_lock(&loader->lock);
        finish_part(loader, &part, end, &err);
    }
    pthread_mutex_unlock(&loader->lock);
    free(pixels);
    return NULL;
}

/* Signals stay with the threads that expect them. */
static int start_threads(struct loader *loader, struct gems_error *err)
{
    sigset_t all, before;
    int failed = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (loader->n_started < loader->config.n_threads && failed == 0) {
        failed = pthread_create(&loader->threads[loader->n_started], NULL, run, loader);
        loader->n_started += failed == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        return gems_error_errno(err, failed, "loader: starting thread %u of %u",
                                loader->n_started + 1, loader->config.n_threads);
    }
    return 0;
}

/* ---- the compute thread's side ---- */

static int check_config(const struct loader_config *config, struct gems_error *err)
{
    const struct dataset *train = config->train, *eval = config->eval;

    if (!train || !config->sequence || !config->buffers || config->depth == 0 ||
        config->max_batch == 0 || config->n_threads == 0 || config->n_threads > MAX_THREADS ||
        !(config->std > 0.0)) {
        return gems_error_set(err, GEMS_E_INTERNAL, "loader: incomplete configuration");
    }
    if (eval &&
        (eval->spec.channels != train->spec.channels || eval->spec.height != train->spec.height ||
         eval->spec.width != train->spec.width)) {
        return gems_error_set(err, GEMS_E_INTERNAL,
                              "loader: images for training and evaluation differ in size");
    }
    return 0;
}

int loader_create(const struct loader_config *config, struct loader **ret_loader,
                  struct gems_error *err)
{
    struct loader *loader;
    int st = check_config(config, err);

    if (st < 0) {
        return st;
    }
    loader = calloc(1, sizeof *loader);
    if (!loader) {
        return gems_error_set(err, GEMS_E_NOMEM, "loader: no memory");
    }
    loader->config = *config;
    loader->channels = config->train->spec.channels;
    loader->height = config->train->spec.height;
    loader->width = config->train->spec.width;
    augment_table_init(&loader->table, config->mean, config->std);
    loader->buffer_bytes =
        loader_buffer_bytes(config->max_batch, loader->channels, loader->height, loader->width,
                            config->is_f64, config->has_images, config->has_labels);
    loader->labels_offset =
        loader_buffer_bytes(config->max_batch, loader->channels, loader->height, loader->width,
                            config->is_f64, config->has_images, false);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->ready, NULL);
    loader->slots = calloc(config->depth, sizeof *loader->slots);
    loader->threads = calloc(config->n_threads, sizeof *loader->threads);
    if (loader->slots && loader->threads) {
        st = start_threads(loader, err);
    } else {
        st = gems_error_set(err, GEMS_E_NOMEM, "loader: no memory");
    }
    if (st < 0) {
        loader_destroy(loader);
        return st;
    }
    *ret_loader = loader;
    return 0;
}

void loader_destroy(struct loader *loader)
{
    if (!loader) {
        return;
    }
    pthread_mutex_lock(&loader->lock);
    atomic_store(&loader->is_stopping, true);
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    for (uint32_t i = 0; i < loader->n_started; i++) {
        pthread_join(loader->threads[i], NULL);
    }
    pthread_cond_destroy(&loader->ready);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->lock);
    free(loader->threads);
    free(loader->slots);
    free(loader);
}

/* Item i is complete, can never come, or is still awaited (false). Lock held. */
static bool is_settled(const struct loader *loader, const struct slot *slot, uint64_t i)
{
    if (i < loader->n_opened) {
        return !slot->is_open || slot->i != i || slot->done == slot->item.n;
    }
    return loader->is_ended;
}

int loader_next(struct loader *loader, uint64_t i, const void **ret_images,
                const uint32_t **ret_labels, struct gems_error *err)
{
    uint32_t at = (uint32_t)(i % loader->config.depth);
    struct slot *slot = &loader->slots[at];
    char *buffer = (char *)loader->config.buffers + at * loader->buffer_bytes;
    int st = 0;

    pthread_mutex_lock(&loader->lock);
    while (!is_settled(loader, slot, i)) {
        pthread_cond_wait(&loader->ready, &loader->lock);
    }
    if (i >= loader->n_opened || !slot->is_open || slot->i != i) {
        st = gems_error_set(err, GEMS_E_INTERNAL, "loader: there is no item %llu",
                            (unsigned long long)i);
    } else if (slot->error.status) {
        if (err) {
            *err = slot->error;
        }
        st = slot->error.status;
    } else {
        *ret_images = slot->item.has_images ? buffer : NULL;
        *ret_labels = slot->item.has_labels ? (uint32_t *)(buffer + loader->labels_offset) : NULL;
    }
    pthread_mutex_unlock(&loader->lock);
    return st;
}

void loader_release(struct loader *loader, uint64_t i)
{
    struct slot *slot = &loader->slots[i % loader->config.depth];

    pthread_mutex_lock(&loader->lock);
    if (slot->is_open && slot->i == i && slot->done == slot->item.n) {
        slot->is_open = false;
        pthread_cond_broadcast(&loader->work);
    }
    pthread_mutex_unlock(&loader->lock);
}
