/* The only place that moves a job.
 *
 * flow_post queues an event. Events of a job are taken one by one: job_update
 * says what it becomes, the store makes that durable, then it becomes visible,
 * then the entry action of the new state runs. An entry action may run twice
 * (after a restart of gemsd) and may post events; they are queued, not nested.
 * If the disk refuses, the event waits and is tried again; ranks go on.
 */
#ifndef GEMS_DAEMON_FLOW_H
#define GEMS_DAEMON_FLOW_H

#include "daemon/jobs.h"

/* who: a user, a node, or "gemsd". why: one line. */
void flow_post(struct daemon *daemon, struct job *job, enum job_event event, const char *who,
               const char *format, ...) __attribute__((format(printf, 5, 6)));
void flow_fail(struct daemon *daemon, struct job *job, enum failure_class failure, const char *who,
               const char *format, ...) __attribute__((format(printf, 5, 6)));
/* ON_PLACED: the attempt's plan and ranks go with the move. */
void flow_placed(struct daemon *daemon, struct job *job);

/* An event row without a move (a damaged checkpoint, a node that is back). */
void flow_note(struct daemon *daemon, struct job *job, const char *who, const char *event,
               const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Runs the entry action of the state a job is in: at start. */
void flow_enter(struct daemon *daemon, struct job *job);
/* Retries moves that the disk refused; saves status that has changed. */
void flow_tick(struct daemon *daemon);
/* A job whose end is durable and whose ranks are gone leaves memory. */
void flow_forget(struct daemon *daemon, struct job *job);
void flow_drop(struct job *job); /* frees queued events */

#endif
