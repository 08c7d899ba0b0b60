#include "daemon/job.h"

#include <stdio.h>
#include <string.h>

#include "common/error.h"

/*
 *             place            placed            start            finish
 *   QUEUED ──────────► PLACING ──────► STARTING ──────► RUNNING ──────────► SUCCEEDED
 *     ▲  ◄──────────────┘ unplace         │                │                    ▲
 *     │                                   └── fail, cancel, pause, move         │
 *     │ gone: retry, move                              ▼                        │ finish
 *     ├───────────────────────────────────────────── STOPPING ──────────────────┘
 *     │ resume                            gone: pause │  │ gone: fail, cancel
 *   PAUSED ◄──────────────────────────────────────────┘  └──► FAILED, CANCELLED
 *
 * PLACING finishes at once if the last checkpoint holds the last step. From
 * QUEUED, PLACING and PAUSED, where no rank exists, cancel ends at once,
 * pause pauses at once, and a failure of placing (QUEUED, PLACING) is final.
 */
enum { NO = -1, BY_ENDING = -2 };

#define Q JOB_QUEUED
#define PL JOB_PLACING
#define ST JOB_STARTING
#define R JOB_RUNNING
#define PA JOB_PAUSED
#define SP JOB_STOPPING
#define OK JOB_SUCCEEDED
#define F JOB_FAILED
#define C JOB_CANCELLED

/* clang-format off */
static const signed char next_state[JOB_STATE_COUNT][JOB_EVENT_COUNT] = {
    /*                PLACE UNPLACE PLACED START FINISH FAIL CANCEL PAUSE RESUME MOVE GONE */
    [JOB_QUEUED]    = { PL, NO,     NO,    NO,   NO,    F,   C,     PA,   NO,    NO,  NO },
    [JOB_PLACING]   = { NO, Q,      ST,    NO,   OK,    F,   C,     PA,   NO,    NO,  NO },
    [JOB_STARTING]  = { NO, NO,     NO,    R,    NO,    SP,  SP,    SP,   NO,    SP,  NO },
    [JOB_RUNNING]   = { NO, NO,     NO,    NO,   OK,    SP,  SP,    SP,   NO,    SP,  NO },
    [JOB_PAUSED]    = { NO, NO,     NO,    NO,   NO,    NO,  C,     NO,   Q,     NO,  NO },
    [JOB_STOPPING]  = { NO, NO,     NO,    NO,   OK,    SP,  SP,    SP,   NO,    SP,  BY_ENDING },
    [JOB_SUCCEEDED] = { NO, NO,     NO,    NO,   NO,    NO,  NO,    NO,   NO,    NO,  NO },
    [JOB_FAILED]    = { NO, NO,     NO,    NO,   NO,    NO,  NO,    NO,   NO,    NO,  NO },
    [JOB_CANCELLED] = { NO, NO,     NO,    NO,   NO,    NO,  NO,    NO,   NO,    NO,  NO },
};

static const signed char after_stopping[ENDING_COUNT] = {
    [ENDING_NONE] = NO, [ENDING_RETRY] = Q, [ENDING_MOVE] = Q,
    [ENDING_PAUSE] = PA, [ENDING_CANCEL] = C, [ENDING_FAIL] = F,
};

/* What a second wish does to an attempt that is stopping already: the first
 * failure stays what the user sees, a user's wish beats our own. */
#define NON ENDING_NONE
#define RET ENDING_RETRY
#define MOV ENDING_MOVE
#define PAU ENDING_PAUSE
#define CAN ENDING_CANCEL
#define FAI ENDING_FAIL

static const unsigned char second_ending[ENDING_COUNT][ENDING_COUNT] = {
    /* first \ second     NONE RETRY MOVE PAUSE CANCEL FAIL */
    [ENDING_NONE]   = { NON, RET,  MOV, PAU,  CAN,   FAI },
    [ENDING_RETRY]  = { RET, RET,  RET, PAU,  CAN,   RET },
    [ENDING_MOVE]   = { MOV, MOV,  MOV, PAU,  CAN,   MOV },
    [ENDING_PAUSE]  = { PAU, PAU,  PAU, PAU,  CAN,   PAU },
    [ENDING_CANCEL] = { CAN, CAN,  CAN, CAN,  CAN,   CAN },
    [ENDING_FAIL]   = { FAI, FAI,  FAI, FAI,  FAI,   FAI },
};

#undef NON
#undef RET
#undef MOV
#undef PAU
#undef CAN
#undef FAI

/* What a user may ask for, by state. */
static const bool verb_allowed[JOB_VERB_COUNT][JOB_STATE_COUNT] = {
    /*                     Q      PLACING STARTING RUNNING PAUSED STOPPING SUCC.  FAILED CANC. */
    [VERB_CANCEL]     = { true,  true,   true,    true,   true,  true,    false, false, false },
    [VERB_PAUSE]      = { true,  true,   true,    true,   false, true,    false, false, false },
    [VERB_RESUME]     = { false, false,  false,   false,  true,  false,   false, false, false },
    [VERB_CHECKPOINT] = { false, false,  false,   true,   false, false,   false, false, false },
};

