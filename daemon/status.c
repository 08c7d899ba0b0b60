#include "daemon/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bg.h"
#include "common/error.h"
#include "daemon/handlers.h"
#include "daemon/nodes.h"
#include "proto/codec.h"

enum { LIST_LIMIT = 2000 };

static const char *const recompute_names[] = {
    [RECOMPUTE_NONE] = "none",
    [RECOMPUTE_CHEAP] = "cheap",
    [RECOMPUTE_ALL] = "all",
    [RECOMPUTE_AUTO] = "auto",
};

/* ---- live jobs ---- */

static void fill_rates(const struct job *job, Gems__JobInfo *info)
{
    double median = progress_median(&job->progress);

    info->samples_per_second = info->eta_seconds = NAN;
    if (!isnan(median) && median > 0) {
        info->samples_per_second = job->spec.train.batch / median;
    }
    if (job->attempt && job->attempt->has_plan) {
        const struct plan *plan = &job->attempt->plan;
        struct progress_rest rest = { plan->steps_total, plan->steps_per_epoch,
                                      job->spec.checkpoint_every_steps,
                                      job->spec.checkpoint_every_epochs, plan->eval.n_ranks > 0 };

        info->steps_total = plan->steps_total;
        if (job->core.state == JOB_RUNNING) {
            info->eta_seconds = progress_eta(&job->progress, &rest);
        }
    }
}

/* Strings are borrowed from the job. */
static void fill_info(const struct job *job, Gems__JobInfo *info)
{
    const struct progress *progress = &job->progress;

    info->id = job->id;
    info->name = (char *)job->name;
    info->user = (char *)job->user;
    info->state = (char *)job_state_name(job->core.state);
    info->reason = (char *)job->core.reason;
    info->failure_class = (char *)failure_name(job->core.failure);
    info->advice = (char *)failure_advice(job->core.failure);
    info->attempt = job->core.attempt;
    info->submitted_us = job->submitted_us;
    info->started_us = job->started_us;
    info->finished_us = job->finished_us;
    info->epoch = progress->epoch;
    info->step = progress->step;
    info->samples = progress->samples;
    info->loss = progress->loss;
    info->accuracy = progress->accuracy;
    info->eval_loss = progress->eval_loss;
    info->eval_accuracy = progress->eval_accuracy;
    info->schedule =
        (char *)(job->schedule[0] ? job->schedule : schedule_name(job->spec.parallel.schedule));
    info->stages = job->stages ? job->stages : job->spec.parallel.stages;
    info->groups = job->groups ? job->groups : job->spec.parallel.groups;
    info->microbatch = job->spec.parallel.microbatch;
    info->recompute = (char *)recompute_names[job->recompute];
    info->weights_hash = (char *)job->weights_hash;
    fill_rates(job, info);
}

/* Everything that a reply of a live job points to. */
struct reply {
    Gems__StatusReply message;
    Gems__JobInfo info;
    Gems__RankInfo *ranks;
    Gems__RankInfo **rank_pointers;
    uint32_t (*chains)[2 * PLAN_MAX_RESIDENT];
    uint32_t (*stages)[2 * PLAN_MAX_RESIDENT];
    Gems__CheckpointInfo *checkpoints;
    Gems__CheckpointInfo **checkpoint_pointers;
    Gems__StatusReply *kept; /* ranks of an attempt that is over */
};

static void fill_stages(const struct plan *plan, uint32_t rank, uint32_t *chains, uint32_t *stages,
                        Gems__RankInfo *info)
{
    size_t n = 0;

    for (uint32_t group = 0; group < plan->n_groups; group++) {
        for (uint32_t chain = 0; chain < plan->n_chains; chain++) {
            for (uint32_t stage = 0; stage < plan->n_stages && n < 2 * PLAN_MAX_RESIDENT; stage++) {
                if (plan_rank(plan, group, chain, stage) == rank) {
                    chains[n] = chain;
                    stages[n++] = stage;
                }
            }
        }
    }
    info->chains = chains;
    info->stages = stages;
    info->n_chains = info->n_stages = n;
}

