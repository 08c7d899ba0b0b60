/* gems-rank: trains one rank of one attempt, and dies with it.
 *
 * Started by gems-worker only, with a launch message in an open descriptor
 * (inherit.h). Exit codes:
 *   0  done, or stopped behind a durable checkpoint
 *   1  the attempt failed; End has told gemsd why
 *   2  no usable launch message
 *   3  gemsd refused this rank: another attempt runs
 *   4  the agent that started it is gone
 *   5  gemsd said stop
 * SIGTERM ends it at once, as it does by default: the unit of recovery is the
 * attempt, nothing here is worth saving.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/log.h"
#include "config.h"
#include "worker/rank/attempt.h"
#include "worker/rank/inherit.h"

enum { EXIT_FAILED = 1, EXIT_LAUNCH = 2, EXIT_ORPHAN = 4 };

/* The agent holds the other end of the pipe and never writes: whatever wakes
 * this thread is the agent's death. A thread of its own, because no other one
 * is always free to notice. */
static void *watch_lifeline(void *arg)
{
    struct pollfd poll_fd = { .fd = (int)(intptr_t)arg, .events = POLLIN };

    while (poll(&poll_fd, 1, -1) < 0 && errno == EINTR) {
    }
    _exit(EXIT_ORPHAN);
}

static int start_lifeline(uint32_t fd, struct gems_error *err)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int error;

    if (fd == 0) {
        return GEMS_OK;
    }
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &attributes, watch_lifeline, (void *)(intptr_t)fd);
    pthread_attr_destroy(&attributes);
    return error ? gems_error_errno(err, error, "life-line thread") : GEMS_OK;
}

int main(int argc, char **argv)
{
    Gems__LaunchInfo *info;
    struct gems_error err;
    int status;

    if (argc > 1) {
        bool is_version = !strcmp(argv[1], "--version");

        printf("%s\n",
               is_version ? "gems-rank " PACKAGE_VERSION : "gems-rank is started by gems-worker");
        return is_version ? 0 : EXIT_LAUNCH;
    }
    status = inherit_read(&info, &err);
    if (status == GEMS_OK) {
        status = start_lifeline(info->lifeline_fd, &err);
    }
    if (status < 0) {
        log_error("gems-rank: %s", err.text);
        return EXIT_LAUNCH;
    }
    status = attempt_run(info, &err);
    /* Endpoints, threads and memory go with the process; taking them down one by
     * one could only hang on a peer that is gone. */
    _exit(status == GEMS_OK || status == GEMS_E_CANCELLED ? 0 : EXIT_FAILED);
}