/* clang-format on */

#undef Q
#undef PL
#undef ST
#undef R
#undef PA
#undef SP
#undef OK
#undef F
#undef C

static const struct {
    const char *name;
    enum retry_rule rule;
    const char *advice;
} classes[CLASS_COUNT] = {
    [CLASS_NONE] = { "", RETRY_NEVER, "" },
    [CLASS_SPEC] = { "spec", RETRY_NEVER, "correct the job file and submit it again" },
    [CLASS_MODEL] = { "model", RETRY_NEVER,
                      "this model cannot be run: correct it and submit again" },
    [CLASS_DATA] = { "data", RETRY_NEVER, "check the data set named in the message on the node" },
    [CLASS_OOM] = { "oom", RETRY_NEVER,
                    "use more stages, a smaller microbatch or recompute: all; see gems-client "
                    "plan" },
    [CLASS_NAN] = { "nan", RETRY_NEVER, "lower the learning rate or add warm-up" },
    [CLASS_HANG] = { "hang", RETRY_LATER, "see the log of the rank that is named" },
    [CLASS_NODE_LOST] = { "node-lost", RETRY_LATER, "check the node and its network" },
    [CLASS_DEVICE] = { "device", RETRY_LATER,
                       "if it repeats, drain the node and check the device" },
    [CLASS_TRANSPORT] = { "transport", RETRY_LATER,
                          "check the network between the nodes that are named" },
    [CLASS_DISK_FULL] = { "disk-full", RETRY_ASK,
                          "free space in the state directory, then resume the job" },
    [CLASS_TIMEOUT] = { "timeout", RETRY_NEVER, "raise limits.time; the last checkpoint is kept" },
    [CLASS_INTERNAL] = { "internal", RETRY_LATER, "please report this with the log of the rank" },
};

static const char *const state_names[JOB_STATE_COUNT] = {
    [JOB_QUEUED] = "QUEUED",       [JOB_PLACING] = "PLACING", [JOB_STARTING] = "STARTING",
    [JOB_RUNNING] = "RUNNING",     [JOB_PAUSED] = "PAUSED",   [JOB_STOPPING] = "STOPPING",
    [JOB_SUCCEEDED] = "SUCCEEDED", [JOB_FAILED] = "FAILED",   [JOB_CANCELLED] = "CANCELLED",
};

static const char *const event_names[JOB_EVENT_COUNT] = {
    [ON_PLACE] = "place",   [ON_UNPLACE] = "unplace", [ON_PLACED] = "placed", [ON_START] = "start",
    [ON_FINISH] = "finish", [ON_FAIL] = "fail",       [ON_CANCEL] = "cancel", [ON_PAUSE] = "pause",
    [ON_RESUME] = "resume", [ON_MOVE] = "move",       [ON_GONE] = "gone",
};

static const char *const ending_names[ENDING_COUNT] = {
    [ENDING_NONE] = "",       [ENDING_RETRY] = "retry",   [ENDING_MOVE] = "move",
    [ENDING_PAUSE] = "pause", [ENDING_CANCEL] = "cancel", [ENDING_FAIL] = "fail",
};

static const char *const verb_names[JOB_VERB_COUNT] = {
    [VERB_CANCEL] = "cancel",
    [VERB_PAUSE] = "pause",
    [VERB_RESUME] = "resume",
    [VERB_CHECKPOINT] = "checkpoint",
};

void job_core_init(struct job_core *core)
{
    memset(core, 0, sizeof *core);
    core->state = JOB_QUEUED;
    core->attempt = 1;
    snprintf(core->reason, sizeof core->reason, "waits to be placed");
}

int job_next(enum job_state state, enum job_event event, enum job_ending ending)
{
    int next = next_state[state][event];

    return next == BY_ENDING ? after_stopping[ending] : next;
}

static enum job_ending ending_of(const struct job_core *now, const struct job_input *input)
{
    switch (input->event) {
    case ON_CANCEL:
        return ENDING_CANCEL;
    case ON_PAUSE:
        return ENDING_PAUSE;
    case ON_MOVE:
        return ENDING_MOVE;
    default:
        break;
    }
    switch (classes[input->failure].rule) {
    case RETRY_LATER:
        return now->restarts < input->max_restarts ? ENDING_RETRY : ENDING_FAIL;
    case RETRY_ASK:
        return ENDING_PAUSE;
    default:
        return ENDING_FAIL;
    }
}

static void set_reason(struct job_core *core, const char *why)
{
    snprintf(core->reason, sizeof core->reason, "%s", why ? why : "");
}

