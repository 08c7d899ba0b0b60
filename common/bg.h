/* A background thread for work that must not block an event loop.
 *
 * Jobs run one after another in the order of their submission; each is
 * followed by its completion on the loop, in the same order. The job's data
 * belongs to the thread from bg_submit to the completion and to the loop
 * otherwise: nobody needs a lock. All functions: the loop's thread.
 */
#ifndef GEMS_COMMON_BG_H
#define GEMS_COMMON_BG_H

#include <stdbool.h>
#include <stddef.h>

struct bg;
struct event_base;
struct gems_error;

typedef void bg_work_fn(void *arg); /* on the background thread */
/* On the loop. is_run: false if the thread was destroyed before its turn. */
typedef void bg_done_fn(void *arg, bool is_run);

/* name: for the process list, at most 15 characters. max_jobs: waiting,
 * running and not yet completed ones. */
struct bg *bg_create(struct event_base *base, const char *name, size_t max_jobs, struct gems_error *err);

/* Waits for the running job; then all completions are called, in order; they
 * must not submit any more. Not from inside a completion. */
void bg_destroy(struct bg *bg);

/* GEMS_E_STATE if max_jobs are under way, GEMS_E_NOMEM; then nothing is taken.
 * done may be NULL. */
int bg_submit(struct bg *bg, bg_work_fn *work, bg_done_fn *done, void *arg, struct gems_error *err);

/* Jobs submitted and not yet completed. */
size_t bg_pending(const struct bg *bg);

#endif
