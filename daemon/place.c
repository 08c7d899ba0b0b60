#include "daemon/place.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/hash.h"
#include "common/log.h"
#include "daemon/checkpoints.h"
#include "daemon/flow.h"
#include "daemon/inquiry.h"
#include "daemon/nodes.h"

enum { PLACE_RETRY_MS = 2000, PLACE_RETRY_MAX_MS = 60000 };

/* ---- PLACING: reserve, pick a checkpoint, ask, plan ---- */

static void release_all(struct daemon *daemon, struct job *job)
{
    nodes_release_all(daemon, job);
    attempt_destroy(job);
}

/* Back into the queue; the next try waits longer each time. */
static void give_up(struct daemon *daemon, struct job *job, const char *why)
{
    uint32_t wait_ms = PLACE_RETRY_MS;

    for (uint32_t i = 0; i < job->n_place_failures && wait_ms < PLACE_RETRY_MAX_MS; i++) {
        wait_ms *= 2;
    }
    job->n_place_failures++;
    job->retry_us = daemon_now_us(daemon) + (int64_t)wait_ms * 1000;
    release_all(daemon, job);
    flow_post(daemon, job, ON_UNPLACE, "gemsd", "%s", why);
}

static void refuse(struct daemon *daemon, struct job *job, const struct gems_error *err)
{
    release_all(daemon, job);
    flow_fail(daemon, job, failure_of_status(err->status), "gemsd", "%s", err->text);
}

static int reserve(struct daemon *daemon, struct job *job, struct device_set *set,
                   struct gems_error *err)
{
    int status = attempt_create(job, set->n, err);

    if (status < 0) {
        return status;
    }
    for (uint32_t i = 0; i < set->n; i++) {
        job->attempt->ranks[i].place = set->ranks[i];
    }
    nodes_reserve(daemon, job);
    return GEMS_OK;
}

/* The plan may need fewer devices than were reserved. */
static void shrink(struct daemon *daemon, struct job *job, uint32_t n)
{
    struct attempt *attempt = job->attempt;

    while (attempt->n_ranks > n) {
        nodes_release(daemon, job, &attempt->ranks[--attempt->n_ranks].place);
    }
}

static int make_secrets(struct attempt *attempt, struct gems_error *err)
{
    uint8_t token[32];
    int status = hash_random(attempt->secret, sizeof attempt->secret, err);

    if (status >= 0) {
        status = hash_random(token, sizeof token, err);
    }
    if (status >= 0) {
        hash_to_hex(token, sizeof token, attempt->token);
    }
    return status;
}

struct placing {
    uint64_t job, serial;
};

static struct job *job_of_placing(struct daemon *daemon, uint64_t id, uint64_t serial)
{
    struct job *job = jobs_find(daemon, id);

    return job && job->core.state == JOB_PLACING && job->place_serial == serial && job->attempt
               ? job
               : NULL;
}

static bool is_final_refusal(const struct inquiry *inquiry)
{
    switch (inquiry->status) {
    case GEMS_E_INVALID:
    case GEMS_E_UNSUPPORTED:
    case GEMS_E_DATA:
    case GEMS_E_NOTFOUND:
    case GEMS_E_DENIED:
        return inquiry->part != INQUIRY_DEVICES;
    default:
        return false;
    }
}

/* Where numbers were decided on one kind of device they stay there. */
static void keep_kind(struct daemon *daemon, struct job *job, const struct inquiry *inquiry)
{
    enum device_kind kind = inquiry->set.devices[0].kind;

    if (job->spec.resources.kind == DEVICE_ANY && job->spec.train.precision != PRECISION_F64) {
        job->spec.resources.kind = kind;
        flow_note(daemon, job, "gemsd", "kind", "runs on devices of kind %s from now on",
                  inquiry->set.ranks[0].backend);
    }
}

static void planned(struct daemon *daemon, struct job *job, struct inquiry *inquiry)
{
    struct gems_error err;

    if (!inquiry->plan.fits) {
        char why[JOB_REASON_BYTES];

        snprintf(why, sizeof why, "does not fit %u free devices: %.400s", inquiry->set.n,
                 inquiry->plan.advice);
        give_up(daemon, job, why);
        return;
    }
    if (inquiry->plan.n_ranks == 0 || inquiry->plan.n_ranks > job->attempt->n_ranks ||
        make_secrets(job->attempt, &err) < 0) {
        give_up(daemon, job, "its plan cannot be used");
        return;
    }
    shrink(daemon, job, inquiry->plan.n_ranks);
    keep_kind(daemon, job, inquiry);
    attempt_set_plan(job, &inquiry->plan);
    job->n_place_failures = 0;
    if (job->attempt->has_restore && job->attempt->restore_step >= job->attempt->plan.steps_total) {
        /* All steps were done and are durable; only the last words are missing. */
        flow_post(daemon, job, ON_FINISH, "gemsd", NULL);
        return;
    }
    flow_placed(daemon, job);
}

