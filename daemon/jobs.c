#include "daemon/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "daemon/checkpoints.h"
#include "daemon/server.h"
#include "model/passes.h"
#include "proto/codec.h"

static const char *const rank_states[RANK_STATE_COUNT] = {
    [RANK_PLACED] = "placed",   [RANK_LAUNCHED] = "launched", [RANK_JOINED] = "joined",
    [RANK_RUNNING] = "running", [RANK_ENDED] = "ended",       [RANK_GONE] = "gone",
};

const char *rank_state_name(enum rank_state state)
{
    return rank_states[state];
}

struct job *jobs_find(struct daemon *daemon, uint64_t id)
{
    list_each(&daemon->jobs, link)
    {
        struct job *job = list_item(link, struct job, link);

        if (job->id == id) {
            return job;
        }
    }
    return NULL;
}

struct job *jobs_find_attempt(struct daemon *daemon, uint64_t id, uint32_t attempt)
{
    struct job *job = jobs_find(daemon, id);

    return job && job->attempt && job->attempt->number == attempt ? job : NULL;
}

size_t jobs_count(const struct daemon *daemon)
{
    return list_count(&daemon->jobs);
}

static int unpack_spec(struct job *job, const struct bytes *spec, struct gems_error *err)
{
    Gems__JobSpec *message = gems__job_spec__unpack(NULL, spec->n, spec->data);
    int status;

    if (!message) {
        return gems_error_set(err, GEMS_E_DATA, "job %llu: its stored job file is damaged",
                              (unsigned long long)job->id);
    }
    status = spec_from_proto(message, &job->spec, err);
    gems__job_spec__free_unpacked(message, NULL);
    return status;
}

/* What was seen of the job before gemsd's start. */
static void unpack_status(struct job *job, const struct bytes *status)
{
    Gems__StatusReply *message =
        status->n ? gems__status_reply__unpack(NULL, status->n, status->data) : NULL;
    const Gems__JobInfo *info = message ? message->job : NULL;

    if (info) {
        struct progress *progress = &job->progress;

        progress->step = info->step;
        progress->epoch = info->epoch;
        progress->samples = info->samples;
        progress->loss = info->loss;
        progress->accuracy = info->accuracy;
        progress->eval_loss = info->eval_loss;
        progress->eval_accuracy = info->eval_accuracy;
        snprintf(job->weights_hash, sizeof job->weights_hash, "%s", info->weights_hash);
        snprintf(job->schedule, sizeof job->schedule, "%s", info->schedule);
        job->stages = info->stages;
        job->groups = info->groups;
    }
    if (message) {
        gems__status_reply__free_unpacked(message, NULL);
    }
}

struct job *jobs_add(struct daemon *daemon, const struct store_job *row, struct gems_error *err)
{
    struct job *job = calloc(1, sizeof *job);

    if (!job) {
        gems_error_set(err, GEMS_E_NOMEM, "jobs: no memory");
        return NULL;
    }
    job->id = row->id;
    list_init(&job->moves);
    list_init(&job->watches);
    snprintf(job->name, sizeof job->name, "%s", row->name);
    snprintf(job->user, sizeof job->user, "%s", row->user);
    job->core = row->core;
    job->submitted_us = row->submitted_us;
    job->started_us = row->started_us;
    job->finished_us = row->finished_us;
    job->used_ms = row->used_ms;
    job->version = 1;
    progress_init(&job->progress);
    if (unpack_spec(job, &row->spec, err) < 0) {
        free(job);
        return NULL;
    }
    job->recompute = job->spec.parallel.recompute;
    unpack_status(job, &row->status);
    if (row->status.n > 0) {
        job->ranks_blob.data = malloc(row->status.n);
        if (job->ranks_blob.data) {
            memcpy(job->ranks_blob.data, row->status.data, row->status.n);
            job->ranks_blob.n = row->status.n;
        }
    }
    list_push(&daemon->jobs, &job->link);
    return job;
}