/* The attempt is over and nothing of it is left. */
static void leave_stopping(const struct job_core *now, const struct job_input *input,
                           struct job_core *next)
{
    next->ending = ENDING_NONE;
    if (next->state == JOB_QUEUED || next->state == JOB_PAUSED) {
        next->attempt++;
    }
    if (now->ending == ENDING_RETRY) {
        next->restarts++;
        next->failure = CLASS_NONE;
        snprintf(next->reason, sizeof next->reason, "restart %u of %u after %s: %.400s",
                 next->restarts, input->max_restarts, failure_name(now->failure), now->reason);
    }
    if (next->state == JOB_CANCELLED) {
        next->failure = CLASS_NONE;
    }
}

static void enter_stopping(const struct job_core *now, const struct job_input *input,
                           struct job_core *next)
{
    enum job_ending wish = ending_of(now, input);

    next->ending = second_ending[now->ending][wish];
    if (next->ending == now->ending && now->state == JOB_STOPPING) {
        return;
    }
    next->failure = input->event == ON_FAIL ? input->failure : CLASS_NONE;
    set_reason(next, input->why);
}

bool job_update(const struct job_core *now, const struct job_input *input,
                struct job_core *ret_next)
{
    int state = job_next(now->state, input->event, now->ending);
    struct job_core next = *now;

    if (state < 0) {
        return false;
    }
    next.state = (enum job_state)state;
    if (input->event == ON_GONE) {
        leave_stopping(now, input, &next);
    } else if (next.state == JOB_STOPPING) {
        enter_stopping(now, input, &next);
    } else {
        next.ending = ENDING_NONE;
        next.failure = next.state == JOB_FAILED ? input->failure : CLASS_NONE;
        set_reason(&next, input->why);
    }
    *ret_next = next;
    return true;
}

int job_verb_check(uint64_t job, enum job_verb verb, enum job_state state, struct gems_error *err)
{
    if (verb_allowed[verb][state]) {
        return GEMS_OK;
    }
    return gems_error_set(err, GEMS_E_STATE, "job %llu: %s is not possible while it is %s",
                          (unsigned long long)job, verb_names[verb], state_names[state]);
}

bool job_is_ended(enum job_state state)
{
    return state == JOB_SUCCEEDED || state == JOB_FAILED || state == JOB_CANCELLED;
}

bool job_has_ranks(enum job_state state)
{
    return state == JOB_STARTING || state == JOB_RUNNING || state == JOB_STOPPING;
}

uint32_t job_backoff_ms(uint32_t n_restarts)
{
    uint32_t ms = 1000;

    while (n_restarts > 1 && ms < 60000) {
        ms *= 2;
        n_restarts--;
    }
    return ms < 60000 ? ms : 60000;
}

static int find_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; name && i < n; i++) {
        if (!strcmp(names[i], name)) {
            return i;
        }
    }
    return GEMS_E_NOTFOUND;
}

const char *job_state_name(enum job_state state)
{
    return state_names[state];
}

int job_state_from_name(const char *name)
{
    return find_name(state_names, JOB_STATE_COUNT, name);
}

const char *job_event_name(enum job_event event)
{
    return event_names[event];
}

const char *job_ending_name(enum job_ending ending)
{
    return ending_names[ending];
}

int job_ending_from_name(const char *name)
{
    return find_name(ending_names, ENDING_COUNT, name);
}

const char *job_verb_name(enum job_verb verb)
{
    return verb_names[verb];
}

const char *failure_name(enum failure_class failure)
{
    return classes[failure].name;
}

int failure_from_name(const char *name)
{
    for (int i = 0; name && i < CLASS_COUNT; i++) {
        if (!strcmp(classes[i].name, name)) {
            return i;
        }
    }
    return GEMS_E_NOTFOUND;
}

enum retry_rule failure_rule(enum failure_class failure)
{
    return classes[failure].rule;
}

const char *failure_advice(enum failure_class failure)
{
    return classes[failure].advice;
}

enum failure_class failure_of_status(int status)
{
    switch (status) {
    case GEMS_E_INVALID:
    case GEMS_E_NOFIT:
        return CLASS_SPEC;
    case GEMS_E_UNSUPPORTED:
        return CLASS_MODEL;
    case GEMS_E_NOMEM:
        return CLASS_OOM;
    case GEMS_E_DATA:
    case GEMS_E_NOTFOUND:
    case GEMS_E_DENIED:
        return CLASS_DATA;
    case GEMS_E_NAN:
        return CLASS_NAN;
    case GEMS_E_PEER:
        return CLASS_TRANSPORT;
    case GEMS_E_DEVICE:
        return CLASS_DEVICE;
    case GEMS_E_DISKFULL:
        return CLASS_DISK_FULL;
    case GEMS_E_TIMEOUT:
        return CLASS_HANG;
    default:
        return CLASS_INTERNAL;
    }
}
