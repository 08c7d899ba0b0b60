#include "worker/agent/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fsutil.h"

enum { READ_BYTES = 16 << 10, READS_AT_ONCE = 16 };

int logs_prepare(const char *state_dir, int *ret_fd, struct gems_error *err)
{
    char path[512];
    int status;

    snprintf(path, sizeof path, "%s/logs", state_dir);
    status = fs_mkdirs(state_dir, 0750, err);
    if (status >= 0) {
        status = fs_lock_dir(state_dir, ret_fd, err);
    }
    if (status >= 0) {
        status = fs_remove_tree(state_dir, "logs", err);
    }
    return status < 0 ? status : fs_mkdirs(path, 0750, err);
}

int logs_open(struct rank_log *log, const char *state_dir, const char *name, int pipe_fd,
              uint64_t limit, struct gems_error *err)
{
    memset(log, 0, sizeof *log);
    log->pipe_fd = pipe_fd;
    log->limit = limit;
    snprintf(log->path, sizeof log->path, "%s/logs/%s.log", state_dir, name);
    log->file_fd = open(log->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (log->file_fd < 0) {
        return gems_error_errno(err, errno, "%s", log->path);
    }
    return 0;
}

static void add_tail(struct rank_log *log, const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        log->tail[log->tail_bytes++ % LOG_TAIL_BYTES] = data[i];
    }
}

static void add_file(struct rank_log *log, const char *data, size_t n)
{
    static const char note[] =
        "\n[gems-worker: the log has reached its limit; the rest is dropped]\n";
    uint64_t room = log->limit - log->bytes;
    size_t kept = n < room ? n : (size_t)room;

    if (log->dropped == 0 && kept > 0 && log->file_fd >= 0) {
        ssize_t written = pwrite(log->file_fd, data, kept, (off_t)log->bytes);

        /* A full disk drops the rest, as the limit does. */
        kept = written > 0 ? (size_t)written : 0;
        log->bytes += kept;
    } else {
        kept = 0;
    }
    if (kept < n && log->dropped == 0 && log->file_fd >= 0 &&
        pwrite(log->file_fd, note, sizeof note - 1, (off_t)log->bytes) == sizeof note - 1) {
        log->bytes += sizeof note - 1;
    }
    log->dropped += n - kept;
}

bool logs_read(struct rank_log *log)
{
    char data[READ_BYTES];

    /* Not for ever: other ranks print too. */
    for (int i = 0; i < READS_AT_ONCE && log->pipe_fd >= 0; i++) {
        ssize_t n = read(log->pipe_fd, data, sizeof data);

        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }
        if (n <= 0) {
            close(log->pipe_fd);
            log->pipe_fd = -1;
            break;
        }
        add_tail(log, data, (size_t)n);
        add_file(log, data, (size_t)n);
    }
    return log->pipe_fd >= 0;
}

size_t logs_piece(const struct rank_log *log, uint8_t *piece, size_t room)
{
    uint64_t left = log->bytes - log->shipped;
    ssize_t n;

    if (left == 0 || log->file_fd < 0) {
        return 0;
    }
    n = pread(log->file_fd, piece, left < room ? (size_t)left : room, (off_t)log->shipped);
    return n > 0 ? (size_t)n : 0;
}

void logs_tail(const struct rank_log *log, char ret_text[LOG_TAIL_BYTES + 1])
{
    size_t n = log->tail_bytes < LOG_TAIL_BYTES ? (size_t)log->tail_bytes : LOG_TAIL_BYTES;
    uint64_t first = log->tail_bytes - n;
    size_t out = 0;
    bool is_cut = log->tail_bytes > LOG_TAIL_BYTES;

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)log->tail[(first + i) % LOG_TAIL_BYTES];

        if (is_cut) {
            is_cut = c != '\n'; /* begins with a whole line */
        } else {
            ret_text[out++] = (char)(c == '\n' || c == '\t' || (c >= ' ' && c < 0x7f) ? c : '?');
        }
    }
    ret_text[out] = '\0';
}

void logs_close(struct rank_log *log)
{
    if (log->pipe_fd >= 0) {
        close(log->pipe_fd);
        log->pipe_fd = -1;
    }
    if (log->file_fd >= 0) {
        close(log->file_fd);
        log->file_fd = -1;
        unlink(log->path);
    }
}
