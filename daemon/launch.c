#include "daemon/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/hash.h"
#include "common/log.h"
#include "daemon/flow.h"
#include "daemon/handlers.h"
#include "daemon/identity.h"
#include "daemon/status.h"
#include "proto/codec.h"

enum { LAUNCH_ANSWER_MS = 30000 };

/* ---- STARTING: launch ---- */

struct launch_call {
    struct daemon *daemon;
    uint64_t job;
    uint32_t attempt, rank;
};

static enum failure_class launch_class(int status)
{
    return status == GEMS_E_DEVICE   ? CLASS_DEVICE
           : status == GEMS_E_NOMEM  ? CLASS_OOM
           : status == GEMS_E_DENIED ? CLASS_DATA
                                     : CLASS_INTERNAL;
}

static void launch_answered(void *arg, const ProtobufCMessage *answer, const struct gems_error *err)
{
    struct launch_call *launch = arg;
    struct daemon *daemon = launch->daemon;
    struct job *job = jobs_find_attempt(daemon, launch->job, launch->attempt);
    struct rank *rank = job ? &job->attempt->ranks[launch->rank] : NULL;
    char name[160];

    if (rank && !answer && rank->state == RANK_LAUNCHED) {
        if (err->status == GEMS_E_PEER || err->status == GEMS_E_TIMEOUT) {
            rank->state = RANK_PLACED; /* told again when the agent is back */
        } else {
            flow_fail(daemon, job, launch_class(err->status), rank->place.node,
                      "%s: cannot be started: %s",
                      rank_name(job->attempt, launch->rank, name, sizeof name), err->text);
            launch_rank_gone(daemon, job, launch->rank);
        }
    }
    free(launch);
}

/* What the rank will open, and for whom: its agent has a say in that. */
static void fill_data(struct job *job, Gems__Launch *message, char *paths[2])
{
    struct data_spec *data = &job->spec.data;

    message->data = paths;
    if (data->format != DATA_SYNTHETIC) {
        paths[message->n_data++] = data->train;
        if (data->eval[0]) {
            paths[message->n_data++] = data->eval;
        }
    }
    message->has_uid = identity_uid(job->user, &message->uid);
}

static void launch_rank(struct daemon *daemon, struct job *job, uint32_t i)
{
    struct attempt *attempt = job->attempt;
    struct rank *rank = &attempt->ranks[i];
    struct cluster_node *node = nodes_find(daemon, rank->place.node);
    struct launch_call *launch;
    Gems__Launch message = GEMS__LAUNCH__INIT;
    Gems__RankRef ref = GEMS__RANK_REF__INIT;
    struct gems_error err;
    char *paths[2];

    if (rank->state != RANK_PLACED || !node || !node->peer) {
        return;
    }
    launch = calloc(1, sizeof *launch);
    if (!launch) {
        return; /* the next tick tries again */
    }
    *launch = (struct launch_call){ daemon, job->id, attempt->number, i };
    ref.job = job->id;
    ref.attempt = attempt->number;
    ref.rank = i;
    message.ref = &ref;
    message.n_ranks = attempt->n_ranks;
    message.device = rank->place.device;
    message.backend = rank->place.backend;
    message.threads = rank->place.threads;
    message.memory_bytes = rank->place.memory_bytes;
    message.rank_token = attempt->token;
    message.secret.data = attempt->secret;
    message.secret.len = sizeof attempt->secret;
    fill_data(job, &message, paths);
    rank->state = RANK_LAUNCHED;
    if (peer_call(node->peer, MSG_LAUNCH, &message.base, LAUNCH_ANSWER_MS, launch_answered, launch,
                  &err) < 0) {
        rank->state = RANK_PLACED;
        free(launch);
    }
}

void launch_begin(struct daemon *daemon, struct job *job)
{
    if (!job->attempt) {
        flow_fail(daemon, job, CLASS_INTERNAL, "gemsd", "its attempt is not stored");
        return;
    }
    if (!job->attempt->begun_us) {
        job->attempt->begun_us = daemon_now_us(daemon);
    }
    launch_retry(daemon, job);
}

void launch_retry(struct daemon *daemon, struct job *job)
{
    for (uint32_t i = 0; i < job->attempt->n_ranks; i++) {
        launch_rank(daemon, job, i);
    }
}