static int fill_ranks(const struct job *job, struct reply *reply)
{
    const struct attempt *attempt = job->attempt;
    uint32_t n = attempt->n_ranks;

    reply->ranks = calloc(n + 1, sizeof *reply->ranks);
    reply->rank_pointers = calloc(n + 1, sizeof *reply->rank_pointers);
    reply->chains = calloc(n + 1, sizeof *reply->chains);
    reply->stages = calloc(n + 1, sizeof *reply->stages);
    if (!reply->ranks || !reply->rank_pointers || !reply->chains || !reply->stages) {
        return GEMS_E_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct rank *rank = &attempt->ranks[i];
        Gems__RankInfo *info = &reply->ranks[i];

        gems__rank_info__init(info);
        info->rank = i;
        info->node = (char *)rank->place.node;
        info->device = (char *)rank->place.device;
        info->state = (char *)rank_state_name(rank->state);
        info->step = rank->step;
        info->allocated_bytes = rank->allocated_bytes;
        info->peak_rss_bytes = rank->peak_bytes;
        info->busy_fraction = rank->busy_fraction;
        info->step_seconds = (double *)rank->step_seconds;
        info->n_step_seconds = rank->has_times ? TIMELINE_SPENT : 0;
        if (attempt->has_plan && i < attempt->plan.n_ranks) {
            info->predicted_bytes = attempt->plan.memory ? attempt->plan.memory[i].total_bytes : 0;
            fill_stages(&attempt->plan, i, reply->chains[i], reply->stages[i], info);
        }
        reply->rank_pointers[i] = info;
    }
    reply->message.ranks = reply->rank_pointers;
    reply->message.n_ranks = n;
    return GEMS_OK;
}

static void fill_checkpoint(const struct store_checkpoint *row, Gems__CheckpointInfo *info)
{
    gems__checkpoint_info__init(info);
    info->step = row->step;
    info->bytes = row->bytes;
    info->when_us = row->when_us;
    info->verified = row->trust == CHECKPOINT_VERIFIED;
    info->weights_hash = (char *)row->weights_hash;
    info->epoch = row->epoch;
    info->eval_accuracy = row->eval_accuracy;
}

/* rows newest first; pointers go into a reply, owned by the caller. */
static int fill_checkpoints(const struct store_checkpoint *rows, size_t n,
                            Gems__CheckpointInfo **ret_infos, Gems__CheckpointInfo ***ret_pointers)
{
    *ret_infos = calloc(n + 1, sizeof **ret_infos);
    *ret_pointers = calloc(n + 1, sizeof **ret_pointers);
    if (!*ret_infos || !*ret_pointers) {
        return GEMS_E_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        fill_checkpoint(&rows[i], &(*ret_infos)[i]);
        (*ret_pointers)[i] = &(*ret_infos)[i];
    }
    return GEMS_OK;
}

static void reply_fini(struct reply *reply)
{
    free(reply->ranks);
    free(reply->rank_pointers);
    free(reply->chains);
    free(reply->stages);
    free(reply->checkpoints);
    free(reply->checkpoint_pointers);
    if (reply->kept) {
        gems__status_reply__free_unpacked(reply->kept, NULL);
    }
}

static int reply_fill(const struct job *job, bool has_checkpoints, struct reply *reply)
{
    int status = GEMS_OK;

    memset(reply, 0, sizeof *reply);
    gems__status_reply__init(&reply->message);
    gems__job_info__init(&reply->info);
    fill_info(job, &reply->info);
    reply->message.job = &reply->info;
    if (job->attempt) {
        status = fill_ranks(job, reply);
    } else if (job->ranks_blob.n > 0) {
        reply->kept = gems__status_reply__unpack(NULL, job->ranks_blob.n, job->ranks_blob.data);
        if (reply->kept) {
            reply->message.ranks = reply->kept->ranks;
            reply->message.n_ranks = reply->kept->n_ranks;
            if (reply->kept->job && reply->info.steps_total == 0) {
                reply->info.steps_total = reply->kept->job->steps_total;
            }
        }
    }
    if (status >= 0 && has_checkpoints) {
        status = fill_checkpoints(job->checkpoints, job->n_checkpoints, &reply->checkpoints,
                                  &reply->checkpoint_pointers);
        reply->message.checkpoints = reply->checkpoint_pointers;
        reply->message.n_checkpoints = status < 0 ? 0 : job->n_checkpoints;
    }
    return status;
}

int status_pack(const struct job *job, struct bytes *ret_status)
{
    struct gems_error err;
    struct reply reply;
    int status = reply_fill(job, false, &reply);

    if (status >= 0) {
        status = proto_pack(&reply.message.base, &ret_status->data, &ret_status->n, &err);
    }
    reply_fini(&reply);
    return status;
}

