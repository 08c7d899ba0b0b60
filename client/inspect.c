#include "client/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/fsutil.h"
#include "proto/codec.h"
#include "proto/messages.h"

enum { REPLY_LIMIT_BYTES = 64 << 20, TIMEOUT_MS = 120000, LENGTH_BYTES = 4 };

struct child {
    pid_t pid;
    int in, out; /* our ends */
};

static int find_program(char ret_path[PATH_MAX], struct gems_error *err)
{
    char own[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    char *slash;

    own[n > 0 ? n : 0] = '\0';
    slash = strrchr(own, '/');
    if (slash) {
        *slash = '\0';
        if (snprintf(ret_path, PATH_MAX, "%s/gems-inspect", own) < PATH_MAX &&
            access(ret_path, X_OK) == 0) {
            return GEMS_OK;
        }
    }
    snprintf(ret_path, PATH_MAX, "%s/gems-inspect", GEMS_LIBEXECDIR);
    if (access(ret_path, X_OK) == 0) {
        return GEMS_OK;
    }
    gems_error_errno(err, errno, "%s", ret_path);
    gems_error_hint(err, "gems-inspect belongs to the installation of gems-worker");
    return err->status;
}

static int start_child(const char *path, struct child *ret_child, struct gems_error *err)
{
    posix_spawn_file_actions_t actions;
    char *argv[] = { (char *)"gems-inspect", NULL };
    int in[2], out[2], status;

    if (pipe2(in, O_CLOEXEC) != 0) {
        return gems_error_errno(err, errno, "gems-inspect: pipe");
    }
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return gems_error_errno(err, errno, "gems-inspect: pipe");
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    status = posix_spawn(&ret_child->pid, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    if (status != 0) {
        close(in[1]);
        close(out[0]);
        return gems_error_errno(err, status, "%s", path);
    }
    ret_child->in = in[1];
    ret_child->out = out[0];
    return GEMS_OK;
}

static void put_length(uint8_t bytes[LENGTH_BYTES], size_t n)
{
    for (int i = 0; i < LENGTH_BYTES; i++) {
        bytes[i] = (uint8_t)(n >> (8 * i));
    }
}

static size_t get_length(const uint8_t bytes[LENGTH_BYTES])
{
    return (size_t)bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16 |
           (size_t)bytes[3] << 24;
}

static int send_request(const struct child *child, const Gems__InspectRequest *request,
                        struct gems_error *err)
{
    uint8_t length[LENGTH_BYTES], *bytes;
    size_t n;
    int status = proto_pack(&request->base, &bytes, &n, err);

    if (status < 0) {
        return status;
    }
    put_length(length, n);
    status = fs_write_all(child->in, length, sizeof length);
    if (status == 0) {
        status = fs_write_all(child->in, bytes, n);
    }
    free(bytes);
    /* A child that is gone says why on stderr and by its exit; see finish_child. */
    return status < 0 && status != -EPIPE ? gems_error_errno(err, -status, "gems-inspect: request")
                                          : GEMS_OK;
}

/* Everything the child writes, until it closes its output. */
static int read_reply(const struct child *child, struct buf *buf, struct gems_error *err)
{
    int64_t end_us = clock_monotonic_us(&clock_system) + TIMEOUT_MS * INT64_C(1000);

    for (;;) {
        struct pollfd poller = { .fd = child->out, .events = POLLIN };
        int64_t left_us = end_us - clock_monotonic_us(&clock_system);
        ssize_t n;

        if (left_us <= 0 || poll(&poller, 1, (int)(left_us / 1000) + 1) == 0) {
            return gems_error_set(err, GEMS_E_TIMEOUT, "gems-inspect: no answer within %d s",
                                  TIMEOUT_MS / 1000);
        }
        if (buf_reserve(buf, 65536) < 0) {
            return gems_error_set(err, GEMS_E_NOMEM, "gems-inspect: out of memory");
        }
        n = read(child->out, buf->data + buf->n, 65536);
        if (n == 0) {
            return GEMS_OK;
        }
        if (n < 0 && errno != EINTR) {
            return gems_error_errno(err, errno, "gems-inspect: reply");
        }
        buf->n += n > 0 ? (size_t)n : 0;
        if (buf->n > REPLY_LIMIT_BYTES) {
            return gems_error_set(err, GEMS_E_PEER, "gems-inspect: the reply is too long");
        }
    }
}

/* Ends a child that is late, takes its exit status. */
static int finish_child(const struct child *child, bool is_late, struct gems_error *err)
{
    int state = 0;

    if (is_late) {
        kill(child->pid, SIGKILL);
    }
    while (waitpid(child->pid, &state, 0) < 0 && errno == EINTR) {
    }
    if (is_late || (WIFEXITED(state) && WEXITSTATUS(state) == 0)) {
        return GEMS_OK;
    }
    if (WIFSIGNALED(state)) {
        return gems_error_set(err, GEMS_E_INTERNAL, "gems-inspect: killed by signal %d (%s)",
                              WTERMSIG(state), strsignal(WTERMSIG(state)));
    }
    return gems_error_set(err, GEMS_E_INTERNAL, "gems-inspect: exit code %d", WEXITSTATUS(state));
}

static int decode_reply(const struct buf *buf, Gems__InspectReply **ret_reply,
                        struct gems_error *err)
{
    struct rpc_frame frame = { .type = MSG_INSPECT_REPLY };
    ProtobufCMessage *message;
    const Gems__Error *error;
    int status;

    if (buf->n < LENGTH_BYTES || get_length(buf->data) != buf->n - LENGTH_BYTES) {
        return gems_error_set(err, GEMS_E_PEER, "gems-inspect: the reply is cut off");
    }
    frame.payload = buf->data + LENGTH_BYTES;
    frame.bytes = buf->n - LENGTH_BYTES;
    status = msg_decode(&frame, &message, err);
    if (status < 0) {
        return status;
    }
    error = ((Gems__InspectReply *)message)->error;
    if (error) {
        status = error->status < 0 ? error->status : GEMS_E_INTERNAL;
        gems_error_set(err, status, "%s", error->text);
        gems_error_hint(err, "%s", error->hint);
        msg_free(message);
        return status;
    }
    *ret_reply = (Gems__InspectReply *)message;
    return GEMS_OK;
}

int inspect_run(const Gems__InspectRequest *request, Gems__InspectReply **ret_reply,
                struct gems_error *err)
{
    char path[PATH_MAX];
    struct child child;
    struct buf buf = { 0 };
    int status = find_program(path, err), ended;

    if (status == GEMS_OK) {
        status = start_child(path, &child, err);
    }
    if (status < 0) {
        return status;
    }
    status = send_request(&child, request, err);
    close(child.in);
    if (status == GEMS_OK) {
        status = read_reply(&child, &buf, err);
    }
    close(child.out);
    ended = finish_child(&child, status < 0, err);
    if (status == GEMS_OK) {
        status = ended < 0 ? ended : decode_reply(&buf, ret_reply, err);
    }
    buf_fini(&buf);
    return status;
}