/* ---- Join ---- */

static int check_join(const struct job *job, const Gems__Join *join, struct gems_error *err)
{
    if (!job || !job_has_ranks(job->core.state) || job->core.state == JOB_STOPPING ||
        join->ref->rank >= job->attempt->n_ranks ||
        job->attempt->ranks[join->ref->rank].state == RANK_GONE) {
        return gems_error_set(err, GEMS_E_STATE, "job %llu attempt %u rank %u: is over",
                              (unsigned long long)join->ref->job, join->ref->attempt,
                              join->ref->rank);
    }
    if (strlen(join->rank_token) != 64 || !hash_equal(join->rank_token, job->attempt->token, 64)) {
        return gems_error_set(err, GEMS_E_DENIED, "job %llu rank %u: wrong token",
                              (unsigned long long)join->ref->job, join->ref->rank);
    }
    return GEMS_OK;
}

static int take_join(struct rank *rank, const Gems__Join *join, struct gems_error *err)
{
    uint8_t *address = malloc(join->address.len + 1);

    if (!address) {
        return gems_error_set(err, GEMS_E_NOMEM, "join: no memory");
    }
    if (join->address.len > 0) {
        memcpy(address, join->address.data, join->address.len);
    }
    free(rank->address);
    rank->address = address;
    rank->n_address = join->address.len;
    snprintf(rank->net_version, sizeof rank->net_version, "%s", join->net_version);
    snprintf(rank->kind, sizeof rank->kind, "%s", join->kind);
    return GEMS_OK;
}

static void attach(struct peer *peer, struct job *job, uint32_t i)
{
    struct rank *rank = &job->attempt->ranks[i];

    if (rank->peer && rank->peer != peer) {
        rank->peer->has_rank = false;
        peer_finish(rank->peer);
    }
    rank->peer = peer;
    rank->missing_us = 0;
    rank->join_call = rank->end_call = 0;
    rank->seen_us = rank->moved_us = daemon_now_us(peer->daemon);
    peer->has_rank = true;
    peer->job = job->id;
    peer->attempt = job->attempt->number;
    peer->rank = i;
}

/* All ranks must run the same transport and kind of device: other bits, or no
 * connection at all, would follow. */
static bool check_gang(struct daemon *daemon, struct job *job)
{
    const struct attempt *attempt = job->attempt;

    for (uint32_t i = 1; i < attempt->n_ranks; i++) {
        const struct rank *a = &attempt->ranks[0], *b = &attempt->ranks[i];

        if (strcmp(a->net_version, b->net_version) != 0 || strcmp(a->kind, b->kind) != 0) {
            flow_fail(
                daemon, job, CLASS_SPEC, "gemsd",
                "rank 0 on %s is \"%s, %s\" but rank %u on %s is \"%s, %s\": they must be equal",
                a->place.node, a->kind, a->net_version, i, b->place.node, b->kind, b->net_version);
            return false;
        }
    }
    return true;
}

static bool has_all_addresses(const struct attempt *attempt)
{
    for (uint32_t i = 0; i < attempt->n_ranks; i++) {
        if (!attempt->ranks[i].address) {
            return false;
        }
    }
    return true;
}

static void take_rejoin(struct rank *rank, struct peer *peer, uint32_t call, uint64_t step)
{
    rank->state = RANK_RUNNING;
    rank->has_started = true;
    rank->step = step;
    peer_ok(peer, call);
}

void on_join(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__Join *join = (const Gems__Join *)base;
    struct daemon *daemon = peer->daemon;
    struct job *job =
        join->ref ? jobs_find_attempt(daemon, join->ref->job, join->ref->attempt) : NULL;
    struct gems_error err;
    struct rank *rank;
    int status = join->ref ? check_join(job, join, &err)
                           : gems_error_set(&err, GEMS_E_INVALID, "join: no ref");

    if (status >= 0) {
        rank = &job->attempt->ranks[join->ref->rank];
        status = take_join(rank, join, &err);
    }
    if (status < 0) {
        log_warning("peer %s: join refused: %s", peer->address, err.text);
        peer_error(peer, call, &err);
        return;
    }
    attach(peer, job, join->ref->rank);
    jobs_changed(job);
    if (join->running && job->core.state == JOB_RUNNING) {
        take_rejoin(rank, peer, call, join->step);
        return;
    }
    rank->state = RANK_JOINED;
    rank->join_call = call;
    if (!has_all_addresses(job->attempt)) {
        return;
    }
    if (job->core.state == JOB_RUNNING) {
        launch_start(daemon, job);
    } else if (check_gang(daemon, job)) {
        flow_post(daemon, job, ON_START, "gemsd", "%u ranks joined", job->attempt->n_ranks);
    }
}