void status_keep_ranks(struct job *job)
{
    struct bytes packed = { 0 };

    if (job->attempt && status_pack(job, &packed) >= 0) {
        free(job->ranks_blob.data);
        job->ranks_blob = packed;
    }
}

void status_send(struct peer *peer, uint32_t call, uint16_t flags, const struct job *job)
{
    struct gems_error err;
    struct reply reply;

    if (reply_fill(job, true, &reply) < 0) {
        gems_error_set(&err, GEMS_E_NOMEM, "job %llu: no memory", (unsigned long long)job->id);
        peer_error(peer, call, &err);
    } else {
        peer_send(peer, MSG_STATUS_REPLY, flags, call, &reply.message.base);
    }
    reply_fini(&reply);
}

/* ---- from the store ---- */

enum query_kind { QUERY_STATUS, QUERY_LIST, QUERY_EVENTS, QUERY_CHECKPOINTS, QUERY_REFUSAL };

struct query {
    struct daemon *daemon;
    uint64_t peer, job;
    uint32_t call;
    enum query_kind kind;
    unsigned states;    /* LIST */
    enum job_verb verb; /* REFUSAL */
    struct store_job *jobs;
    size_t n_jobs;
    struct store_event *events;
    size_t n_events;
    struct store_checkpoint *checkpoints;
    size_t n_checkpoints;
    int result;
    struct gems_error err;
};

static void query_work(void *arg)
{
    struct query *query = arg;
    struct store *store = query->daemon->store;
    struct gems_error *err = &query->err;

    if (query->kind == QUERY_LIST) {
        query->result =
            store_list(store, query->states, LIST_LIMIT, &query->jobs, &query->n_jobs, err);
        return;
    }
    query->jobs = calloc(1, sizeof *query->jobs);
    query->result = query->jobs ? store_job(store, query->job, query->jobs, err)
                                : gems_error_set(err, GEMS_E_NOMEM, "status: no memory");
    if (query->result < 0) {
        return;
    }
    query->n_jobs = 1;
    if (query->kind == QUERY_EVENTS) {
        query->result = store_events(store, query->job, &query->events, &query->n_events, err);
    } else {
        query->result =
            store_checkpoints(store, query->job, &query->checkpoints, &query->n_checkpoints, err);
    }
}

/* A stored job's columns say more than its status of the last move. */
static void patch_info(const struct store_job *row, Gems__JobInfo *info)
{
    info->id = row->id;
    info->name = (char *)row->name;
    info->user = (char *)row->user;
    info->state = (char *)job_state_name(row->core.state);
    info->reason = (char *)row->core.reason;
    info->failure_class = (char *)failure_name(row->core.failure);
    info->advice = (char *)failure_advice(row->core.failure);
    info->attempt = row->core.attempt;
    info->submitted_us = row->submitted_us;
    info->started_us = row->started_us;
    info->finished_us = row->finished_us;
    if (job_is_ended(row->core.state)) {
        info->eta_seconds = NAN;
    }
}

static void answer_status(struct query *query, struct peer *peer)
{
    const struct store_job *row = &query->jobs[0];
    Gems__StatusReply *stored =
        row->status.n ? gems__status_reply__unpack(NULL, row->status.n, row->status.data) : NULL;
    Gems__StatusReply reply = GEMS__STATUS_REPLY__INIT;
    Gems__JobInfo info = GEMS__JOB_INFO__INIT;
    Gems__CheckpointInfo *infos = NULL, **pointers = NULL;

    info.loss = info.accuracy = info.eval_loss = info.eval_accuracy = NAN;
    info.samples_per_second = info.eta_seconds = NAN;
    if (stored && stored->job) {
        info = *stored->job;
        reply.ranks = stored->ranks;
        reply.n_ranks = stored->n_ranks;
    }
    patch_info(row, &info);
    reply.job = &info;
    if (fill_checkpoints(query->checkpoints, query->n_checkpoints, &infos, &pointers) >= 0) {
        reply.checkpoints = pointers;
        reply.n_checkpoints = query->n_checkpoints;
    }
    for (size_t i = 0; i < query->n_checkpoints; i++) {
        if (job_is_ended(row->core.state) && query->checkpoints[i].is_final &&
            !info.weights_hash[0]) {
            info.weights_hash = query->checkpoints[i].weights_hash;
        }
    }
    peer_reply(peer, query->call, MSG_STATUS_REPLY, &reply.base);
    free(infos);
    free(pointers);
    if (stored) {
        gems__status_reply__free_unpacked(stored, NULL);
    }
}

