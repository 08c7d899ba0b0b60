/* gemsd as an object: everything it has, made in order and torn down in
 * reverse. Tests make it too, on a loop and a clock of their own.
 *
 * Threads: the loop owns all of this. The store, the planner, the checkpoint
 * writer and a reader of files work in one `bg` thread each and touch only
 * what a job hands them.
 */
#ifndef GEMS_DAEMON_DAEMON_H
#define GEMS_DAEMON_DAEMON_H

#include "common/clock.h"
#include "common/list.h"
#include "daemon/settings.h"

struct bg;
struct event;
struct event_base;
struct gems_error;
struct server;
struct store;

struct daemon {
    struct event_base *base;
    const struct clock *clock;
    struct settings *settings; /* borrowed; SIGHUP changes some in place */
    struct store *store;       /* touched on store_bg only, once that runs */
    struct bg *store_bg, *plan_bg, *write_bg, *read_bg;
    struct server *server;
    struct list jobs;     /* struct job: not ended, or ranks of it are left */
    struct list nodes;    /* struct cluster_node */
    struct list readings; /* of logs.c: logs that clients read */
    struct event *tick;
    int64_t ticked_us;  /* last tick */
    int64_t started_us; /* monotonic */
    bool is_placing;    /* a pass over the queue is due */
    bool is_closing;
};

/* Opens the state, recovers the jobs, listens. On failure nothing is left. */
int daemon_create(struct event_base *base, const struct clock *clock, struct settings *settings,
                  struct daemon **ret_daemon, struct gems_error *err);
/* Stops at once; jobs and their ranks go on. */
void daemon_destroy(struct daemon *daemon);

int64_t daemon_now_us(const struct daemon *daemon);  /* monotonic */
int64_t daemon_wall_us(const struct daemon *daemon); /* UTC */

/* Path below the state directory. */
void daemon_path(const struct daemon *daemon, char *ret_path, size_t n, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
