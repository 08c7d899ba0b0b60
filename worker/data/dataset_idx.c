/* IDX pairs (the format of MNIST): PREFIX-images-idx3-ubyte with grey images
 * and PREFIX-labels-idx1-ubyte with one byte a label, or both with .gz.
 *
 * Labels are held in memory, one byte each. Images stay in their file and are
 * read one by one; a compressed file is unpacked once into a file without a
 * name. So the memory of a rank does not grow with the data set.
 */
#include "worker/data/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "common/error.h"
#include "worker/data/image.h"

enum {
    MAGIC_IMAGES = 0x803, /* unsigned bytes, three dimensions */
    MAGIC_LABELS = 0x801, /* unsigned bytes, one dimension */
    HEADER_IMAGES = 16,
    HEADER_LABELS = 8,
    CHUNK_BYTES = 1 << 17
};

struct idx {
    int fd; /* of the images, unpacked; -1 */
    char *images_path, *labels_path;
    uint32_t h, w;
    uint64_t n_labels;
    uint8_t *labels;
};

/* A file of the pair, open and with its header read. */
struct part {
    const char *path;
    gzFile file;       /* reads plain files too */
    uint32_t n_header; /* bytes */
    uint8_t header[HEADER_IMAGES];
};

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static int fail_read(const struct part *part, struct gems_error *err)
{
    int number;
    const char *words = gzerror(part->file, &number);

    if (number == Z_ERRNO) {
        return format_errno(part->path, errno, err);
    }
    /* zlib puts "<fd:N>: " before its words. */
    if (words && strstr(words, ">: ")) {
        words = strstr(words, ">: ") + 3;
    }
    return gems_error_set(err, GEMS_E_DATA, "%s: damaged: %s", part->path,
                          words && words[0] ? words : "unknown error");
}

/* Up to n bytes; fewer only at the end of the file. */
static int read_some(const struct part *part, void *ret_bytes, unsigned n, unsigned *ret_n,
                     struct gems_error *err)
{
    int got = gzread(part->file, ret_bytes, n);
    int number = Z_OK;

    gzerror(part->file, &number);
    if (got < 0 || (got < (int)n && number != Z_OK && number != Z_STREAM_END)) {
        return fail_read(part, err);
    }
    *ret_n = (unsigned)got;
    return 0;
}

static int part_open(struct part *part, const char *path, const char *what, uint32_t magic,
                     uint32_t n_header, struct gems_error *err)
{
    uint64_t bytes;
    unsigned got = 0;
    int fd, st = format_open_file(path, &fd, &bytes, err);

    if (st < 0) {
        return st;
    }
    *part = (struct part){ .path = path, .n_header = n_header, .file = gzdopen(fd, "rb") };
    if (!part->file) {
        close(fd);
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory to read it", path);
    }
    gzbuffer(part->file, CHUNK_BYTES);
    st = read_some(part, part->header, n_header, &got, err);
    if (st < 0) {
        return st;
    }
    if (got < n_header) {
        return gems_error_set(err, GEMS_E_DATA,
                              "%s: has %u bytes, fewer than the header of an "
                              "idx file",
                              path, got);
    }
    if (big_endian(part->header) != magic) {
        return gems_error_set(err, GEMS_E_DATA,
                              "%s: begins with 0x%08x instead of 0x%08x, the mark of idx %s", path,
                              big_endian(part->header), magic, what);
    }
    return 0;
}

static void part_close(struct part *part)
{
    if (part->file) {
        gzclose(part->file);
    }
}

/* A file that lives as long as its descriptor. */
static int open_nameless(const char *for_path, int *ret_fd, struct gems_error *err)
{
    const char *folder = getenv("TMPDIR");
    char name[4096];
    int fd;

    if (!folder || !folder[0]) {
        folder = "/var/tmp";
    }
    snprintf(name, sizeof name, "%s/gems-idx-XXXXXX", folder);
    fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) {
        return gems_error_errno(err, errno, "%s: no file in %s to unpack it to", for_path, folder);
    }
    unlink(name);
    *ret_fd = fd;
    return 0;
}

static int write_all(int fd, const uint8_t *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(fd, bytes, n);

        if (written < 0 && errno != EINTR) {
            return -errno;
        }
        if (written > 0) {
            bytes += written;
            n -= (size_t)written;
        }
    }
    return 0;
}

/* Unpacks the images behind the header; at most one byte more than promised,
 * so that a small file cannot fill a disk. */
