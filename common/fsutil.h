/* Files: what every part of gems needs to read and write them safely.
 *
 * Descriptors are close-on-exec. Blocking: not for an event loop, except for
 * small files at start. Error texts name the path. Any thread.
 */
#ifndef GEMS_COMMON_FSUTIL_H
#define GEMS_COMMON_FSUTIL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buf;
struct gems_error;

/* Appends the whole of a regular file (or pipe) to buf. GEMS_E_INVALID if it
 * holds more than max_bytes or is a directory; GEMS_E_NOTFOUND. */
int fs_read(const char *path, size_t max_bytes, struct buf *buf, struct gems_error *err);

/* As fs_read, for a file that says who may come in: GEMS_E_INVALID if others
 * may read or the group may change it. */
int fs_read_secret(const char *path, size_t max_bytes, struct buf *buf, struct gems_error *err);

/* Replaces path as a whole or not at all: temporary file in the same folder,
 * fsync, rename, fsync of the folder. Mode is not subject to umask. */
int fs_write_atomic(const char *path, const void *data, size_t n, mode_t mode, struct gems_error *err);

/* Makes the rename or creation of an entry durable. */
int fs_sync_dir(const char *path, struct gems_error *err);

/* As mkdir -p: missing folders are made with this mode (under the umask). */
int fs_mkdirs(const char *path, mode_t mode, struct gems_error *err);

/* Removes root/name, a file or a whole tree. name is relative and has no "."
 * or ".." component; symbolic links are removed, never followed, and other
 * file systems are not entered. What is not there is no error. */
int fs_remove_tree(const char *root, const char *name, struct gems_error *err);

/* Holds a folder for this process until ret_fd is closed, at the latest with
 * the process. GEMS_E_STATE: another process holds it. */
int fs_lock_dir(const char *path, int *ret_fd, struct gems_error *err);

/* Bytes that an unprivileged process may still write below path. */
int fs_free_bytes(const char *path, uint64_t *ret_bytes, struct gems_error *err);

/* Writes everything, over EINTR and short writes. 0 or -errno. */
int fs_write_all(int fd, const void *data, size_t n);

#endif
