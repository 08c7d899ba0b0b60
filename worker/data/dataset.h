/* A data set as an indexed list of samples: image bytes and a class.
 *
 * open() reads the index only (file names, or the headers of an idx pair);
 * images are decoded on read. Order: imagefolder sorts classes and files
 * bytewise; idx keeps the file's. A sample decodes to 8-bit [c][h][w] (h x w
 * as asked: larger images are centre-cropped after a resize of the shorter
 * side, smaller ones resized bilinearly). A file that cannot be decoded is
 * GEMS_E_DATA with its path and the decoder's words.
 *
 * Thread-safe after open: read may be called by several loader threads.
 */
#ifndef GEMS_WORKER_DATA_DATASET_H
#define GEMS_WORKER_DATA_DATASET_H

#include <stdbool.h>
#include <stdint.h>

struct gems_error;
struct dataset;

enum dataset_format { DATASET_SYNTHETIC, DATASET_IDX, DATASET_IMAGEFOLDER };

struct dataset_spec {
    enum dataset_format format;
    const char *path; /* absolute; NULL for synthetic. idx: PREFIX, or a directory
                         (DIR/train-*, DIR/t10k-* if is_eval) */
    bool is_eval;
    bool is_index_only; /* samples and labels are all that is asked for: nothing is
                           unpacked or written, and read() is not allowed */
    uint32_t channels, height, width;
    uint32_t classes; /* what the model has; a label beyond is GEMS_E_DATA */
    uint64_t samples; /* synthetic */
    uint64_t seed;    /* synthetic */
};

/* GEMS_E_DATA names the file and what is wrong: missing, not what the format
 * wants, labels and images that do not match, no samples. A packed idx file
 * is unpacked to a nameless file in $TMPDIR (else /var/tmp). */
int dataset_open(const struct dataset_spec *spec, struct dataset **ret_set, struct gems_error *err);
void dataset_close(struct dataset *set);
uint64_t dataset_samples(const struct dataset *set);
/* Class of sample i without decoding it. */
uint32_t dataset_label(const struct dataset *set, uint64_t i);
/* Decodes sample i into ret_pixels [c][h][w]. */
int dataset_read(struct dataset *set, uint64_t i, uint8_t *ret_pixels, struct gems_error *err);

#endif
