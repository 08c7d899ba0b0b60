/* What a data set format is to dataset.c, and what formats share. Internal to
 * worker/data. A new format is one file and one row of the table in dataset.c. */
#ifndef GEMS_WORKER_DATA_FORMAT_H
#define GEMS_WORKER_DATA_FORMAT_H

#include <stdint.h>

#include "worker/data/dataset.h"

struct format_ops {
    const char *name;
    uint32_t max_channels; /* 1 and this many are supported; 0: any number */
    /* Reads the index; sets samples and the format's own part of *set, which
     * close() must take half-built. */
    int (*open)(struct dataset *set, struct gems_error *err);
    void (*close)(struct dataset *set);
    uint32_t (*label)(const struct dataset *set, uint64_t i);
    int (*read)(struct dataset *set, uint64_t i, uint8_t *ret_pixels, struct gems_error *err);
};

struct dataset {
    const struct format_ops *ops;
    struct dataset_spec spec; /* path is owned */
    char *path;
    uint64_t samples;
    void *own; /* the format's */
};

extern const struct format_ops format_synthetic;
extern const struct format_ops format_idx;
extern const struct format_ops format_imagefolder;

/* Opens a regular file to read; anything else (folder, pipe) is refused. On
 * success *ret_fd is the caller's. */
int format_open_file(const char *path, int *ret_fd, uint64_t *ret_bytes, struct gems_error *err);

/* A failing system call on a user's file is GEMS_E_DATA: "PATH: reason". */
int format_errno(const char *path, int number, struct gems_error *err);

/* Path as an owned string. GEMS_E_NOMEM. */
int format_path(char **ret_path, struct gems_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
