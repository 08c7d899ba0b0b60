#include "common/fsutil.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/error.h"

enum { FS_READ_BYTES = 64 << 10, FS_MAX_DEPTH = 64 };

static int read_fd(int fd, const char *path, size_t max_bytes, struct buf *buf, struct gems_error *err)
{
    size_t start = buf->n;

    for (;;) {
        ssize_t n;

        if (buf_reserve(buf, FS_READ_BYTES) < 0) {
            return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory", path);
        }
        n = read(fd, buf->data + buf->n, FS_READ_BYTES);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return gems_error_errno(err, errno, "%s", path);
        }
        if (n == 0) {
            return GEMS_OK;
        }
        buf->n += (size_t)n;
        if (buf->n - start > max_bytes) {
            return gems_error_set(err, GEMS_E_INVALID, "%s: larger than %zu bytes", path, max_bytes);
        }
    }
}

static int check_kind(const char *path, const struct stat *file, bool is_secret,
                      struct gems_error *err)
{
    if (S_ISDIR(file->st_mode)) {
        return gems_error_set(err, GEMS_E_INVALID, "%s: is a directory", path);
    }
    if (is_secret && S_ISREG(file->st_mode) && file->st_mode & (S_IRWXO | S_IWGRP)) {
        gems_error_set(err, GEMS_E_INVALID, "%s: holds a secret and is open to others (mode %04o)", path,
                       (unsigned)file->st_mode & 07777);
        gems_error_hint(err, "chmod 600 %s", path);
        return GEMS_E_INVALID;
    }
    return GEMS_OK;
}

static int read_path(const char *path, size_t max_bytes, bool is_secret, struct buf *buf,
                     struct gems_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t start = buf->n;
    struct stat file;
    int st;

    if (fd < 0) {
        return gems_error_errno(err, errno, "%s", path);
    }
    st = fstat(fd, &file) < 0 ? gems_error_errno(err, errno, "%s", path) :
                                check_kind(path, &file, is_secret, err);
    if (st >= 0) {
        st = read_fd(fd, path, max_bytes, buf, err);
    }
    close(fd);
    if (st < 0) {
        buf->n = start;
    }
    return st;
}

int fs_read(const char *path, size_t max_bytes, struct buf *buf, struct gems_error *err)
{
    return read_path(path, max_bytes, false, buf, err);
}

int fs_read_secret(const char *path, size_t max_bytes, struct buf *buf, struct gems_error *err)
{
    return read_path(path, max_bytes, true, buf, err);
}

int fs_write_all(int fd, const void *data, size_t n)
{
    const char *at = data;

    while (n > 0) {
        ssize_t done = write(fd, at, n);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return -errno;
        }
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

int fs_sync_dir(const char *path, struct gems_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int st = GEMS_OK;

    if (fd < 0) {
        return gems_error_errno(err, errno, "%s", path);
    }
    /* EINVAL: a file system that has nothing to sync for a folder. */
    if (fsync(fd) < 0 && errno != EINVAL) {
        st = gems_error_errno(err, errno, "%s: sync", path);
    }
    close(fd);
    return st;
}

int fs_lock_dir(const char *path, int *ret_fd, struct gems_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed;

    if (fd < 0) {
        return gems_error_errno(err, errno, "%s", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        failed = errno;
        close(fd);
        return failed == EWOULDBLOCK
                   ? gems_error_set(err, GEMS_E_STATE, "%s: another process uses this folder", path)
                   : gems_error_errno(err, failed, "%s: lock", path);
    }
    *ret_fd = fd;
    return GEMS_OK;
}

static int sync_parent(const char *path, struct gems_error *err)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];

    if (!slash) {
        return fs_sync_dir(".", err);
    }
    snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return fs_sync_dir(folder, err);
}

static int fill_and_close(int fd, const char *path, const void *data, size_t n, mode_t mode,
                          struct gems_error *err)
{
    int failed = fs_write_all(fd, data, n);

    if (failed == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0)) {
        failed = -errno;
    }
    if (close(fd) < 0 && failed == 0) {
        failed = -errno;
    }
    return failed == 0 ? GEMS_OK : gems_error_errno(err, -failed, "%s: write", path);
}

int fs_write_atomic(const char *path, const void *data, size_t n, mode_t mode, struct gems_error *err)
{
    char temporary[PATH_MAX];
    int fd;
    int st;

    if (snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= (int)sizeof temporary) {
        return gems_error_errno(err, ENAMETOOLONG, "%s", path);
    }
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        return gems_error_errno(err, errno, "%s: create", path);
    }
    st = fill_and_close(fd, path, data, n, mode, err);
    if (st == GEMS_OK && rename(temporary, path) < 0) {
        st = gems_error_errno(err, errno, "%s: rename", path);
    }
    if (st < 0) {
        unlink(temporary);
        return st;
    }
    return sync_parent(path, err);
}