/* ---- RUNNING: Start ---- */

static int send_start(struct job *job, uint32_t i, struct gems_error *err)
{
    struct attempt *attempt = job->attempt;
    struct rank *rank = &attempt->ranks[i];
    Gems__Start start = GEMS__START__INIT;
    ProtobufCBinaryData *addresses = calloc(attempt->n_ranks, sizeof *addresses);
    char **names = calloc(attempt->n_ranks, sizeof *names);
    char *text = calloc(attempt->n_ranks, 160);
    int status = jobs_graph(job, err);

    if (status >= 0 && addresses && names && text) {
        start.spec = spec_to_proto(&job->spec);
        start.graph = graph_to_proto(&job->graph);
        start.plan = plan_to_proto(&attempt->plan, (int)i);
        for (uint32_t k = 0; k < attempt->n_ranks; k++) {
            addresses[k].data = attempt->ranks[k].address;
            addresses[k].len = attempt->ranks[k].n_address;
            names[k] = text + (size_t)k * 160;
            snprintf(names[k], 160, "%s/%s", attempt->ranks[k].place.node,
                     attempt->ranks[k].place.device);
        }
    }
    if (start.spec && start.graph && start.plan) {
        start.rank = i;
        start.n_addresses = start.n_rank_names = attempt->n_ranks;
        start.addresses = addresses;
        start.rank_names = names;
        start.has_restore = attempt->has_restore;
        start.restore_step = attempt->restore_step;
        peer_reply(rank->peer, rank->join_call, MSG_START, &start.base);
    } else if (status >= 0) {
        status = gems_error_set(err, GEMS_E_NOMEM, "start: no memory");
    }
    if (start.spec) {
        msg_free(&start.spec->base);
    }
    if (start.graph) {
        msg_free(&start.graph->base);
    }
    if (start.plan) {
        msg_free(&start.plan->base);
    }
    free(addresses);
    free(names);
    free(text);
    return status;
}

void launch_start(struct daemon *daemon, struct job *job)
{
    struct attempt *attempt = job->attempt;
    struct gems_error err;

    if (!attempt) {
        flow_fail(daemon, job, CLASS_INTERNAL, "gemsd", "its attempt is not stored");
        return;
    }
    if (!job->running_us) {
        job->running_us = daemon_now_us(daemon);
    }
    for (uint32_t i = 0; has_all_addresses(attempt) && i < attempt->n_ranks; i++) {
        struct rank *rank = &attempt->ranks[i];

        if (rank->state != RANK_JOINED || !rank->peer || !rank->join_call) {
            continue;
        }
        if (send_start(job, i, &err) < 0) {
            flow_fail(daemon, job, CLASS_INTERNAL, "gemsd", "%s", err.text);
            return;
        }
        rank->join_call = 0;
        rank->state = RANK_RUNNING;
        rank->has_started = true;
        rank->moved_us = daemon_now_us(daemon);
    }
}

/* ---- STOPPING and the ends ---- */

void launch_command(struct job *job, bool is_stop, bool is_checkpoint, const char *reason)
{
    Gems__Command command = GEMS__COMMAND__INIT;

    command.stop = is_stop;
    command.checkpoint = is_checkpoint;
    command.pause = is_stop && is_checkpoint;
    command.reason = (char *)reason;
    for (uint32_t i = 0; job->attempt && i < job->attempt->n_ranks; i++) {
        struct rank *rank = &job->attempt->ranks[i];

        if (rank->peer && rank->state == RANK_RUNNING) {
            peer_send(rank->peer, MSG_COMMAND, 0, 0, &command.base);
        }
    }
}

