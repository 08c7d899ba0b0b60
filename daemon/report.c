/* What ranks and agents report: signs of life, progress, ends. Whatever comes
 * from another attempt than the current one is dropped here. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/log.h"
#include "daemon/checkpoints.h"
#include "daemon/flow.h"
#include "daemon/handlers.h"
#include "daemon/launch.h"

enum { ECHO_MS = 1000 };

static void take_times(struct rank *rank, const double *seconds, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n && n == TIMELINE_SPENT; i++) {
        sum += seconds[i];
        if (!(seconds[i] >= 0)) {
            return;
        }
    }
    if (sum > 0 && isfinite(sum)) {
        memcpy(rank->step_seconds, seconds, sizeof rank->step_seconds);
        rank->has_times = true;
    }
}

void on_heartbeat(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__Heartbeat *beat = (const Gems__Heartbeat *)base;
    struct rank *rank;
    struct job *job = launch_job_of(peer, &rank);

    (void)call;
    if (!job) {
        return;
    }
    if (beat->watermark != rank->watermark || strcmp(beat->phase, rank->phase) != 0) {
        rank->moved_us = rank->seen_us;
    }
    rank->watermark = beat->watermark;
    snprintf(rank->phase, sizeof rank->phase, "%s", beat->phase);
    rank->step = beat->step;
    rank->allocated_bytes = beat->allocated_bytes ? beat->allocated_bytes : rank->allocated_bytes;
    rank->rss_bytes = beat->rss_bytes;
    rank->peak_bytes = beat->rss_bytes > rank->peak_bytes ? beat->rss_bytes : rank->peak_bytes;
    rank->busy_fraction = beat->busy_fraction;
    take_times(rank, beat->step_seconds, beat->n_step_seconds);
    if (job->core.state == JOB_RUNNING && rank->source == 0) {
        progress_step(&job->progress, beat->step);
    }
    jobs_changed(job);
}

void on_progress(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__Progress *message = (const Gems__Progress *)base;
    struct progress_report report = { .is_eval = message->eval,
                                      .step = message->step,
                                      .samples = message->samples,
                                      .n_correct = message->correct,
                                      .n_counted = message->counted,
                                      .epoch = message->epoch,
                                      .loss_sum = message->loss_sum,
                                      .seconds = message->step_seconds };
    struct rank *rank;
    struct job *job = launch_job_of(peer, &rank);

    (void)call;
    if (!job || rank->source < 0) {
        return;
    }
    rank->moved_us = rank->seen_us;
    if (progress_add(&job->progress, (uint32_t)rank->source, &report)) {
        if (report.is_eval) {
            checkpoints_evaluated(peer->daemon, job, report.step, job->progress.eval_accuracy);
        }
        jobs_changed(job);
    }
}

static enum failure_class class_of_end(const Gems__End *end)
{
    int failure = failure_from_name(end->failure_class);

    return failure > 0 ? (enum failure_class)failure : failure_of_status(end->status);
}

/* A rank failed. A broken peer connection waits for its cause. */
static void take_failure(struct daemon *daemon, struct job *job, struct rank *rank, uint32_t i,
                         enum failure_class failure, const char *text)
{
    struct attempt *attempt = job->attempt;
    char name[160];

    rank_name(attempt, i, name, sizeof name);
    if (failure == CLASS_TRANSPORT && job->core.state == JOB_RUNNING) {
        if (!attempt->echo_us) {
            attempt->echo_us = daemon_now_us(daemon) + ECHO_MS * 1000;
            snprintf(attempt->echo, sizeof attempt->echo, "%s: %.300s", name, text);
        }
        return;
    }
    flow_fail(daemon, job, failure, rank->place.node, "%s: %.300s", name, text);
}

void on_end(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__End *end = (const Gems__End *)base;
    struct daemon *daemon = peer->daemon;
    struct rank *rank;
    struct job *job = launch_job_of(peer, &rank);
    uint64_t id;

    if (!job) {
        peer_ok(peer, call); /* nobody waits for it any more */
        return;
    }
    rank->peak_bytes =
        end->peak_rss_bytes > rank->peak_bytes ? end->peak_rss_bytes : rank->peak_bytes;
    rank->allocated_bytes = end->allocated_bytes ? end->allocated_bytes : rank->allocated_bytes;
    rank->step = end->step ? end->step : rank->step;
    take_times(rank, end->step_seconds, end->n_step_seconds);
    rank->state = RANK_ENDED;
    rank->is_good = end->status == GEMS_OK;
    rank->end_call = call;
    jobs_changed(job);
    if (end->status == GEMS_OK) {
        progress_step(&job->progress, end->step);
    } else if (job->core.state != JOB_STOPPING || end->status != GEMS_E_CANCELLED) {
        log_warning("job %llu attempt %u rank %u: ended: %s", (unsigned long long)job->id,
                    job->attempt->number, peer->rank, end->text);
    }
    if (end->status < 0 && (job->core.state == JOB_STARTING || job->core.state == JOB_RUNNING)) {
        take_failure(daemon, job, rank, peer->rank, class_of_end(end),
                     end->text[0] ? end->text : "failed");
    }
    id = job->id;
    launch_check(daemon, job);
    job = jobs_find(daemon, id);
    if (job && job->attempt && (job->core.state == JOB_STOPPING || job_is_ended(job->core.state)) &&
        rank->end_call) {
        peer_ok(peer, call);
        rank->end_call = 0;
    }
}

static void describe_exit(const Gems__RankExit *message, char *text, size_t n)
{
    if (message->oom) {
        snprintf(text, n, "was killed: out of memory (peak %llu MiB)",
                 (unsigned long long)message->peak_rss_bytes >> 20);
    } else if (message->signaled) {
        snprintf(text, n, "was killed by signal %d (%s)", message->code, strsignal(message->code));
    } else {
        snprintf(text, n, "exited with code %d without a result", message->code);
    }
}

/* One of the ranks that the node was told to kill when it registered. */
static void stray_is_gone(struct peer *peer)
{
    if (peer->node->n_strays > 0 && --peer->node->n_strays == 0) {
        peer->daemon->is_placing = true;
    }
}

void on_rank_exit(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__RankExit *message = (const Gems__RankExit *)base;
    const Gems__RankRef *ref = message->ref;
    struct daemon *daemon = peer->daemon;
    struct job *job = ref ? jobs_find_attempt(daemon, ref->job, ref->attempt) : NULL;
    struct rank *rank =
        job && ref->rank < job->attempt->n_ranks ? &job->attempt->ranks[ref->rank] : NULL;

    peer_ok(peer, call);
    if (!peer->node) {
        return;
    }
    if (!rank || strcmp(rank->place.node, peer->node->name) != 0 || rank->state == RANK_GONE) {
        stray_is_gone(peer);
        return;
    }
    if (!job_has_ranks(job->core.state)) {
        stray_is_gone(peer); /* its job ended while the agent was away */
    }
    rank->peak_bytes =
        message->peak_rss_bytes > rank->peak_bytes ? message->peak_rss_bytes : rank->peak_bytes;
    if (rank->state != RANK_ENDED &&
        (job->core.state == JOB_STARTING || job->core.state == JOB_RUNNING)) {
        char why[160];

        describe_exit(message, why, sizeof why);
        log_warning("job %llu attempt %u rank %u: %s: %s", (unsigned long long)job->id,
                    ref->attempt, ref->rank, why, message->tail);
        take_failure(daemon, job, rank, ref->rank, message->oom ? CLASS_OOM : CLASS_INTERNAL, why);
    }
    launch_rank_gone(daemon, job, ref->rank);
}