int fs_mkdirs(const char *path, mode_t mode, struct gems_error *err)
{
    char part[PATH_MAX];
    struct stat stat_buf;

    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) {
        return gems_error_errno(err, ENAMETOOLONG, "%s", path);
    }
    for (char *slash = strchr(part + (part[0] == '/'), '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, mode) < 0 && errno != EEXIST) {
            return gems_error_errno(err, errno, "%s: create folder", part);
        }
        *slash = '/';
    }
    if (mkdir(part, mode) < 0 && errno != EEXIST) {
        return gems_error_errno(err, errno, "%s: create folder", part);
    }
    if (stat(part, &stat_buf) < 0) {
        return gems_error_errno(err, errno, "%s", part);
    }
    return S_ISDIR(stat_buf.st_mode) ? GEMS_OK : gems_error_errno(err, ENOTDIR, "%s", part);
}

/* Removes the entry `name` of an open folder; returns 0 or an errno. */
static int remove_at(int dir_fd, const char *name, dev_t dev, int depth);

static int remove_entries(int fd, dev_t dev, int depth)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    int failed = 0;

    if (!dir) {
        failed = errno;
        close(fd);
        return failed;
    }
    errno = 0;
    while (failed == 0 && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            failed = remove_at(dirfd(dir), entry->d_name, dev, depth + 1);
        }
        errno = 0;
    }
    if (failed == 0 && errno != 0) {
        failed = errno;
    }
    closedir(dir);
    return failed;
}

static int remove_at(int dir_fd, const char *name, dev_t dev, int depth)
{
    struct stat stat_buf;
    int fd;
    int failed;

    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }
    if (errno != EISDIR && errno != EPERM) {
        return errno;
    }
    if (depth > FS_MAX_DEPTH) {
        return ELOOP;
    }
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    if (fstat(fd, &stat_buf) < 0 || stat_buf.st_dev != dev) {
        close(fd);
        return EXDEV;
    }
    failed = remove_entries(fd, dev, depth);
    if (failed == 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT) {
        failed = errno;
    }
    return failed;
}

/* A relative path of plain components only. */
static int check_name(const char *name)
{
    const char *at = name;

    for (;;) {
        size_t n = strcspn(at, "/");

        if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.')) {
            return GEMS_E_INVALID;
        }
        if (!at[n]) {
            return GEMS_OK;
        }
        at += n + 1;
    }
}

/* Opens the folder that holds the last component, link by link, so that no
 * symbolic link leads out of root. Returns a descriptor or -errno. */
static int open_holder(const char *root, const char *name, const char **ret_last)
{
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *slash;

    while (fd >= 0 && (slash = strchr(name, '/'))) {
        char part[NAME_MAX + 1];
        int next = -1;

        if ((size_t)(slash - name) < sizeof part) {
            snprintf(part, sizeof part, "%.*s", (int)(slash - name), name);
            next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        } else {
            errno = ENAMETOOLONG;
        }
        if (next < 0) {
            int failed = errno;

            close(fd);
            return -failed;
        }
        close(fd);
        fd = next;
        name = slash + 1;
    }
    *ret_last = name;
    return fd < 0 ? -errno : fd;
}

int fs_remove_tree(const char *root, const char *name, struct gems_error *err)
{
    const char *last = NULL;
    struct stat stat_buf;
    int failed;
    int fd;

    if (check_name(name) < 0) {
        return gems_error_set(err, GEMS_E_INVALID, "remove '%s': not a plain relative path", name);
    }
    fd = open_holder(root, name, &last);
    if (fd == -ENOENT) {
        return GEMS_OK;
    }
    if (fd < 0) {
        return gems_error_errno(err, -fd, "remove %s/%s", root, name);
    }
    failed = fstat(fd, &stat_buf) < 0 ? errno : remove_at(fd, last, stat_buf.st_dev, 0);
    close(fd);
    return failed == 0 ? GEMS_OK : gems_error_errno(err, failed, "remove %s/%s", root, name);
}

int fs_free_bytes(const char *path, uint64_t *ret_bytes, struct gems_error *err)
{
    struct statvfs fs;

    if (statvfs(path, &fs) < 0) {
        return gems_error_errno(err, errno, "%s: free space", path);
    }
    *ret_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    return GEMS_OK;
}
