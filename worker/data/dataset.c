#include "worker/data/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "worker/data/format.h"

static const struct format_ops *const formats[] = {
    [DATASET_SYNTHETIC] = &format_synthetic,
    [DATASET_IDX] = &format_idx,
    [DATASET_IMAGEFOLDER] = &format_imagefolder,
};

int format_path(char **ret_path, struct gems_error *err, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vasprintf(ret_path, format, args);
    va_end(args);
    if (length < 0) {
        *ret_path = NULL;
        return gems_error_set(err, GEMS_E_NOMEM, "data set: no memory for a path");
    }
    return 0;
}

int format_errno(const char *path, int number, struct gems_error *err)
{
    gems_error_errno(err, number, "%s", path);
    if (err) {
        err->status = GEMS_E_DATA;
    }
    return GEMS_E_DATA;
}

int format_open_file(const char *path, int *ret_fd, uint64_t *ret_bytes, struct gems_error *err)
{
    struct stat st;
    /* A pipe in place of a file must not hold a loader thread. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 || fstat(fd, &st) < 0) {
        int saved = errno;

        if (fd >= 0) {
            close(fd);
        }
        return format_errno(path, saved, err);
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return gems_error_set(err, GEMS_E_DATA, "%s: is a %s, but a file is expected", path,
                              S_ISDIR(st.st_mode) ? "folder" : "device or pipe");
    }
    *ret_fd = fd;
    *ret_bytes = (uint64_t)st.st_size;
    return 0;
}

static int check_spec(const struct dataset_spec *spec, const struct format_ops *ops,
                      struct gems_error *err)
{
    if (spec->channels == 0 || spec->height == 0 || spec->width == 0 || spec->classes == 0) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "data set: images of %u channels and %ux%u pixels in %u classes",
                              spec->channels, spec->height, spec->width, spec->classes);
    }
    if (ops->max_channels && spec->channels != 1 && spec->channels != ops->max_channels) {
        return gems_error_set(err, GEMS_E_INVALID, "data.channels: %u; %s gives 1 or %u",
                              spec->channels, ops->name, ops->max_channels);
    }
    return 0;
}

int dataset_open(const struct dataset_spec *spec, struct dataset **ret_set, struct gems_error *err)
{
    const struct format_ops *ops;
    struct dataset *set;
    int st;

    if ((unsigned)spec->format >= sizeof formats / sizeof formats[0]) {
        return gems_error_set(err, GEMS_E_INVALID, "data.format: unknown number %u",
                              (unsigned)spec->format);
    }
    ops = formats[spec->format];
    st = check_spec(spec, ops, err);
    if (st < 0) {
        return st;
    }
    set = calloc(1, sizeof *set);
    if (!set) {
        return gems_error_set(err, GEMS_E_NOMEM, "data set: no memory");
    }
    set->ops = ops;
    set->spec = *spec;
    st = format_path(&set->path, err, "%s", spec->path ? spec->path : "");
    set->spec.path = set->path;
    if (st == 0) {
        st = ops->open(set, err);
    }
    if (st < 0) {
        dataset_close(set);
        return st;
    }
    *ret_set = set;
    return 0;
}

void dataset_close(struct dataset *set)
{
    if (set) {
        set->ops->close(set);
        free(set->path);
        free(set);
    }
}

uint64_t dataset_samples(const struct dataset *set)
{
    return set->samples;
}

uint32_t dataset_label(const struct dataset *set, uint64_t i)
{
    return set->ops->label(set, i);
}

int dataset_read(struct dataset *set, uint64_t i, uint8_t *ret_pixels, struct gems_error *err)
{
    if (i >= set->samples || set->spec.is_index_only) {
        return gems_error_set(err, GEMS_E_INTERNAL, "data set: sample %llu of %llu%s",
                              (unsigned long long)i, (unsigned long long)set->samples,
                              set->spec.is_index_only ? ", opened for its index only" : "");
    }
    return set->ops->read(set, i, ret_pixels, err);
}