static void answer_list(struct query *query, struct peer *peer)
{
    Gems__ListReply reply = GEMS__LIST_REPLY__INIT;
    size_t n = query->n_jobs;
    Gems__JobInfo *infos = calloc(n + 1, sizeof *infos),
                  **pointers = calloc(n + 1, sizeof *pointers);
    Gems__StatusReply **stored = calloc(n + 1, sizeof *stored);

    for (size_t i = 0; infos && pointers && stored && i < n; i++) {
        const struct store_job *row = &query->jobs[n - 1 - i];
        struct job *job = jobs_find(query->daemon, row->id);

        gems__job_info__init(&infos[i]);
        infos[i].loss = infos[i].accuracy = infos[i].eval_loss = infos[i].eval_accuracy = NAN;
        infos[i].samples_per_second = infos[i].eta_seconds = NAN;
        stored[i] = row->status.n
                        ? gems__status_reply__unpack(NULL, row->status.n, row->status.data)
                        : NULL;
        if (job) {
            fill_info(job, &infos[i]);
        } else {
            if (stored[i] && stored[i]->job) {
                infos[i] = *stored[i]->job;
            }
            patch_info(row, &infos[i]);
        }
        pointers[reply.n_jobs++] = &infos[i];
    }
    reply.jobs = pointers;
    peer_reply(peer, query->call, MSG_LIST_REPLY, &reply.base);
    for (size_t i = 0; stored && i < n; i++) {
        if (stored[i]) {
            gems__status_reply__free_unpacked(stored[i], NULL);
        }
    }
    free(infos);
    free(pointers);
    free(stored);
}

static void answer_events(struct query *query, struct peer *peer)
{
    Gems__EventsReply reply = GEMS__EVENTS_REPLY__INIT;
    size_t n = query->n_events;
    Gems__EventInfo *infos = calloc(n + 1, sizeof *infos),
                    **pointers = calloc(n + 1, sizeof *pointers);

    for (size_t i = 0; infos && pointers && i < n; i++) {
        const struct store_event *row = &query->events[i];

        gems__event_info__init(&infos[i]);
        infos[i].when_us = row->when_us;
        infos[i].who = (char *)row->who;
        infos[i].event = (char *)row->event;
        infos[i].state = (char *)row->state;
        infos[i].attempt = row->attempt;
        infos[i].why = (char *)row->why;
        pointers[reply.n_events++] = &infos[i];
    }
    reply.events = pointers;
    peer_reply(peer, query->call, MSG_EVENTS_REPLY, &reply.base);
    free(infos);
    free(pointers);
}

static void answer_checkpoints(struct query *query, struct peer *peer)
{
    Gems__CheckpointsReply reply = GEMS__CHECKPOINTS_REPLY__INIT;
    Gems__CheckpointInfo *infos = NULL, **pointers = NULL;

    if (fill_checkpoints(query->checkpoints, query->n_checkpoints, &infos, &pointers) >= 0) {
        reply.checkpoints = pointers;
        reply.n_checkpoints = query->n_checkpoints;
    }
    peer_reply(peer, query->call, MSG_CHECKPOINTS_REPLY, &reply.base);
    free(infos);
    free(pointers);
}

/* A verb for a job that is not in memory: it has ended, or never was. */
static void answer_refusal(struct query *query, struct peer *peer)
{
    if (job_verb_check(query->job, query->verb, query->jobs[0].core.state, &query->err) >= 0) {
        gems_error_set(&query->err, GEMS_E_STATE, "job %llu has just ended",
                       (unsigned long long)query->job);
    }
    peer_error(peer, query->call, &query->err);
}

static void query_done(void *arg, bool is_run)
{
    static void (*const answers[])(struct query *, struct peer *) = {
        [QUERY_STATUS] = answer_status,   [QUERY_LIST] = answer_list,
        [QUERY_EVENTS] = answer_events,   [QUERY_CHECKPOINTS] = answer_checkpoints,
        [QUERY_REFUSAL] = answer_refusal,
    };
    struct query *query = arg;
    struct peer *peer = is_run ? server_peer(query->daemon->server, query->peer) : NULL;

    if (peer && query->result < 0) {
        peer_error(peer, query->call, &query->err);
    } else if (peer) {
        answers[query->kind](query, peer);
    }
    for (size_t i = 0; i < query->n_jobs; i++) {
        store_job_fini(&query->jobs[i]);
    }
    free(query->jobs);
    free(query->events);
    free(query->checkpoints);
    free(query);
}

