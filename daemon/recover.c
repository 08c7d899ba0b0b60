#include "daemon/recover.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/log.h"
#include "daemon/checkpoints.h"
#include "daemon/flow.h"
#include "daemon/nodes.h"
#include "proto/codec.h"

/* Every rank may be alive: it is given time to show itself. */
static void expect_ranks(struct daemon *daemon, struct job *job, const struct store_attempt *row)
{
    int64_t now_us = daemon_now_us(daemon);

    for (uint32_t i = 0; i < row->n_ranks; i++) {
        struct rank *rank = &job->attempt->ranks[i];

        rank->place = row->ranks[i];
        rank->state = RANK_LAUNCHED;
        rank->seen_us = rank->moved_us = now_us + (int64_t)daemon->settings->recover_ms * 1000;
    }
}

static int load_plan(struct job *job, const struct store_attempt *row, struct gems_error *err)
{
    Gems__Plan *message = gems__plan__unpack(NULL, row->plan.n, row->plan.data);
    struct plan plan = { 0 };
    int status;

    if (!message) {
        return gems_error_set(err, GEMS_E_DATA, "its stored plan is damaged");
    }
    status = plan_from_proto(message, &plan, err);
    gems__plan__free_unpacked(message, NULL);
    if (status >= 0) {
        uint64_t step = job->progress.step;

        attempt_set_plan(job, &plan);
        job->progress.step = step > job->progress.step ? step : job->progress.step;
    }
    return status;
}

static int load_attempt(struct daemon *daemon, struct job *job, struct gems_error *err)
{
    struct store_attempt row;
    int status = store_attempt(daemon->store, job->id, job->core.attempt, &row, err);

    if (status < 0) {
        return status;
    }
    status = attempt_create(job, row.n_ranks, err);
    if (status >= 0) {
        memcpy(job->attempt->secret, row.secret, sizeof row.secret);
        memcpy(job->attempt->token, row.token, sizeof row.token);
        job->attempt->has_restore = row.has_restore;
        job->attempt->restore_step = row.restore_step;
        job->attempt->begun_us = daemon_now_us(daemon);
        expect_ranks(daemon, job, &row);
        status = load_plan(job, &row, err);
    }
    store_attempt_fini(&row);
    return status;
}

static int load_job(struct daemon *daemon, const struct store_job *row, struct gems_error *err)
{
    struct job *job = jobs_add(daemon, row, err);
    int status = job ? checkpoints_load(daemon, job, err) : err->status;

    if (status >= 0 && job_has_ranks(job->core.state)) {
        status = load_attempt(daemon, job, err);
        if (status == GEMS_E_NOTFOUND || status == GEMS_E_DATA) {
            /* The entry action of its state ends it, with a reason. */
            log_error("job %llu attempt %u: %s", (unsigned long long)job->id, job->core.attempt,
                      err->text);
            attempt_destroy(job);
            status = GEMS_OK;
        }
    }
    return status;
}

int recover_load(struct daemon *daemon, struct gems_error *err)
{
    struct store_job *rows = NULL;
    size_t n = 0;
    int status = nodes_load(daemon, err);

    if (status >= 0) {
        status = store_live_jobs(daemon->store, &rows, &n, err);
    }
    for (size_t i = 0; i < n; i++) {
        if (status >= 0) {
            status = load_job(daemon, &rows[i], err);
        }
        store_job_fini(&rows[i]);
    }
    free(rows);
    return status;
}

void recover_begin(struct daemon *daemon)
{
    list_each(&daemon->jobs, link)
    {
        struct job *job = list_item(link, struct job, link);

        if (job->core.state == JOB_PLACING) {
            flow_post(daemon, job, ON_UNPLACE, "gemsd", "gemsd was restarted");
        } else if (job->core.state != JOB_STOPPING || !job->attempt) {
            flow_enter(daemon, job);
        } else {
            job->attempt->stop_us = daemon_now_us(daemon);
        }
        if (job_has_ranks(job->core.state)) {
            log_info("job %llu attempt %u: waits for its ranks to come back",
                     (unsigned long long)job->id, job->core.attempt);
        }
    }
    daemon->is_placing = true;
}
