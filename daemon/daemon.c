#include "daemon/daemon.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bg.h"
#include "common/error.h"
#include "common/fsutil.h"
#include "common/log.h"
#include "common/notify.h"
#include "daemon/flow.h"
#include "daemon/logs.h"
#include "daemon/nodes.h"
#include "daemon/place.h"
#include "daemon/recover.h"
#include "daemon/server.h"
#include "daemon/watch.h"
#include "daemon/watchdog.h"

enum { TICK_MS = 250, GAP_MS = 2000, STORE_QUEUE = 200000, WORK_QUEUE = 20000 };

int64_t daemon_now_us(const struct daemon *daemon)
{
    return clock_monotonic_us(daemon->clock);
}

int64_t daemon_wall_us(const struct daemon *daemon)
{
    return clock_wall_us(daemon->clock);
}

void daemon_path(const struct daemon *daemon, char *ret_path, size_t n, const char *format, ...)
{
    int k = snprintf(ret_path, n, "%s/", daemon->settings->state_dir);
    va_list args;

    va_start(args, format);
    if (k > 0 && (size_t)k < n) {
        vsnprintf(ret_path + k, n - (size_t)k, format, args);
    }
    va_end(args);
}

static void say_status(struct daemon *daemon)
{
    unsigned n_running = 0, n_queued = 0;

    list_each(&daemon->jobs, link)
    {
        enum job_state state = list_item(link, struct job, link)->core.state;

        n_running += job_has_ranks(state);
        n_queued += state == JOB_QUEUED || state == JOB_PLACING;
    }
    notify_status("%u running, %u queued, %zu nodes", n_running, n_queued,
                  list_count(&daemon->nodes));
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct daemon *daemon = arg;
    int64_t now_us = daemon_now_us(daemon), gap_us = now_us - daemon->ticked_us;

    (void)fd;
    (void)what;
    if (gap_us > GAP_MS * 1000) {
        /* We were stopped or starved: what we did not hear was said meanwhile. */
        log_warning("gemsd did not run for %lld ms", (long long)gap_us / 1000);
        nodes_forgive(daemon, gap_us);
        watchdog_forgive(daemon, gap_us);
        daemon->started_us += gap_us;
    }
    daemon->ticked_us = now_us;
    server_tick(daemon->server);
    nodes_tick(daemon);
    watchdog_tick(daemon);
    flow_tick(daemon);
    place_pass(daemon);
    watch_tick(daemon);
    logs_tick(daemon);
    say_status(daemon);
}

static int make_threads(struct daemon *daemon, struct gems_error *err)
{
    daemon->store_bg = bg_create(daemon->base, "gemsd-store", STORE_QUEUE, err);
    daemon->plan_bg =
        daemon->store_bg ? bg_create(daemon->base, "gemsd-plan", WORK_QUEUE, err) : NULL;
    daemon->write_bg =
        daemon->plan_bg ? bg_create(daemon->base, "gemsd-write", WORK_QUEUE, err) : NULL;
    daemon->read_bg =
        daemon->write_bg ? bg_create(daemon->base, "gemsd-read", WORK_QUEUE, err) : NULL;
    return daemon->read_bg ? GEMS_OK : err->status;
}

static int start_tick(struct daemon *daemon, struct gems_error *err)
{
    struct timeval every = { 0, TICK_MS * 1000 };

    daemon->tick = event_new(daemon->base, -1, EV_PERSIST, on_tick, daemon);
    if (!daemon->tick || event_add(daemon->tick, &every) < 0) {
        return gems_error_set(err, GEMS_E_NOMEM, "gemsd: no memory");
    }
    return GEMS_OK;
}

int daemon_create(struct event_base *base, const struct clock *clock, struct settings *settings,
                  struct daemon **ret_daemon, struct gems_error *err)
{
    struct daemon *daemon = calloc(1, sizeof *daemon);
    int status;

    if (!daemon) {
        return gems_error_set(err, GEMS_E_NOMEM, "gemsd: no memory");
    }
    daemon->base = base;
    daemon->clock = clock;
    daemon->settings = settings;
    list_init(&daemon->jobs);
    list_init(&daemon->nodes);
    list_init(&daemon->readings);
    daemon->started_us = daemon->ticked_us = daemon_now_us(daemon);
    status = fs_mkdirs(settings->state_dir, 0750, err);
    if (status >= 0) {
        status = store_open(settings->state_dir, settings->ballast_bytes, &daemon->store, err);
    }
    if (status >= 0) {
        status = recover_load(daemon, err);
    }
    if (status >= 0) {
        status = make_threads(daemon, err);
    }
    if (status >= 0) {
        status = server_create(daemon, &daemon->server, err);
    }
    if (status >= 0) {
        status = start_tick(daemon, err);
    }
    if (status < 0) {
        daemon_destroy(daemon);
        return status;
    }
    recover_begin(daemon);
    *ret_daemon = daemon;
    return GEMS_OK;
}

void daemon_destroy(struct daemon *daemon)
{
    struct bg **threads[] = { &daemon->store_bg, &daemon->plan_bg, &daemon->write_bg,
                              &daemon->read_bg };

    daemon->is_closing = true;
    if (daemon->tick) {
        event_free(daemon->tick);
    }
    server_destroy(daemon->server);
    daemon->server = NULL;
    while (!list_is_empty(&daemon->jobs)) {
        struct job *job = list_item(list_first(&daemon->jobs), struct job, link);

        flow_drop(job);
        jobs_remove(job);
    }
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        if (*threads[i]) {
            bg_destroy(*threads[i]);
            *threads[i] = NULL;
        }
    }
    nodes_destroy_all(daemon);
    store_close(daemon->store);
    free(daemon);
}