static void ask_store(struct peer *peer, uint32_t call, enum query_kind kind, uint64_t job,
                      unsigned states, enum job_verb verb)
{
    struct query *query = calloc(1, sizeof *query);
    struct gems_error err;
    int status = query ? GEMS_OK : gems_error_set(&err, GEMS_E_NOMEM, "status: no memory");

    if (query) {
        query->daemon = peer->daemon;
        query->peer = peer->id;
        query->call = call;
        query->kind = kind;
        query->job = job;
        query->states = states;
        query->verb = verb;
        status = bg_submit(peer->daemon->store_bg, query_work, query_done, query, &err);
    }
    if (status < 0) {
        free(query);
        peer_error(peer, call, &err);
    }
}

void on_status(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    uint64_t id = ((const Gems__JobRequest *)base)->job;
    struct job *job = jobs_find(peer->daemon, id);

    if (job) {
        status_send(peer, call, RPC_REPLY | RPC_LAST, job);
    } else {
        ask_store(peer, call, QUERY_STATUS, id, 0, VERB_CANCEL);
    }
}

void on_events(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    ask_store(peer, call, QUERY_EVENTS, ((const Gems__JobRequest *)base)->job, 0, VERB_CANCEL);
}

void status_checkpoints(struct peer *peer, uint32_t call, uint64_t job)
{
    ask_store(peer, call, QUERY_CHECKPOINTS, job, 0, VERB_CANCEL);
}

void status_refuse_verb(struct peer *peer, uint32_t call, uint64_t job, enum job_verb verb)
{
    ask_store(peer, call, QUERY_REFUSAL, job, 0, verb);
}

void on_list(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__ListRequest *message = (const Gems__ListRequest *)base;
    struct gems_error err;
    unsigned states = 0;

    for (size_t i = 0; i < message->n_states; i++) {
        int state = job_state_from_name(message->states[i]);

        if (state < 0) {
            gems_error_set(&err, GEMS_E_INVALID, "state \"%.32s\": no such state",
                           message->states[i]);
            gems_error_hint(
                &err, "QUEUED, PLACING, STARTING, RUNNING, PAUSED, STOPPING, SUCCEEDED, FAILED"
                      " or CANCELLED");
            peer_error(peer, call, &err);
            return;
        }
        states |= 1u << state;
    }
    ask_store(peer, call, QUERY_LIST, 0, states, VERB_CANCEL);
}

void on_nodes(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    struct daemon *daemon = peer->daemon;
    size_t n = list_count(&daemon->nodes), n_devices = 0, i = 0, k = 0;
    Gems__NodesReply reply = GEMS__NODES_REPLY__INIT;
    Gems__NodeInfo *nodes = calloc(n + 1, sizeof *nodes),
                   **pointers = calloc(n + 1, sizeof *pointers);
    Gems__DeviceInfo *devices, **device_pointers;

    (void)base;
    list_each(&daemon->nodes, count_link)
    {
        n_devices += list_item(count_link, struct cluster_node, link)->n_devices;
    }
    devices = calloc(n_devices + 1, sizeof *devices);
    device_pointers = calloc(n_devices + 1, sizeof *device_pointers);
    if (nodes && pointers && devices && device_pointers) {
        list_each(&daemon->nodes, link)
        {
            const struct cluster_node *node = list_item(link, struct cluster_node, link);

            gems__node_info__init(&nodes[i]);
            nodes[i].name = (char *)node->name;
            nodes[i].state = (char *)node_state_name(node);
            nodes[i].reason = (char *)node->reason;
            nodes[i].version = (char *)node->version;
            nodes[i].devices = &device_pointers[k];
            nodes[i].n_devices = node->n_devices;
            for (uint32_t d = 0; d < node->n_devices; d++, k++) {
                gems__device_info__init(&devices[k]);
                devices[k].id = node->devices[d].id;
                devices[k].kind = node->devices[d].kind;
                devices[k].memory_bytes = node->devices[d].memory_bytes;
                devices[k].threads = node->devices[d].threads;
                devices[k].job = node->devices[d].job;
                device_pointers[k] = &devices[k];
            }
            pointers[i] = &nodes[i];
            i++;
        }
        reply.nodes = pointers;
        reply.n_nodes = n;
    }
    peer_reply(peer, call, MSG_NODES_REPLY, &reply.base);
    free(nodes);
    free(pointers);
    free(devices);
    free(device_pointers);
}