static int unpack(const struct part *part, int fd, uint64_t promised, uint64_t *ret_bytes,
                  struct gems_error *err)
{
    uint8_t *chunk = malloc(CHUNK_BYTES);
    uint64_t total = 0;
    int st = 0;

    if (!chunk) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory to unpack it", part->path);
    }
    while (st == 0 && total <= promised) {
        uint64_t left = promised + 1 - total;
        unsigned got, n = left < CHUNK_BYTES ? (unsigned)left : CHUNK_BYTES;
        int failed;

        st = read_some(part, chunk, n, &got, err);
        if (st < 0 || got == 0) {
            break;
        }
        failed = write_all(fd, chunk, got);
        if (failed < 0) {
            st = gems_error_errno(err, -failed, "%s: unpacking it to a temporary file", part->path);
        }
        total += got;
    }
    free(chunk);
    *ret_bytes = total;
    return st;
}

static int check_length(const char *path, uint64_t bytes, uint64_t promised, uint64_t n,
                        const char *what, struct gems_error *err)
{
    if (bytes == promised) {
        return 0;
    }
    return gems_error_set(err, GEMS_E_DATA,
                          "%s: its header promises %llu %s, %llu bytes, but %s%llu follow", path,
                          (unsigned long long)n, what, (unsigned long long)promised,
                          bytes > promised ? "at least " : "", (unsigned long long)bytes);
}

/* Leaves the descriptor of the images at hand, packed or not. Packed ones whose
 * pixels nobody asks for stay packed. */
static int load_images(struct idx *idx, const struct part *part, uint64_t n, bool index_only,
                       struct gems_error *err)
{
    uint64_t promised, bytes;
    int st;

    idx->h = big_endian(part->header + 8);
    idx->w = big_endian(part->header + 12);
    if (idx->h == 0 || idx->w == 0 || (uint64_t)idx->h * idx->w > IMAGE_MAX_PIXELS) {
        return gems_error_set(err, GEMS_E_DATA,
                              "%s: images of %ux%u pixels; 1 to %llu pixels are supported",
                              part->path, idx->w, idx->h, (unsigned long long)IMAGE_MAX_PIXELS);
    }
    promised = n * idx->h * idx->w;
    if (index_only && !gzdirect(part->file)) {
        return 0;
    }
    if (gzdirect(part->file)) {
        st = format_open_file(part->path, &idx->fd, &bytes, err);
        bytes = st == 0 && bytes > HEADER_IMAGES ? bytes - HEADER_IMAGES : 0;
    } else {
        st = open_nameless(part->path, &idx->fd, err);
        if (st == 0 && write_all(idx->fd, part->header, HEADER_IMAGES) < 0) {
            st = gems_error_errno(err, errno, "%s: unpacking it to a temporary file", part->path);
        }
        if (st == 0) {
            st = unpack(part, idx->fd, promised, &bytes, err);
        }
    }
    return st < 0 ? st : check_length(part->path, bytes, promised, n, "images", err);
}

static int load_labels(struct idx *idx, const struct part *part, uint32_t classes,
                       struct gems_error *err)
{
    uint32_t n = big_endian(part->header + 4);
    unsigned got = 0;
    uint8_t beyond;
    int st;

    if (n > (uint32_t)INT32_MAX) {
        return gems_error_set(err, GEMS_E_DATA,
                              "%s: its header promises %u labels; up to %d are "
                              "supported",
                              part->path, n, INT32_MAX);
    }
    idx->labels = malloc((size_t)n + 1);
    if (!idx->labels) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory for %u labels", part->path, n);
    }
    st = read_some(part, idx->labels, n, &got, err);
    if (st == 0 && got == n) {
        unsigned more = 0;

        st = read_some(part, &beyond, 1, &more, err);
        got += more;
    }
    if (st == 0) {
        st = check_length(part->path, got, n, n, "labels", err);
    }
    for (uint32_t i = 0; i < n && st == 0; i++) {
        if (idx->labels[i] >= classes) {
            st = gems_error_set(err, GEMS_E_DATA,
                                "%s: label %u of image %u, but the model has classes 0 to %u",
                                part->path, idx->labels[i], i, classes - 1);
        }
    }
    idx->n_labels = n;
    return st;
}

/* PREFIX + suffix, with .gz if only that exists. */
static int find_part(const char *prefix, const char *suffix, char **ret_path,
                     struct gems_error *err)
{
    char *path;
    int st = format_path(ret_path, err, "%s-%s", prefix, suffix);

