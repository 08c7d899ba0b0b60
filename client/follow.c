#include "client/follow.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/call.h"
#include "client/view.h"
#include "common/clock.h"
#include "common/error.h"

enum { RETRY_MS = 500, RETRY_FOR_MS = 120000, LINE_EVERY_MS = 10000 };

struct watcher {
    const struct follow *follow;
    char state[32]; /* last one shown */
    uint32_t epoch;
    int64_t shown_us;
    bool is_over, is_heard;
    int exit_code;
};

static uint32_t terminal_width(void)
{
    struct winsize size;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col - 1u : 79;
}

static void show(struct watcher *watcher, const Gems__JobInfo *job)
{
    bool is_changed = strcmp(watcher->state, job->state) != 0 || watcher->epoch != job->epoch;
    int64_t now_us = clock_monotonic_us(&clock_system);
    struct progress progress = view_progress(job);
    char line[256];

    if (output_is_terminal()) {
        output_progress(&progress, terminal_width(), line, sizeof line);
        output_progress_show(line);
    } else if (watcher->follow->lines &&
               (is_changed || now_us - watcher->shown_us > LINE_EVERY_MS * INT64_C(1000))) {
        output_progress(&progress, 99, line, sizeof line);
        fprintf(watcher->follow->lines, "job %" PRIu64 "  %s\n", job->id, line);
        fflush(watcher->follow->lines);
        watcher->shown_us = now_us;
    }
    snprintf(watcher->state, sizeof watcher->state, "%s", job->state);
    watcher->epoch = job->epoch;
}

static int on_status(void *arg, const ProtobufCMessage *chunk, struct gems_error *err)
{
    struct watcher *watcher = arg;
    const Gems__StatusReply *status = (const Gems__StatusReply *)chunk;

    if (!status->job) {
        return gems_error_set(err, GEMS_E_PEER, "gemsd: a status without a job");
    }
    watcher->is_heard = true;
    if (watcher->follow->is_json) {
        output_json(view_status_json(status));
    } else if (!view_is_over(status->job)) {
        show(watcher, status->job);
    }
    watcher->is_over = view_is_over(status->job);
    watcher->exit_code = view_exit(status->job);
    if (watcher->is_over && !watcher->follow->is_json) {
        output_progress_show(NULL);
        if (output_is_terminal() || watcher->follow->lines) {
            fprintf(watcher->follow->lines ? watcher->follow->lines : stderr,
                    "job %" PRIu64 "  %s%s%s\n", status->job->id, status->job->state,
                    status->job->reason[0] ? ": " : "", status->job->reason);
        }
    }
    return watcher->is_over ? 1 : 0;
}

static int watch_once(const struct client *client, struct watcher *watcher, struct gems_error *err)
{
    Gems__WatchRequest request = GEMS__WATCH_REQUEST__INIT;
    struct call *call;
    int status = call_open(client, &call, err);

    if (status < 0) {
        return status;
    }
    request.job = watcher->follow->job;
    status =
        call_stream(call, MSG_WATCH, &request.base, MSG_STATUS_REPLY, 0, on_status, watcher, err);
    call_close(call);
    if (status == GEMS_OK && !watcher->is_over) {
        return gems_error_set(err, GEMS_E_PEER, "gemsd: the watch ended before the job did");
    }
    return status;
}

int follow_job(const struct client *client, const struct follow *follow, struct gems_error *err)
{
    struct watcher watcher = { .follow = follow, .is_heard = follow->is_known };
    int64_t heard_us = clock_monotonic_us(&clock_system);
    int status;

    for (;;) {
        bool was_heard = watcher.is_heard;

        watcher.is_heard = false;
        status = watch_once(client, &watcher, err);
        if (watcher.is_heard) {
            heard_us = clock_monotonic_us(&clock_system);
        }
        watcher.is_heard |= was_heard;
        if (status != GEMS_E_PEER || !watcher.is_heard ||
            clock_monotonic_us(&clock_system) - heard_us > RETRY_FOR_MS * INT64_C(1000)) {
            break;
        }
        if (output_is_terminal() && !follow->is_json) {
            output_progress_show("gemsd is away, waiting for it");
        }
        status = call_sleep(RETRY_MS, err);
        if (status < 0) {
            break;
        }
    }
    if (status < 0) {
        output_progress_show(NULL);
        return status;
    }
    return watcher.exit_code;
}
