#include "daemon/watchdog.h"

#include <math.h>
#include <string.h>

#include "daemon/checkpoints.h"
#include "daemon/flow.h"
#include "daemon/launch.h"
#include "daemon/nodes.h"

enum { MISSING_MS = 1000, HANG_STEPS = 10 };

static int64_t us(uint64_t ms)
{
    return (int64_t)ms * 1000;
}

static bool is_alive(const struct rank *rank)
{
    return rank->state != RANK_GONE && rank->state != RANK_ENDED;
}

/* Its agent came back without it. */
static void check_missing(struct daemon *daemon, struct job *job, uint32_t i, int64_t now_us)
{
    struct rank *rank = &job->attempt->ranks[i];
    char name[160];

    if (!rank->missing_us || now_us - rank->missing_us < us(MISSING_MS)) {
        return;
    }
    if (!rank->is_good && job->core.state != JOB_STOPPING) {
        flow_fail(daemon, job, CLASS_NODE_LOST, rank->place.node, "%s: its agent was restarted",
                  rank_name(job->attempt, i, name, sizeof name));
    }
    launch_rank_gone(daemon, job, i);
}

/* Nobody can say any more whether it runs. */
static void check_orphan(struct daemon *daemon, struct job *job, uint32_t i, int64_t now_us)
{
    struct rank *rank = &job->attempt->ranks[i];
    struct cluster_node *node = nodes_find(daemon, rank->place.node);

    if ((node && node->state != NODE_LOST) || rank->peer ||
        now_us - daemon->started_us < us(daemon->settings->recover_ms)) {
        return;
    }
    if (!rank->is_good && job->core.state != JOB_STOPPING) {
        flow_fail(daemon, job, CLASS_NODE_LOST, "gemsd", "node %s has not come back",
                  rank->place.node);
    }
    launch_rank_gone(daemon, job, i);
}

static void check_starting(struct daemon *daemon, struct job *job, int64_t now_us)
{
    struct attempt *attempt = job->attempt;
    char name[160];

    launch_retry(daemon, job);
    if (now_us - attempt->begun_us < us(daemon->settings->start_ms)) {
        return;
    }
    for (uint32_t i = 0; i < attempt->n_ranks; i++) {
        if (attempt->ranks[i].state < RANK_JOINED) {
            flow_fail(daemon, job, CLASS_INTERNAL, "gemsd", "%s: has not joined within %llu s",
                      rank_name(attempt, i, name, sizeof name),
                      (unsigned long long)daemon->settings->start_ms / 1000);
            return;
        }
    }
}

static void check_silence(struct daemon *daemon, struct job *job, uint32_t i, int64_t now_us)
{
    struct rank *rank = &job->attempt->ranks[i];
    char name[160];

    if (rank->peer && checkpoints_is_holding(job, i)) {
        rank->seen_us = rank->moved_us = now_us; /* we do not read what it says */
    }
    if (rank->peer && now_us - rank->seen_us > us(daemon->settings->lost_ms)) {
        flow_fail(daemon, job, CLASS_HANG, "gemsd", "%s: no heartbeat for %llu s",
                  rank_name(job->attempt, i, name, sizeof name),
                  (unsigned long long)daemon->settings->lost_ms / 1000);
    } else if (!rank->peer && now_us - rank->seen_us > us(daemon->settings->rejoin_ms)) {
        flow_fail(daemon, job, CLASS_TRANSPORT, "gemsd",
                  "%s: its connection to gemsd is gone for %llu s",
                  rank_name(job->attempt, i, name, sizeof name),
                  (unsigned long long)daemon->settings->rejoin_ms / 1000);
    }
}

/* Nothing moves any more. The rank that stopped first is the one the others
 * wait for; while one moves, the others may wait for it in good order. */