    if (st < 0 || access(*ret_path, F_OK) == 0) {
        return st;
    }
    st = format_path(&path, err, "%s.gz", *ret_path);
    if (st == 0 && access(path, F_OK) < 0) {
        st = gems_error_set(err, GEMS_E_DATA, "%s: no such file, with or without .gz", *ret_path);
        gems_error_hint(err, "an idx path is the part of a file name before -images-idx3-ubyte, or "
                             "a folder with train-* and t10k-*");
    }
    if (st < 0) {
        free(path);
        return st;
    }
    free(*ret_path);
    *ret_path = path;
    return 0;
}

static int find_parts(struct dataset *set, struct idx *idx, struct gems_error *err)
{
    struct stat info;
    char *prefix;
    bool is_folder = stat(set->path, &info) == 0 && S_ISDIR(info.st_mode);
    int st = format_path(&prefix, err, "%s%s", set->path,
                         !is_folder          ? ""
                         : set->spec.is_eval ? "/t10k"
                                             : "/train");

    if (st == 0) {
        st = find_part(prefix, "images-idx3-ubyte", &idx->images_path, err);
    }
    if (st == 0) {
        st = find_part(prefix, "labels-idx1-ubyte", &idx->labels_path, err);
    }
    free(prefix);
    return st;
}

static int load(struct dataset *set, struct idx *idx, struct part *images, struct part *labels,
                struct gems_error *err)
{
    uint64_t n;
    int st = part_open(images, idx->images_path, "images", MAGIC_IMAGES, HEADER_IMAGES, err);

    if (st == 0) {
        st = part_open(labels, idx->labels_path, "labels", MAGIC_LABELS, HEADER_LABELS, err);
    }
    if (st < 0) {
        return st;
    }
    n = big_endian(images->header + 4);
    if (n == 0) {
        return gems_error_set(err, GEMS_E_DATA, "%s: has no images", idx->images_path);
    }
    if (n != big_endian(labels->header + 4)) {
        return gems_error_set(err, GEMS_E_DATA, "%s: has %u labels for the %llu images in %s",
                              idx->labels_path, big_endian(labels->header + 4),
                              (unsigned long long)n, idx->images_path);
    }
    set->samples = n;
    st = load_labels(idx, labels, set->spec.classes, err);
    return st == 0 ? load_images(idx, images, n, set->spec.is_index_only, err) : st;
}

static int open_idx(struct dataset *set, struct gems_error *err)
{
    struct part images = { 0 }, labels = { 0 };
    struct idx *idx = calloc(1, sizeof *idx);
    int st;

    if (!idx) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory", set->path);
    }
    idx->fd = -1;
    set->own = idx;
    st = find_parts(set, idx, err);
    if (st == 0) {
        st = load(set, idx, &images, &labels, err);
    }
    part_close(&images);
    part_close(&labels);
    return st;
}

static void close_idx(struct dataset *set)
{
    struct idx *idx = set->own;

    if (idx) {
        if (idx->fd >= 0) {
            close(idx->fd);
        }
        free(idx->images_path);
        free(idx->labels_path);
        free(idx->labels);
        free(idx);
    }
}

static uint32_t label_idx(const struct dataset *set, uint64_t i)
{
    const struct idx *idx = set->own;

    return idx->labels[i];
}

static int read_pixels(const struct idx *idx, uint64_t i, uint8_t *ret_pixels,
                       struct gems_error *err)
{
    size_t n = (size_t)idx->h * idx->w, done = 0;
    off_t begin = (off_t)(HEADER_IMAGES + i * n);

    while (done < n) {
        ssize_t got = pread(idx->fd, ret_pixels + done, n - done, begin + (off_t)done);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return format_errno(idx->images_path, got < 0 ? errno : ENODATA, err);
        }
        done += (size_t)got;
    }
    return 0;
}

static int read_idx(struct dataset *set, uint64_t i, uint8_t *ret_pixels, struct gems_error *err)
{
    const struct idx *idx = set->own;
    const struct dataset_spec *spec = &set->spec;
    struct image image;
    int st;

    if (spec->channels == 1 && spec->height == idx->h && spec->width == idx->w) {
        return read_pixels(idx, i, ret_pixels, err);
    }
    st = image_alloc(&image, idx->images_path, idx->h, idx->w, 1, err);
    if (st < 0) {
        return st;
    }
    st = read_pixels(idx, i, image.pixels, err);
    if (st == 0) {
        st = image_fit(&image, spec->channels, spec->height, spec->width, ret_pixels, err);
    }
    image_fini(&image);
    return st;
}

const struct format_ops format_idx = {
    .name = "idx",
    .max_channels = 3,
    .open = open_idx,
    .close = close_idx,
    .label = label_idx,
    .read = read_idx,
};
