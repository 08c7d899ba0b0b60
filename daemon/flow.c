#include "daemon/flow.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bg.h"
#include "common/error.h"
#include "common/log.h"
#include "daemon/launch.h"
#include "daemon/nodes.h"
#include "daemon/place.h"
#include "daemon/status.h"
#include "daemon/watch.h"
#include "proto/codec.h"

enum { MOVE_RETRY_MS = 2000, SAVE_MS = 5000 };

/* An event on its way. The store thread owns it while is_moving. */
struct move {
    struct list link;
    struct daemon *daemon;
    uint64_t job_id;
    uint32_t attempt; /* 0: of no attempt (a user's wish) */
    struct job_input input;
    char who[STORE_WHO_BYTES], why[JOB_REASON_BYTES];
    struct store_move row;
    struct store_attempt placed; /* ON_PLACED */
    struct bytes status, spec;   /* owned */
    int result;
    struct gems_error err;
};

static void move_free(struct move *move)
{
    free(move->status.data);
    free(move->spec.data);
    store_attempt_fini(&move->placed);
    free(move);
}

/* ---- entry actions ---- */

/* QUEUED, PAUSED: also out of PLACING, where devices are held without ranks. */
static void enter_rest(struct daemon *daemon, struct job *job)
{
    status_keep_ranks(job);
    nodes_release_all(daemon, job);
    attempt_destroy(job);
    daemon->is_placing = true;
}

static void enter_end(struct daemon *daemon, struct job *job)
{
    daemon->is_placing = true;
    watch_ended(job);
    if (job->attempt) {
        launch_end(daemon, job); /* forgets the job when its ranks are gone */
    } else {
        flow_forget(daemon, job);
    }
}

static void (*const entry[JOB_STATE_COUNT])(struct daemon *daemon, struct job *job) = {
    [JOB_QUEUED] = enter_rest,    [JOB_PLACING] = place_begin, [JOB_STARTING] = launch_begin,
    [JOB_RUNNING] = launch_start, [JOB_PAUSED] = enter_rest,   [JOB_STOPPING] = launch_stop,
    [JOB_SUCCEEDED] = enter_end,  [JOB_FAILED] = enter_end,    [JOB_CANCELLED] = enter_end,
};

void flow_enter(struct daemon *daemon, struct job *job)
{
    entry[job->core.state](daemon, job);
}

/* ---- the way of an event ---- */

static void next_move(struct daemon *daemon, struct job *job);

static void move_work(void *arg)
{
    struct move *move = arg;

    move->result = store_move(move->daemon->store, &move->row, &move->err);
}

/* Times that go with a change of state. */
static void keep_times(struct daemon *daemon, struct job *job, const struct job_core *to,
                       int64_t *ret_started_us, int64_t *ret_finished_us, int64_t *ret_used_ms)
{
    *ret_started_us = job->started_us;
    *ret_finished_us = job->finished_us;
    *ret_used_ms = job->used_ms;
    if (to->state == JOB_RUNNING && job->started_us == 0) {
        *ret_started_us = daemon_wall_us(daemon);
    }
    if (job_is_ended(to->state)) {
        *ret_finished_us = daemon_wall_us(daemon);
    }
    if (job->core.state == JOB_RUNNING && to->state != JOB_RUNNING && job->running_us) {
        *ret_used_ms += (daemon_now_us(daemon) - job->running_us) / 1000;
    }
}

static const char *const log_words[JOB_STATE_COUNT] = {
    [JOB_RUNNING] = "runs",        [JOB_PAUSED] = "is paused", [JOB_STOPPING] = "stops",
    [JOB_SUCCEEDED] = "succeeded", [JOB_FAILED] = "failed",    [JOB_CANCELLED] = "is cancelled",
};

static void apply(struct daemon *daemon, struct job *job, struct move *move)
{
    bool is_same = job->core.state == move->row.to.state;
    enum job_state from = job->core.state;

    job->core = move->row.to;
    job->started_us = move->row.started_us;
    job->finished_us = move->row.finished_us;
    job->used_ms = move->row.used_ms;
    job->running_us = job->core.state == JOB_RUNNING ? daemon_now_us(daemon) : 0;
    if (from == JOB_STOPPING && job->core.state == JOB_QUEUED) {
        bool is_retry = move->row.from.ending == ENDING_RETRY;
        uint64_t wait_ms =
            is_retry ? job_backoff_ms(job->core.restarts) * daemon->settings->backoff_ms / 1000 : 0;

        job->retry_us = daemon_now_us(daemon) + (int64_t)wait_ms * 1000;
    }
    jobs_changed(job);
    if (!is_same && log_words[job->core.state]) {
        log_info("job %llu attempt %u %s%s%s", (unsigned long long)job->id, job->core.attempt,
                 log_words[job->core.state], job->core.reason[0] ? ": " : "", job->core.reason);
    }
    flow_enter(daemon, job);
}