void launch_kill(struct daemon *daemon, struct job *job)
{
    struct attempt *attempt = job->attempt;

    attempt->killed_us = daemon_now_us(daemon);
    for (uint32_t i = 0; i < attempt->n_ranks; i++) {
        struct rank *rank = &attempt->ranks[i];
        struct cluster_node *node = nodes_find(daemon, rank->place.node);
        Gems__Kill kill = GEMS__KILL__INIT;
        Gems__RankRef ref = GEMS__RANK_REF__INIT;

        if (rank->state == RANK_GONE || rank->state == RANK_PLACED || !node || !node->peer) {
            continue;
        }
        ref.job = job->id;
        ref.attempt = attempt->number;
        ref.rank = i;
        kill.ref = &ref;
        kill.grace_ms = (uint32_t)daemon->settings->kill_ms;
        peer_send(node->peer, MSG_KILL, 0, 0, &kill.base);
    }
}

/* What ranks have asked gets its answer once the state is durable. */
static void answer_ranks(struct job *job)
{
    struct gems_error err;

    gems_error_set(&err, GEMS_E_STATE, "job %llu attempt %u is over", (unsigned long long)job->id,
                   job->attempt->number);
    for (uint32_t i = 0; i < job->attempt->n_ranks; i++) {
        struct rank *rank = &job->attempt->ranks[i];

        if (rank->peer && rank->end_call) {
            peer_ok(rank->peer, rank->end_call);
        }
        if (rank->peer && rank->join_call) {
            peer_error(rank->peer, rank->join_call, &err);
        }
        rank->end_call = rank->join_call = 0;
    }
}

/* Ranks that no agent was told about never existed. */
static void forget_placed(struct daemon *daemon, struct job *job)
{
    for (uint32_t i = 0; i < job->attempt->n_ranks; i++) {
        struct rank *rank = &job->attempt->ranks[i];

        if (rank->state == RANK_PLACED) {
            rank->state = RANK_GONE;
            nodes_release(daemon, job, &rank->place);
        }
    }
}

/* A gentle end leaves a checkpoint behind. */
static bool is_gentle(const struct job *job)
{
    return (job->core.ending == ENDING_PAUSE && job->core.failure == CLASS_NONE) ||
           job->core.ending == ENDING_MOVE || job->core.failure == CLASS_TIMEOUT;
}

static bool has_running_rank(const struct attempt *attempt)
{
    for (uint32_t i = 0; i < attempt->n_ranks; i++) {
        if (attempt->ranks[i].state == RANK_RUNNING) {
            return true;
        }
    }
    return false;
}

void launch_stop(struct daemon *daemon, struct job *job)
{
    struct attempt *attempt = job->attempt;

    if (!attempt) {
        flow_post(daemon, job, ON_GONE, "gemsd", NULL);
        return;
    }
    if (!attempt->stop_us) {
        attempt->stop_us = daemon_now_us(daemon);
    }
    answer_ranks(job);
    forget_placed(daemon, job);
    if (is_gentle(job) && has_running_rank(attempt)) {
        launch_command(job, true, true, job->core.reason);
    } else if (job->core.ending == ENDING_CANCEL && has_running_rank(attempt)) {
        launch_command(job, true, false, job->core.reason);
    } else {
        launch_kill(daemon, job);
    }
    launch_check(daemon, job);
}

void launch_end(struct daemon *daemon, struct job *job)
{
    if (!job->attempt->stop_us) {
        job->attempt->stop_us = daemon_now_us(daemon);
    }
    answer_ranks(job);
    forget_placed(daemon, job);
    launch_check(daemon, job);
}

void launch_rank_gone(struct daemon *daemon, struct job *job, uint32_t i)
{
    struct rank *rank = &job->attempt->ranks[i];

    if (rank->state == RANK_GONE) {
        return;
    }
    rank->state = RANK_GONE;
    if (rank->peer) {
        rank->peer->has_rank = false;
        peer_finish(rank->peer);
        rank->peer = NULL;
    }
    nodes_release(daemon, job, &rank->place);
    jobs_changed(job);
    launch_check(daemon, job);
}

