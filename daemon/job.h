/* What a job is and how it moves: pure, no I/O, no clock.
 *
 * flow.c is the only caller of job_update: it makes the result durable, then
 * visible, then acts on it. The tables in job.c are the whole machine.
 */
#ifndef GEMS_DAEMON_JOB_H
#define GEMS_DAEMON_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gems_error;

enum job_state {
    JOB_QUEUED,    /* waits for devices or for the end of a back-off */
    JOB_PLACING,   /* facts are asked for, a plan is made; devices are reserved */
    JOB_STARTING,  /* ranks are launched and join */
    JOB_RUNNING,   /* every rank has its Start */
    JOB_PAUSED,    /* waits for its owner */
    JOB_STOPPING,  /* the attempt is over; its ranks are not gone yet */
    JOB_SUCCEEDED, /* ends */
    JOB_FAILED,
    JOB_CANCELLED,
    JOB_STATE_COUNT
};

/* Everything that can move a job. */
enum job_event {
    ON_PLACE,   /* devices might be free: begin to place */
    ON_UNPLACE, /* cannot be placed now; the reason says why */
    ON_PLACED,  /* plan and devices are fixed */
    ON_START,   /* the gang is complete */
    ON_FINISH,  /* every rank ended well, the last checkpoint is durable */
    ON_FAIL,    /* something failed; carries a class */
    ON_CANCEL,
    ON_PAUSE,
    ON_RESUME,
    ON_MOVE, /* its node is drained */
    ON_GONE, /* no rank of the attempt is left */
    JOB_EVENT_COUNT
};

/* Where STOPPING leads to. */
enum job_ending {
    ENDING_NONE,
    ENDING_RETRY,
    ENDING_MOVE,
    ENDING_PAUSE,
    ENDING_CANCEL,
    ENDING_FAIL,
    ENDING_COUNT
};

enum job_verb { VERB_CANCEL, VERB_PAUSE, VERB_RESUME, VERB_CHECKPOINT, JOB_VERB_COUNT };

enum failure_class {
    CLASS_NONE,
    CLASS_SPEC,
    CLASS_MODEL,
    CLASS_DATA,
    CLASS_OOM,
    CLASS_NAN,
    CLASS_HANG,
    CLASS_NODE_LOST,
    CLASS_DEVICE,
    CLASS_TRANSPORT,
    CLASS_DISK_FULL,
    CLASS_TIMEOUT,
    CLASS_INTERNAL,
    CLASS_COUNT
};

/* What a class means for the job. */
enum retry_rule {
    RETRY_NEVER, /* the next attempt would fail the same way */
    RETRY_LATER, /* again after a back-off, max_restarts times */
    RETRY_ASK    /* pause: somebody has to do something first */
};

enum { JOB_REASON_BYTES = 512 };

/* The part of a job that events change. */
struct job_core {
    enum job_state state;
    uint32_t attempt;  /* from 1; grows when an attempt is over */
    uint32_t restarts; /* retries used, of max_restarts */
    enum job_ending ending;
    enum failure_class failure;
    char reason[JOB_REASON_BYTES]; /* one line; never empty while the job waits */
};

struct job_input {
    enum job_event event;
    enum failure_class failure; /* ON_FAIL */
    const char *why;            /* one line; may be NULL */
    uint32_t max_restarts;
};

/* New job: QUEUED, attempt 1. */
void job_core_init(struct job_core *core);

/* The state after an event, or -1 if the table refuses it. */
int job_next(enum job_state state, enum job_event event, enum job_ending ending);

/* Applies an event. False: refused, *ret_next is unset. */
bool job_update(const struct job_core *now, const struct job_input *input,
                struct job_core *ret_next);

/* Whether a user may ask for it now; GEMS_E_STATE with a text otherwise. */
int job_verb_check(uint64_t job, enum job_verb verb, enum job_state state, struct gems_error *err);

bool job_is_ended(enum job_state state);
/* Ranks of the current attempt may exist. */
bool job_has_ranks(enum job_state state);

/* Wait before the n-th retry (n from 1). */
uint32_t job_backoff_ms(uint32_t n_restarts);

const char *job_state_name(enum job_state state);
int job_state_from_name(const char *name); /* negative if unknown */
const char *job_event_name(enum job_event event);
const char *job_ending_name(enum job_ending ending);
int job_ending_from_name(const char *name);
const char *job_verb_name(enum job_verb verb);
const char *failure_name(enum failure_class failure); /* "" for none */
int failure_from_name(const char *name);
enum retry_rule failure_rule(enum failure_class failure);
const char *failure_advice(enum failure_class failure);
/* Class of a status that came without one. */
enum failure_class failure_of_status(int status);

#endif