static void move_done(void *arg, bool is_run)
{
    struct move *move = arg;
    struct daemon *daemon = move->daemon;
    struct job *job = jobs_find(daemon, move->job_id);

    if (!job || !is_run) {
        move_free(move);
        return;
    }
    job->is_moving = false;
    if (move->result == GEMS_OK) {
        uint64_t id = job->id;

        apply(daemon, job, move);
        move_free(move);
        job = jobs_find(daemon, id);
    } else if (move->result == GEMS_E_STATE || move->result == GEMS_E_INTERNAL) {
        log_error("job %llu: %s refused: %s", (unsigned long long)job->id,
                  job_event_name(move->input.event), move->err.text);
        move_free(move);
    } else {
        /* The disk is full or broken. Nothing is lost: ranks train on. */
        log_error("job %llu: cannot write the state, trying again: %s", (unsigned long long)job->id,
                  move->err.text);
        list_push_first(&job->moves, &move->link);
        job->move_retry_us = daemon_now_us(daemon) + MOVE_RETRY_MS * 1000;
        return;
    }
    if (job) {
        next_move(daemon, job);
    }
}

static int pack_spec(const struct job *job, struct bytes *ret_spec, struct gems_error *err)
{
    Gems__JobSpec *spec = spec_to_proto(&job->spec);
    int status = spec ? proto_pack(&spec->base, &ret_spec->data, &ret_spec->n, err)
                      : gems_error_set(err, GEMS_E_NOMEM, "job: no memory");

    if (spec) {
        msg_free(&spec->base);
    }
    return status;
}

/* Copies what ON_PLACED has to store. */
static int pack_attempt(const struct job *job, struct store_attempt *ret_row,
                        struct gems_error *err)
{
    const struct attempt *attempt = job->attempt;
    Gems__Plan *plan = plan_to_proto(&attempt->plan, -1);
    int status = plan ? proto_pack(&plan->base, &ret_row->plan.data, &ret_row->plan.n, err)
                      : gems_error_set(err, GEMS_E_NOMEM, "job: no memory");

    if (plan) {
        msg_free(&plan->base);
    }
    ret_row->ranks = calloc(attempt->n_ranks, sizeof *ret_row->ranks);
    if (status < 0 || !ret_row->ranks) {
        return status < 0 ? status : gems_error_set(err, GEMS_E_NOMEM, "job: no memory");
    }
    ret_row->n_ranks = attempt->n_ranks;
    for (uint32_t i = 0; i < attempt->n_ranks; i++) {
        ret_row->ranks[i] = attempt->ranks[i].place;
    }
    memcpy(ret_row->secret, attempt->secret, sizeof ret_row->secret);
    memcpy(ret_row->token, attempt->token, sizeof ret_row->token);
    ret_row->has_restore = attempt->has_restore;
    ret_row->restore_step = attempt->restore_step;
    return GEMS_OK;
}

/* Once a move: it may be tried again. */
static int pack_placed(const struct job *job, struct move *move)
{
    int status;

    if (move->placed.ranks) {
        return GEMS_OK;
    }
    status = pack_attempt(job, &move->placed, &move->err);
    return status < 0 ? status : pack_spec(job, &move->spec, &move->err);
}

/* Fills in the row of a move; false: the table refuses the event. */
static bool prepare(struct daemon *daemon, struct job *job, struct move *move)
{
    struct store_move *row = &move->row;

    move->input.why = move->why[0] ? move->why : NULL;
    move->input.max_restarts = job->spec.max_restarts;
    if (move->attempt && move->attempt != job->core.attempt) {
        return false;
    }
    if (!job_update(&job->core, &move->input, &row->to)) {
        return false;
    }
    if (move->input.event == ON_PLACED &&
        (!job->attempt || !job->attempt->has_plan || pack_placed(job, move) < 0)) {
        flow_post(daemon, job, ON_UNPLACE, "gemsd", "no memory for its plan");
        return false;
    }
    if (move->status.n == 0) {
        status_pack(job, &move->status);
    }
    row->job = job->id;
    row->from = job->core;
    row->event = move->input.event;
    row->who = move->who;
    row->why = move->input.why;
    row->when_us = daemon_wall_us(daemon);
    row->status = move->status;
    row->spec = move->spec;
    row->attempt = move->input.event == ON_PLACED ? &move->placed : NULL;
    keep_times(daemon, job, &row->to, &row->started_us, &row->finished_us, &row->used_ms);
    return true;
}

static void next_move(struct daemon *daemon, struct job *job)
{
    struct list *link;

    while (!job->is_moving && !job->move_retry_us && (link = list_pop(&job->moves))) {
        struct move *move = list_item(link, struct move, link);
        struct gems_error err;

        if (!prepare(daemon, job, move)) {
            log_debug("job %llu: %s while it is %s: ignored", (unsigned long long)job->id,
                      job_event_name(move->input.event), job_state_name(job->core.state));
            move_free(move);
            continue;
        }
        if (bg_submit(daemon->store_bg, move_work, move_done, move, &err) < 0) {
            list_push_first(&job->moves, &move->link);
            job->move_retry_us = daemon_now_us(daemon) + MOVE_RETRY_MS * 1000;
            return;
        }
        job->is_moving = true;
    }
}

