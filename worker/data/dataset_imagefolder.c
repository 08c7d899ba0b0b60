/* A folder of class folders: PATH/CLASS/IMAGE.jpg. Classes are numbered in
 * bytewise order of their names, images in bytewise order inside a class.
 *
 * Every class of the model must have its folder, also in the evaluation set
 * (it may be empty there): with one missing, the labels behind it would
 * silently mean other classes. What begins with a dot, and files of other
 * kinds than .jpg, .jpeg and .png, are passed over.
 */
#include "worker/data/format.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "worker/data/image.h"

enum { MAX_FILE_BYTES = 1 << 28, MAX_SAMPLES = INT32_MAX };

/* Names, one after another in one block, and where each begins. */
struct names {
    char *block;
    size_t n_block, block_capacity;
    size_t *begins;
    size_t n, capacity;
};

struct folder {
    struct names classes, files;
    uint32_t *labels; /* per file */
};

static const char *name_at(const struct names *names, size_t i)
{
    return names->block + names->begins[i];
}

static void names_fini(struct names *names)
{
    free(names->block);
    free(names->begins);
}

static int names_add(struct names *names, const char *name, struct gems_error *err)
{
    size_t bytes = strlen(name) + 1;

    if (names->n_block + bytes > names->block_capacity) {
        size_t capacity = 2 * names->block_capacity + bytes + 4096;
        char *block = realloc(names->block, capacity);

        if (!block) {
            return gems_error_set(err, GEMS_E_NOMEM, "data set: no memory for %zu names", names->n);
        }
        names->block = block;
        names->block_capacity = capacity;
    }
    if (names->n == names->capacity) {
        size_t capacity = 2 * names->capacity + 64;
        size_t *begins = realloc(names->begins, capacity * sizeof *begins);

        if (!begins) {
            return gems_error_set(err, GEMS_E_NOMEM, "data set: no memory for %zu names", names->n);
        }
        names->begins = begins;
        names->capacity = capacity;
    }
    memcpy(names->block + names->n_block, name, bytes);
    names->begins[names->n++] = names->n_block;
    names->n_block += bytes;
    return 0;
}

static int compare_begins(const void *a, const void *b, void *block)
{
    return strcmp((const char *)block + *(const size_t *)a,
                  (const char *)block + *(const size_t *)b);
}

/* Bytewise, from entry `first` on. */
static void names_sort(struct names *names, size_t first)
{
    if (names->n > first) {
        qsort_r(names->begins + first, names->n - first, sizeof *names->begins, compare_begins,
                names->block);
    }
}

static bool is_image_name(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 ||
                   strcasecmp(dot, ".png") == 0);
}

/* The entry's type behind links; DT_UNKNOWN: cannot be told. */
static unsigned char entry_type(DIR *dir, const struct dirent *entry)
{
    struct stat info;

    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK) {
        return entry->d_type;
    }
    if (fstatat(dirfd(dir), entry->d_name, &info, 0) < 0) {
        return DT_UNKNOWN;
    }
    return S_ISDIR(info.st_mode) ? DT_DIR : S_ISREG(info.st_mode) ? DT_REG : DT_FIFO;
}

/* One name of a folder; decides whether it is wanted. */
typedef int (*entry_fn)(struct names *names, const char *path, const char *name, unsigned char type,
                        struct gems_error *err);

static int list(struct names *names, const char *path, entry_fn take, struct gems_error *err)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    int st = 0;

    if (!dir) {
        return format_errno(path, errno, err);
    }
    for (errno = 0; st == 0 && (entry = readdir(dir)); errno = 0) {
        if (entry->d_name[0] != '.') {
            st = take(names, path, entry->d_name, entry_type(dir, entry), err);
        }
    }
    if (st == 0 && errno != 0) {
        st = format_errno(path, errno, err);
    }
    closedir(dir);
    return st;
}

static int take_class(struct names *names, const char *path, const char *name, unsigned char type,
                      struct gems_error *err)
{
    (void)path;
    return type == DT_DIR ? names_add(names, name, err) : 0;
}

static int take_file(struct names *names, const char *path, const char *name, unsigned char type,
                     struct gems_error *err)
{
    if (type == DT_DIR) {
        return gems_error_set(err, GEMS_E_DATA,
                              "%s/%s: is a folder, but an image file is expected there "
                              "(DATA/CLASS/IMAGE.jpg)",
                              path, name);
    }
    if (!is_image_name(name)) {
        return 0;
    }
    if (names->n >= MAX_SAMPLES) {
        return gems_error_set(err, GEMS_E_DATA, "%s: more than %d images in all", path,
                              MAX_SAMPLES);
    }
    return names_add(names, name, err);
}

static int list_classes(struct dataset *set, struct folder *folder, struct gems_error *err)
{
    uint32_t classes = set->spec.classes;
    size_t n;
    int st = list(&folder->classes, set->path, take_class, err);

    if (st < 0) {
        return st;
    }
    n = folder->classes.n;
    if (n == 0) {
        return gems_error_set(err, GEMS_E_DATA,
                              "%s: has no class folders; images are expected as CLASS/IMAGE.jpg",
                              set->path);
    }
    if (n != classes) {
        gems_error_set(err, GEMS_E_DATA, "%s: has %zu class folder%s, but the model has %u classes",
                       set->path, n, n == 1 ? "" : "s", classes);
        if (n > classes) {
            gems_error_hint(err, "set model.classes to %zu", n);
        } else {
            gems_error_hint(err,
                            "set model.classes to %zu, or make an empty folder for each class "
                            "without images",
                            n);
        }
        return GEMS_E_DATA;
    }
    names_sort(&folder->classes, 0);
    return 0;
}