void launch_check(struct daemon *daemon, struct job *job)
{
    struct attempt *attempt = job->attempt;
    bool is_good = attempt != NULL;

    for (uint32_t i = 0; attempt && i < attempt->n_ranks; i++) {
        is_good &= attempt->ranks[i].is_good;
    }
    if (job->core.state == JOB_STOPPING) {
        if (is_good) {
            flow_post(daemon, job, ON_FINISH, "gemsd", NULL);
        } else if (attempt && attempt_is_gone(attempt)) {
            flow_post(daemon, job, ON_GONE, "gemsd", NULL);
        }
    } else if (job->core.state == JOB_RUNNING && is_good) {
        flow_post(daemon, job, ON_FINISH, "gemsd", NULL);
    } else if (job_is_ended(job->core.state) && attempt && attempt_is_gone(attempt)) {
        status_keep_ranks(job);
        attempt_destroy(job);
        flow_forget(daemon, job);
    }
}

/* ---- nodes and connections ---- */

static bool is_listed(const Gems__Register *message, const struct job *job, uint32_t rank)
{
    for (size_t i = 0; i < message->n_running; i++) {
        const Gems__RankRef *ref = message->running[i];

        if (ref->job == job->id && ref->attempt == job->attempt->number && ref->rank == rank) {
            return true;
        }
    }
    return false;
}

static void rank_of_node_back(struct daemon *daemon, struct job *job, uint32_t i, bool is_running)
{
    struct rank *rank = &job->attempt->ranks[i];

    if (is_running) {
        rank->missing_us = 0;
        if (rank->state == RANK_PLACED) {
            rank->state = RANK_LAUNCHED;
        }
    } else if (rank->state == RANK_PLACED || rank->state == RANK_LAUNCHED) {
        /* Told before the agent went away, or never: nothing runs. */
        if (job->core.state == JOB_STARTING) {
            rank->state = RANK_PLACED;
            launch_rank(daemon, job, i);
        } else {
            rank->missing_us = daemon_now_us(daemon);
        }
    } else {
        /* Its exit may be on the way: wait a moment before it counts as lost. */
        rank->missing_us = daemon_now_us(daemon);
    }
}

void launch_node_back(struct daemon *daemon, struct cluster_node *node,
                      const Gems__Register *message)
{
    list_each(&daemon->jobs, link)
    {
        struct job *job = list_item(link, struct job, link);

        for (uint32_t i = 0;
             job->attempt && job->core.state != JOB_PLACING && i < job->attempt->n_ranks; i++) {
            if (job->attempt->ranks[i].state != RANK_GONE &&
                !strcmp(job->attempt->ranks[i].place.node, node->name)) {
                rank_of_node_back(daemon, job, i, is_listed(message, job, i));
            }
        }
        if (job->core.state == JOB_STOPPING && job->attempt) {
            launch_stop(daemon, job);
        }
    }
}

void launch_node_lost(struct daemon *daemon, struct cluster_node *node)
{
    list_each(&daemon->jobs, link)
    {
        struct job *job = list_item(link, struct job, link);
        uint64_t id = job->id;
        bool has_failed = false;

        for (uint32_t i = 0; jobs_find(daemon, id) && job->attempt && i < job->attempt->n_ranks;
             i++) {
            struct rank *rank = &job->attempt->ranks[i];

            if (rank->state == RANK_GONE || strcmp(rank->place.node, node->name) != 0) {
                continue;
            }
            if (!has_failed && !rank->is_good) {
                has_failed = true;
                flow_fail(daemon, job, CLASS_NODE_LOST, "gemsd", "node %s is lost", node->name);
            }
            launch_rank_gone(daemon, job, i);
        }
    }
}

struct job *launch_job_of(struct peer *peer, struct rank **ret_rank)
{
    struct job *job =
        peer->has_rank ? jobs_find_attempt(peer->daemon, peer->job, peer->attempt) : NULL;

    if (job) {
        *ret_rank = &job->attempt->ranks[peer->rank];
        (*ret_rank)->seen_us = daemon_now_us(peer->daemon);
    }
    return job;
}

void launch_peer_closed(struct peer *peer)
{
    struct job *job =
        peer->has_rank ? jobs_find_attempt(peer->daemon, peer->job, peer->attempt) : NULL;

    if (job && job->attempt->ranks[peer->rank].peer == peer) {
        struct rank *rank = &job->attempt->ranks[peer->rank];

        rank->peer = NULL;
        rank->join_call = rank->end_call = 0;
        rank->seen_us = daemon_now_us(peer->daemon);
    }
}