static void post(struct daemon *daemon, struct job *job, enum job_event event,
                 enum failure_class failure, const char *who, const char *format, va_list args)
{
    struct move *move = calloc(1, sizeof *move);

    if (!move) {
        log_error("job %llu: no memory for event %s", (unsigned long long)job->id,
                  job_event_name(event));
        return;
    }
    move->daemon = daemon;
    move->job_id = job->id;
    move->attempt =
        event == ON_CANCEL || event == ON_PAUSE || event == ON_RESUME ? 0 : job->core.attempt;
    move->input.event = event;
    move->input.failure = failure;
    snprintf(move->who, sizeof move->who, "%s", who);
    if (format) {
        vsnprintf(move->why, sizeof move->why, format, args);
        gems_text_line(move->why); /* ranks and users have a word in it */
    }
    list_push(&job->moves, &move->link);
    next_move(daemon, job);
}

void flow_post(struct daemon *daemon, struct job *job, enum job_event event, const char *who,
               const char *format, ...)
{
    va_list args;

    va_start(args, format);
    post(daemon, job, event, CLASS_NONE, who, format, args);
    va_end(args);
}

void flow_fail(struct daemon *daemon, struct job *job, enum failure_class failure, const char *who,
               const char *format, ...)
{
    va_list args;

    va_start(args, format);
    post(daemon, job, ON_FAIL, failure, who, format, args);
    va_end(args);
}

void flow_placed(struct daemon *daemon, struct job *job)
{
    flow_post(daemon, job, ON_PLACED, "gemsd", "%u ranks, schedule %s", job->attempt->n_ranks,
              job->schedule);
}

void flow_drop(struct job *job)
{
    struct list *link;

    while ((link = list_pop(&job->moves))) {
        move_free(list_item(link, struct move, link));
    }
}

void flow_forget(struct daemon *daemon, struct job *job)
{
    (void)daemon;
    if (job_is_ended(job->core.state) && !job->attempt && !job->is_moving) {
        flow_drop(job);
        jobs_remove(job);
    }
}

/* ---- notes and saved status ---- */

struct note {
    struct daemon *daemon;
    uint64_t job;
    uint32_t attempt;
    enum job_state state;
    char who[STORE_WHO_BYTES], event[32], why[JOB_REASON_BYTES];
    int64_t when_us;
    struct bytes status;
    struct gems_error err;
    int result;
};

static void note_work(void *arg)
{
    struct note *note = arg;

    note->result = store_note(note->daemon->store, note->job, note->attempt, note->state, note->who,
                              note->event, note->why, note->when_us, &note->err);
}

static void save_work(void *arg)
{
    struct note *note = arg;

    note->result = store_status(note->daemon->store, note->job, &note->status, &note->err);
    store_keep(note->daemon->store);
}

static void note_done(void *arg, bool is_run)
{
    struct note *note = arg;

    if (is_run && note->result < 0) {
        log_warning("job %llu: %s not stored: %s", (unsigned long long)note->job,
                    note->event[0] ? note->event : "status", note->err.text);
    }
    free(note->status.data);
    free(note);
}

static struct note *note_create(struct daemon *daemon, const struct job *job)
{
    struct note *note = calloc(1, sizeof *note);

    if (note) {
        note->daemon = daemon;
        note->job = job->id;
        note->attempt = job->core.attempt;
        note->state = job->core.state;
        note->when_us = daemon_wall_us(daemon);
    }
    return note;
}

static void note_submit(struct note *note, bg_work_fn *work)
{
    if (bg_submit(note->daemon->store_bg, work, note_done, note, &note->err) < 0) {
        note->result = note->err.status;
        note_done(note, true);
    }
}

void flow_note(struct daemon *daemon, struct job *job, const char *who, const char *event,
               const char *format, ...)
{
    struct note *note = note_create(daemon, job);
    va_list args;

    if (!note) {
        return;
    }
    snprintf(note->who, sizeof note->who, "%s", who);
    snprintf(note->event, sizeof note->event, "%s", event);
    va_start(args, format);
    vsnprintf(note->why, sizeof note->why, format, args);
    va_end(args);
    gems_text_line(note->why);
    note_submit(note, note_work);
}

static void save_status(struct daemon *daemon, struct job *job)
{
    struct note *note = note_create(daemon, job);

    if (note && status_pack(job, &note->status) >= 0) {
        job->saved_version = job->version;
        job->saved_us = daemon_now_us(daemon);
        note_submit(note, save_work);
    } else {
        free(note);
    }
}

void flow_tick(struct daemon *daemon)
{
    int64_t now_us = daemon_now_us(daemon);

    list_each(&daemon->jobs, link)
    {
        struct job *job = list_item(link, struct job, link);

        if (job->move_retry_us && now_us >= job->move_retry_us) {
            job->move_retry_us = 0;
            next_move(daemon, job);
        } else if (job->core.state == JOB_RUNNING && job->version != job->saved_version &&
                   now_us - job->saved_us > SAVE_MS * 1000 && !job->is_moving) {
            save_status(daemon, job);
        }
    }
}