static void check_hang(struct daemon *daemon, struct job *job, int64_t now_us)
{
    struct attempt *attempt = job->attempt;
    double median = progress_median(&job->progress);
    int64_t limit_us = us(daemon->settings->hang_ms), moved_us = 0;
    const struct rank *first = NULL;
    char name[160];

    if (!isnan(median) && (int64_t)(median * HANG_STEPS * 1e6) > limit_us) {
        limit_us = (int64_t)(median * HANG_STEPS * 1e6);
    }
    for (uint32_t i = 0; i < attempt->n_ranks; i++) {
        const struct rank *rank = &attempt->ranks[i];

        if (rank->state != RANK_RUNNING) {
            continue;
        }
        if (rank->watermark == 0 && limit_us < us(daemon->settings->start_ms)) {
            limit_us = us(daemon->settings->start_ms);
        }
        moved_us = rank->moved_us > moved_us ? rank->moved_us : moved_us;
        if (!first || rank->moved_us < first->moved_us) {
            first = rank;
        }
    }
    if (first && now_us - moved_us > limit_us) {
        flow_fail(daemon, job, CLASS_HANG, "gemsd", "%s: no progress for %lld s in step %llu, %s",
                  rank_name(attempt, (uint32_t)(first - attempt->ranks), name, sizeof name),
                  (long long)limit_us / 1000000, (unsigned long long)first->step + 1,
                  first->phase[0] ? first->phase : "before the first step");
    }
}

static void check_running(struct daemon *daemon, struct job *job, int64_t now_us)
{
    struct attempt *attempt = job->attempt;
    int64_t used_ms = job->used_ms + (now_us - job->running_us) / 1000;

    if (attempt->echo_us && now_us >= attempt->echo_us) {
        attempt->echo_us = 0;
        flow_fail(daemon, job, CLASS_TRANSPORT, "gemsd", "%s", attempt->echo);
    }
    for (uint32_t i = 0; i < attempt->n_ranks; i++) {
        if (is_alive(&attempt->ranks[i])) {
            check_silence(daemon, job, i, now_us);
        }
    }
    check_hang(daemon, job, now_us);
    if (job->spec.limit_seconds && used_ms / 1000 >= (int64_t)job->spec.limit_seconds) {
        flow_fail(daemon, job, CLASS_TIMEOUT, "gemsd", "limits.time of %llu s is used up",
                  (unsigned long long)job->spec.limit_seconds);
    }
}

/* Stopping, or ended with processes left. */
static void check_stopping(struct daemon *daemon, struct job *job, int64_t now_us)
{
    struct attempt *attempt = job->attempt;
    bool is_gentle = job->core.ending == ENDING_PAUSE || job->core.ending == ENDING_MOVE ||
                     job->core.failure == CLASS_TIMEOUT;
    uint64_t grace_ms = is_gentle ? daemon->settings->stop_ms : daemon->settings->kill_ms;

    if (now_us - attempt->stop_us > us(grace_ms) &&
        now_us - attempt->killed_us > us(2 * daemon->settings->kill_ms)) {
        launch_kill(daemon, job);
    }
}

static void tick_job(struct daemon *daemon, struct job *job, int64_t now_us)
{
    uint64_t id = job->id;

    for (uint32_t i = 0; job->attempt && i < job->attempt->n_ranks; i++) {
        if (job->attempt->ranks[i].state != RANK_GONE) {
            check_missing(daemon, job, i, now_us);
        }
        if (!jobs_find(daemon, id) || !job->attempt) {
            return;
        }
        if (job->attempt->ranks[i].state != RANK_GONE) {
            check_orphan(daemon, job, i, now_us);
        }
        if (!jobs_find(daemon, id)) {
            return;
        }
    }
    if (!job->attempt || job->is_moving) {
        return;
    }
    if (job->core.state == JOB_STARTING) {
        check_starting(daemon, job, now_us);
    } else if (job->core.state == JOB_RUNNING) {
        check_running(daemon, job, now_us);
    } else if (job->core.state == JOB_STOPPING || job_is_ended(job->core.state)) {
        check_stopping(daemon, job, now_us);
    }
}

void watchdog_tick(struct daemon *daemon)
{
    int64_t now_us = daemon_now_us(daemon);

    list_each(&daemon->jobs, link)
    {
        struct job *job = list_item(link, struct job, link);

        if (job->attempt && job->core.state != JOB_PLACING) {
            tick_job(daemon, job, now_us);
        }
    }
}

void watchdog_forgive(struct daemon *daemon, int64_t gap_us)
{
    list_each(&daemon->jobs, link)
    {
        struct attempt *attempt = list_item(link, struct job, link)->attempt;

        for (uint32_t i = 0; attempt && i < attempt->n_ranks; i++) {
            attempt->ranks[i].seen_us += gap_us;
            attempt->ranks[i].moved_us += gap_us;
        }
    }
}