void jobs_remove(struct job *job)
{
    list_remove(&job->link);
    attempt_destroy(job);
    graph_fini(&job->graph);
    free(job->checkpoints);
    free(job->ranks_blob.data);
    free(job);
}

int spec_graph(const struct job_spec *spec, struct graph *ret_graph, struct gems_error *err)
{
    int status = zoo_build(&spec->model, ret_graph, err);

    if (status < 0) {
        return status;
    }
    status = graph_fuse(ret_graph, err);
    if (status < 0) {
        graph_fini(ret_graph);
    }
    return status;
}

int jobs_graph(struct job *job, struct gems_error *err)
{
    return job->graph.n_nodes ? GEMS_OK : spec_graph(&job->spec, &job->graph, err);
}

void jobs_changed(struct job *job)
{
    job->version++;
}

int attempt_create(struct job *job, uint32_t n_ranks, struct gems_error *err)
{
    struct attempt *attempt = calloc(1, sizeof *attempt);

    if (attempt) {
        attempt->ranks = calloc(n_ranks ? n_ranks : 1, sizeof *attempt->ranks);
    }
    if (!attempt || !attempt->ranks) {
        free(attempt);
        return gems_error_set(err, GEMS_E_NOMEM, "job %llu: no memory",
                              (unsigned long long)job->id);
    }
    attempt->number = job->core.attempt;
    list_init(&attempt->sessions);
    attempt->n_ranks = n_ranks;
    for (uint32_t i = 0; i < n_ranks; i++) {
        attempt->ranks[i].source = -1;
    }
    job->attempt = attempt;
    return GEMS_OK;
}

void attempt_destroy(struct job *job)
{
    struct attempt *attempt = job->attempt;

    if (!attempt) {
        return;
    }
    job->attempt = NULL;
    checkpoints_abandon(attempt);
    for (uint32_t i = 0; i < attempt->n_ranks; i++) {
        if (attempt->ranks[i].peer) {
            attempt->ranks[i].peer->has_rank = false;
        }
        free(attempt->ranks[i].address);
    }
    free(attempt->ranks);
    plan_fini(&attempt->plan);
    free(attempt);
}

/* Ranks with a last stage, each once, in a fixed order. */
static uint32_t find_sources(struct attempt *attempt)
{
    const struct plan *plan = &attempt->plan;
    uint32_t n = 0;

    for (uint32_t group = 0; group < plan->n_groups; group++) {
        for (uint32_t chain = 0; chain < plan->n_chains; chain++) {
            uint32_t rank = plan_rank(plan, group, chain, plan->n_stages - 1);

            if (rank < attempt->n_ranks && attempt->ranks[rank].source < 0) {
                attempt->ranks[rank].source = (int)n++;
            }
        }
    }
    return n;
}

void attempt_set_plan(struct job *job, struct plan *plan)
{
    struct attempt *attempt = job->attempt;

    attempt->plan = *plan;
    memset(plan, 0, sizeof *plan);
    attempt->has_plan = true;
    snprintf(job->schedule, sizeof job->schedule, "%s", schedule_name(attempt->plan.schedule));
    job->stages = plan_width(&attempt->plan);
    job->groups = attempt->plan.n_groups;
    job->recompute = attempt->plan.recompute;
    progress_begin(&job->progress, find_sources(attempt),
                   attempt->has_restore ? attempt->restore_step : 0);
}

bool attempt_is_gone(const struct attempt *attempt)
{
    for (uint32_t i = 0; i < attempt->n_ranks; i++) {
        if (attempt->ranks[i].state != RANK_GONE) {
            return false;
        }
    }
    return true;
}

const char *rank_name(const struct attempt *attempt, uint32_t rank, char *text, size_t n)
{
    const struct store_rank *place = &attempt->ranks[rank].place;

    snprintf(text, n, "rank %u on %s/%s", rank, place->node, place->device);
    return text;
}