static void answered(struct inquiry *inquiry)
{
    struct placing *placing = inquiry->arg;
    struct daemon *daemon = inquiry->daemon;
    struct job *job =
        daemon->is_closing ? NULL : job_of_placing(daemon, placing->job, placing->serial);

    if (job && inquiry->status >= 0) {
        planned(daemon, job, inquiry);
    } else if (job && is_final_refusal(inquiry)) {
        refuse(daemon, job, &inquiry->err);
    } else if (job) {
        give_up(daemon, job, inquiry->err.text);
    }
    free(placing);
    inquiry_free(inquiry);
}

static void picked(struct daemon *daemon, uint64_t id, uint64_t serial, bool has_step,
                   uint64_t step)
{
    struct job *job = job_of_placing(daemon, id, serial);
    struct placing *placing;
    struct device_set set = { 0 };
    struct gems_error err;

    if (!job) {
        return;
    }
    job->attempt->has_restore = has_step;
    job->attempt->restore_step = step;
    placing = calloc(1, sizeof *placing);
    set.n = job->attempt->n_ranks;
    set.ranks = calloc(set.n, sizeof *set.ranks);
    set.devices = calloc(set.n, sizeof *set.devices);
    if (!placing || !set.ranks || !set.devices) {
        device_set_fini(&set);
        free(placing);
        give_up(daemon, job, "gemsd has no memory");
        return;
    }
    *placing = (struct placing){ id, serial };
    for (uint32_t i = 0; i < set.n; i++) {
        set.ranks[i] = job->attempt->ranks[i].place;
        devices_describe(daemon, &set.ranks[i], &set.devices[i]);
    }
    if (!inquiry_start(daemon, &job->spec, job->user, &set, answered, placing, &err)) {
        device_set_fini(&set);
        free(placing);
        give_up(daemon, job, err.text);
    }
}

void place_begin(struct daemon *daemon, struct job *job)
{
    struct device_set set = { 0 };
    struct gems_error err;
    uint32_t lo, hi, most;

    job->place_serial++;
    release_all(daemon, job);
    devices_wanted(&job->spec, &lo, &hi);
    if (!devices_pick(daemon, &job->spec, lo, hi, true, &set, &most)) {
        flow_post(daemon, job, ON_UNPLACE, "gemsd", "waits for %u devices, %u are free", lo, most);
        return;
    }
    if (reserve(daemon, job, &set, &err) < 0) {
        give_up(daemon, job, err.text);
    } else if (job->n_checkpoints == 0) {
        picked(daemon, job->id, job->place_serial, false, 0);
    } else if (checkpoints_pick(daemon, job, job->place_serial, picked, &err) < 0) {
        give_up(daemon, job, err.text);
    }
    device_set_fini(&set);
    daemon->is_placing = true;
}

/* ---- the queue ---- */

static void set_reason(struct job *job, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void set_reason(struct job *job, const char *format, ...)
{
    char reason[JOB_REASON_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (strcmp(reason, job->core.reason) != 0) {
        snprintf(job->core.reason, sizeof job->core.reason, "%s", reason);
        jobs_changed(job);
    }
}

static bool has_node(struct daemon *daemon)
{
    list_each(&daemon->nodes, link)
    {
        if (list_item(link, struct cluster_node, link)->peer) {
            return true;
        }
    }
    return false;
}

enum verdict { VERDICT_GO, VERDICT_WAIT, VERDICT_SKIP };

static enum verdict look_at(struct daemon *daemon, struct job *job)
{
    struct device_set set;
    uint32_t lo, hi, n_free, n_all;

    if (!has_node(daemon)) {
        set_reason(job, "no node is registered");
        return VERDICT_SKIP;
    }
    devices_wanted(&job->spec, &lo, &hi);
    if (devices_pick(daemon, &job->spec, lo, hi, true, &set, &n_free)) {
        device_set_fini(&set);
        return VERDICT_GO;
    }
    if (devices_pick(daemon, &job->spec, lo, hi, false, &set, &n_all)) {
        device_set_fini(&set);
        set_reason(job, "waits for %u devices, %u of %u are free", lo, n_free, n_all);
        return VERDICT_WAIT;
    }
    set_reason(job, "needs %u devices of one kind, %u are registered", lo, n_all);
    return VERDICT_SKIP;
}

void place_pass(struct daemon *daemon)
{
    int64_t now_us = daemon_now_us(daemon);
    bool is_behind = false;

    daemon->is_placing = false;
    list_each(&daemon->jobs, link)
    {
        struct job *job = list_item(link, struct job, link);
        enum verdict verdict;

        if (job->core.state != JOB_QUEUED || job->is_moving || !list_is_empty(&job->moves)) {
            continue;
        }
        if (now_us < job->retry_us) {
            continue;
        }
        if (is_behind) {
            set_reason(job, "waits behind an earlier job");
            continue;
        }
        verdict = look_at(daemon, job);
        if (verdict == VERDICT_GO) {
            /* One at a time: it reserves when its move is durable. */
            flow_post(daemon, job, ON_PLACE, "gemsd", NULL);
            daemon->is_placing = true;
            return;
        }
        is_behind = verdict == VERDICT_WAIT;
    }
}