/* Adds the images of one class. */
static int list_files(struct dataset *set, struct folder *folder, uint32_t label,
                      struct gems_error *err)
{
    size_t first = folder->files.n;
    uint32_t *labels;
    char *path;
    int st = format_path(&path, err, "%s/%s", set->path, name_at(&folder->classes, label));

    if (st == 0) {
        st = list(&folder->files, path, take_file, err);
    }
    free(path);
    if (st < 0 || folder->files.n == first) {
        return st;
    }
    names_sort(&folder->files, first);
    labels = realloc(folder->labels, folder->files.n * sizeof *labels);
    if (!labels) {
        return gems_error_set(err, GEMS_E_NOMEM, "data set: no memory for %zu labels",
                              folder->files.n);
    }
    folder->labels = labels;
    for (size_t i = first; i < folder->files.n; i++) {
        labels[i] = label;
    }
    return 0;
}

static int open_folder(struct dataset *set, struct gems_error *err)
{
    struct folder *folder = calloc(1, sizeof *folder);
    int st;

    if (!folder) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory", set->path);
    }
    set->own = folder;
    st = list_classes(set, folder, err);
    for (uint32_t label = 0; st == 0 && label < folder->classes.n; label++) {
        st = list_files(set, folder, label, err);
    }
    if (st == 0 && folder->files.n == 0) {
        st = gems_error_set(err, GEMS_E_DATA,
                            "%s: has no images; .jpg, .jpeg and .png files are expected in its "
                            "class folders",
                            set->path);
    }
    set->samples = folder->files.n;
    return st;
}

static void close_folder(struct dataset *set)
{
    struct folder *folder = set->own;

    if (folder) {
        names_fini(&folder->classes);
        names_fini(&folder->files);
        free(folder->labels);
        free(folder);
    }
}

static uint32_t label_folder(const struct dataset *set, uint64_t i)
{
    const struct folder *folder = set->own;

    return folder->labels[i];
}

/* A whole file. *ret_bytes is the caller's. */
static int read_file(const char *path, uint8_t **ret_bytes, size_t *ret_n, struct gems_error *err)
{
    uint8_t *bytes;
    uint64_t size;
    size_t n = 0;
    int fd, st = format_open_file(path, &fd, &size, err);

    if (st < 0) {
        return st;
    }
    if (size == 0 || size > MAX_FILE_BYTES) {
        close(fd);
        return gems_error_set(err, GEMS_E_DATA, "%s: has %llu bytes; an image file has 1 to %d",
                              path, (unsigned long long)size, MAX_FILE_BYTES);
    }
    bytes = malloc(size);
    if (!bytes) {
        close(fd);
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory for its %llu bytes", path,
                              (unsigned long long)size);
    }
    while (n < size) {
        ssize_t got = read(fd, bytes + n, size - n);

        if (got == 0) {
            break;
        }
        if (got < 0 && errno != EINTR) {
            st = format_errno(path, errno, err);
            break;
        }
        n += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    if (st < 0) {
        free(bytes);
        return st;
    }
    *ret_bytes = bytes;
    *ret_n = n;
    return 0;
}

/* By its first bytes, not by its name. */
static int decode(const char *path, const uint8_t *bytes, size_t n, int wants_grey,
                  struct image *ret_image, struct gems_error *err)
{
    static const uint8_t jpeg[] = { 0xff, 0xd8, 0xff }, png[] = { 0x89, 'P', 'N', 'G' };

    if (n >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0) {
        return image_decode_jpeg(path, bytes, n, wants_grey, ret_image, err);
    }
    if (n >= sizeof png && memcmp(bytes, png, sizeof png) == 0) {
        return image_decode_png(path, bytes, n, ret_image, err);
    }
    return gems_error_set(err, GEMS_E_DATA, "%s: is neither a JPEG nor a PNG file", path);
}

static int read_folder(struct dataset *set, uint64_t i, uint8_t *ret_pixels, struct gems_error *err)
{
    const struct folder *folder = set->own;
    const struct dataset_spec *spec = &set->spec;
    struct image image = { 0 };
    uint8_t *bytes = NULL;
    size_t n = 0;
    char *path;
    int st = format_path(&path, err, "%s/%s/%s", set->path,
                         name_at(&folder->classes, folder->labels[i]), name_at(&folder->files, i));

    if (st == 0) {
        st = read_file(path, &bytes, &n, err);
    }
    if (st == 0) {
        st = decode(path, bytes, n, spec->channels == 1, &image, err);
    }
    if (st == 0) {
        st = image_fit(&image, spec->channels, spec->height, spec->width, ret_pixels, err);
    }
    image_fini(&image);
    free(bytes);
    free(path);
    return st;
}

const struct format_ops format_imagefolder = {
    .name = "imagefolder",
    .max_channels = 3,
    .open = open_folder,
    .close = close_folder,
    .label = label_folder,
    .read = read_folder,
};
