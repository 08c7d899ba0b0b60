/* Checkpoints on their way: pieces from ranks to a file, its row, the ack. */
#include "daemon/checkpoints.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bg.h"
#include "common/error.h"
#include "common/fsutil.h"
#include "common/log.h"
#include "daemon/checkpoint_file.h"
#include "daemon/flow.h"
#include "daemon/handlers.h"
#include "daemon/launch.h"
#include "proto/codec.h"

enum { MAX_SESSIONS = 4 };

/* A rank may be a step ahead of another, so there can be several. */
struct session {
    struct list link; /* of the attempt, by step */
    struct daemon *daemon;
    uint64_t job;
    uint32_t attempt, n_ranks;
    struct checkpoint_meta meta; /* fixed; without its end */
    struct checkpoint_end end;   /* told by the ranks, the writer thread's once committing */
    struct bytes spec;
    bool is_committing, is_failed, is_over;
    bool is_cataloguing;       /* the store thread has it */
    bool *has_ended, *is_held; /* owned, by rank */
    uint32_t *n_tensors;       /* owned, by rank */
    uint64_t queue_bytes;      /* on their way to the writer */
    int64_t begun_us;
    /* The writer thread's. */
    struct checkpoint_writer *writer;
    char dir[900];
    uint64_t reserve_bytes;
    _Atomic int result; /* first failure; written behind err, so the loop may read both */
    struct gems_error err;
    struct checkpoint_result file;
    struct store_checkpoint row;
};

static void session_free(struct session *session)
{
    checkpoint_writer_destroy(session->writer);
    free(session->spec.data);
    free(session->has_ended);
    free(session->is_held);
    free(session->n_tensors);
    free(session);
}

static void release_work(void *arg)
{
    struct session *session = arg;

    checkpoint_writer_destroy(session->writer);
    session->writer = NULL;
}

static void release_done(void *arg, bool is_run)
{
    (void)is_run;
    session_free(arg);
}

/* Behind its last piece in the writer's queue; nothing refers to it after that. */
static void release(struct session *session)
{
    struct gems_error err;

    if (bg_submit(session->daemon->write_bg, release_work, release_done, session, &err) < 0) {
        log_error("checkpoint of job %llu: %s", (unsigned long long)session->job, err.text);
    }
}

static void session_destroy(struct session *session)
{
    list_remove(&session->link);
    list_init(&session->link);
    session->is_over = true;
    if (!session->is_cataloguing) {
        release(session);
    }
}

void checkpoints_abandon(struct attempt *attempt)
{
    list_each(&attempt->sessions, link)
    {
        session_destroy(list_item(link, struct session, link));
    }
}

/* The job, if this session is still the one it receives. */
static struct job *job_of_session(struct session *session)
{
    struct job *job = jobs_find_attempt(session->daemon, session->job, session->attempt);

    return session->is_over ? NULL : job;
}

static void resume_ranks(struct job *job, struct session *session)
{
    for (uint32_t i = 0; i < session->n_ranks; i++) {
        struct peer *peer = job->attempt->ranks[i].peer;

        if (session->is_held[i] && peer && peer->conn) {
            rpc_set_reading(peer->conn, true);
        }
        session->is_held[i] = false;
    }
}

/* The checkpoint is lost; what that means for the job, its class says. */
static void session_failed(struct job *job, struct session *session, const struct gems_error *err)
{
    struct daemon *daemon = session->daemon;
    enum failure_class failure = err->status == GEMS_E_DISKFULL ? CLASS_DISK_FULL : CLASS_INTERNAL;

    log_error("job %llu: checkpoint of step %llu failed: %s", (unsigned long long)job->id,
              (unsigned long long)session->meta.step, err->text);
    session->is_failed = true;
    resume_ranks(job, session);
    job->attempt->failed_step = session->meta.step;
    flow_fail(daemon, job, failure, "gemsd", "checkpoint of step %llu: %s",
              (unsigned long long)session->meta.step, err->text);
    session_destroy(session);
}

static void create_work(void *arg)
{
    struct session *session = arg;
    uint64_t free_bytes = 0;

    session->result = fs_mkdirs(session->dir, 0750, &session->err);
    if (session->result >= 0) {
        session->result = fs_free_bytes(session->dir, &free_bytes, &session->err);
    }
    if (session->result >= 0 && free_bytes < session->reserve_bytes) {
        session->result = gems_error_set(&session->err, GEMS_E_DISKFULL,
                                         "%s: only %llu MiB are free, %llu are kept", session->dir,
                                         (unsigned long long)free_bytes >> 20,
                                         (unsigned long long)session->reserve_bytes >> 20);
    }
    if (session->result >= 0) {
        session->result =
            checkpoint_writer_create(session->dir, &session->meta, session->spec.data,
                                     session->spec.n, &session->writer, &session->err);
    }
}

static void create_done(void *arg, bool is_run)
{
    struct session *session = arg;
    struct job *job = is_run ? job_of_session(session) : NULL;

    if (job && session->result < 0 && !session->is_failed) {
        session_failed(job, session, &session->err);
    }
}

static struct session *session_create(struct daemon *daemon, struct job *job, uint64_t step)
{
    struct session *session = calloc(1, sizeof *session);
    uint32_t n = job->attempt->n_ranks;
    Gems__JobSpec *spec;
    struct gems_error err;

    if (!session) {
        return NULL;
    }
    session->daemon = daemon;
    session->job = job->id;
    session->attempt = job->attempt->number;
    list_init(&session->link);
    session->n_ranks = n;
    session->begun_us = daemon_now_us(daemon);
    session->reserve_bytes = daemon->settings->reserve_bytes;
    session->meta.job = job->id;
    session->meta.step = step;
    session->meta.seed = job->spec.train.seed;
    session->meta.attempt = job->attempt->number;
    session->meta.when_us = daemon_wall_us(daemon);
    checkpoints_dir(daemon, job->id, session->dir, sizeof session->dir);
    session->has_ended = calloc(n, sizeof *session->has_ended);
    session->is_held = calloc(n, sizeof *session->is_held);
    session->n_tensors = calloc(n, sizeof *session->n_tensors);
    spec = spec_to_proto(&job->spec);
    if (!session->has_ended || !session->is_held || !session->n_tensors || !spec ||
        proto_pack(&spec->base, &session->spec.data, &session->spec.n, &err) < 0 ||
        bg_submit(daemon->write_bg, create_work, create_done, session, &err) < 0) {
        session_free(session);
        session = NULL;
    }
    if (spec) {
        msg_free(&spec->base);
    }
    return session;
}

/* Sessions up to a step are over: it is durable, or there are too many. */
static void drop_until(struct job *job, uint64_t step)
{
    list_each(&job->attempt->sessions, link)
    {
        struct session *session = list_item(link, struct session, link);

        if (session->meta.step > step) {
            return;
        }
        if (!session->is_committing) {
            log_warning("job %llu: checkpoint of step %llu stayed incomplete",
                        (unsigned long long)job->id, (unsigned long long)session->meta.step);
        }
        resume_ranks(job, session);
        session_destroy(session);
    }
}

static struct session *add_session(struct daemon *daemon, struct job *job, uint64_t step)
{
    struct attempt *attempt = job->attempt;
    struct session *session;

    if (list_count(&attempt->sessions) == MAX_SESSIONS) {
        drop_until(job, list_item(list_first(&attempt->sessions), struct session, link)->meta.step);
    }
    session = session_create(daemon, job, step);
    if (!session) {
        flow_fail(daemon, job, CLASS_INTERNAL, "gemsd", "checkpoint of step %llu: no memory",
                  (unsigned long long)step);
        return NULL;
    }
    list_each(&attempt->sessions, link)
    {
        if (list_item(link, struct session, link)->meta.step > step) {
            list_insert_before(link, &session->link);
            return session;
        }
    }
    list_push(&attempt->sessions, &session->link);
    return session;
}

/* The session for a rank's message; NULL: nothing to do with it. */
static struct session *find_session(struct daemon *daemon, struct job *job, uint64_t step)
{
    if ((job->core.state != JOB_RUNNING && job->core.state != JOB_STOPPING) ||
        job->attempt->failed_step >= step) {
        return NULL;
    }
    if (job->n_checkpoints > 0 && job->checkpoints[0].step > step &&
        job->checkpoints[0].attempt == job->attempt->number) {
        return NULL; /* a newer one is durable already */
    }
    list_each(&job->attempt->sessions, link)
    {
        struct session *session = list_item(link, struct session, link);

        if (session->meta.step == step) {
            return session;
        }
    }
    return add_session(daemon, job, step);
}

/* ---- Shard ---- */

struct piece {
    struct session *session;
    struct checkpoint_shard shard;
    size_t n;
    char name[CHECKPOINT_NAME_BYTES], kind[CHECKPOINT_KIND_BYTES];
    uint8_t data[];
};

static void piece_work(void *arg)
{
    struct piece *piece = arg;
    struct session *session = piece->session;

    if (session->result >= 0) {
        session->result = checkpoint_writer_add(session->writer, &piece->shard, &session->err);
    }
}

static void piece_done(void *arg, bool is_run)
{
    struct piece *piece = arg;
    struct session *session = piece->session;
    struct job *job;

    if (is_run) {
        session->queue_bytes -= piece->n;
        job = job_of_session(session);
        if (job && session->queue_bytes < session->daemon->settings->checkpoint_queue_bytes / 2) {
            resume_ranks(job, session);
        }
        if (job && session->result < 0 && !session->is_failed) {
            session_failed(job, session, &session->err);
        }
    }
    free(piece);
}

static struct piece *copy_shard(struct session *session, const Gems__Shard *message,
                                struct gems_error *err)
{
    struct piece *piece;

    if (message->n_dims > CHECKPOINT_MAX_DIMS || message->hash.len != HASH_BYTES ||
        strlen(message->name) >= CHECKPOINT_NAME_BYTES ||
        strlen(message->kind) >= CHECKPOINT_KIND_BYTES) {
        gems_error_set(err, GEMS_E_INVALID, "shard of %.80s: bad dimensions, hash or name",
                       message->name);
        return NULL;
    }
    piece = calloc(1, sizeof *piece + message->data.len);
    if (!piece) {
        gems_error_set(err, GEMS_E_NOMEM, "shard: no memory");
        return NULL;
    }
    piece->session = session;
    piece->n = message->data.len;
    if (piece->n > 0) {
        memcpy(piece->data, message->data.data, piece->n);
    }
    snprintf(piece->name, sizeof piece->name, "%s", message->name);
    snprintf(piece->kind, sizeof piece->kind, "%s", message->kind);
    piece->shard.name = piece->name;
    piece->shard.kind = piece->kind;
    piece->shard.order = message->order;
    piece->shard.n_dims = (uint32_t)message->n_dims;
    for (size_t i = 0; i < message->n_dims; i++) {
        piece->shard.dims[i] = message->dims[i];
    }
    piece->shard.offset = message->offset;
    piece->shard.total = message->total;
    piece->shard.data = piece->data;
    piece->shard.n = piece->n;
    memcpy(piece->shard.hash, message->hash.data, HASH_BYTES);
    return piece;
}

void on_shard(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__Shard *message = (const Gems__Shard *)base;
    struct daemon *daemon = peer->daemon;
    struct rank *rank;
    struct job *job = launch_job_of(peer, &rank);
    struct session *session;
    struct gems_error err;
    struct piece *piece;

    (void)call;
    if (!job || checkpoints_row(job, message->step)) {
        return; /* over, or sent again although it is durable */
    }
    session = find_session(daemon, job, message->step);
    if (!session || session->is_committing || session->is_failed) {
        return;
    }
    rank->moved_us = rank->seen_us;
    piece = copy_shard(session, message, &err);
    if (!piece || bg_submit(daemon->write_bg, piece_work, piece_done, piece, &err) < 0) {
        free(piece);
        session_failed(job, session, &err);
        return;
    }
    session->has_ended[peer->rank] = false;
    session->queue_bytes += piece->n;
    if (session->queue_bytes > daemon->settings->checkpoint_queue_bytes) {
        session->is_held[peer->rank] = true;
        rpc_set_reading(peer->conn, false);
    }
}

bool checkpoints_is_holding(struct job *job, uint32_t rank)
{
    list_each(&job->attempt->sessions, link)
    {
        if (list_item(link, struct session, link)->is_held[rank]) {
            return true;
        }
    }
    return false;
}

/* ---- ShardEnd, commit, catalogue, ack ---- */

static void send_ack(struct peer *peer, uint64_t step)
{
    Gems__ShardAck ack = GEMS__SHARD_ACK__INIT;

    ack.step = step;
    peer_send(peer, MSG_SHARD_ACK, 0, 0, &ack.base);
}

static void catalogued(void *arg, bool is_run)
{
    struct session *session = arg;
    struct job *job = is_run ? job_of_session(session) : NULL;
    const struct store_checkpoint *row = &session->row;

    session->is_cataloguing = false;
    if (session->is_over) {
        release(session);
    }
    if (!job) {
        return;
    }
    if (session->result < 0) {
        session_failed(job, session, &session->err);
        return;
    }
    checkpoints_add(session->daemon, job, row);
    snprintf(job->weights_hash, sizeof job->weights_hash, "%s",
             row->is_final ? row->weights_hash : "");
    job->progress.checkpoint_seconds =
        (double)(daemon_now_us(session->daemon) - session->begun_us) / 1e6;
    log_info("job %llu: checkpoint of step %llu, %llu MiB, weights %s", (unsigned long long)job->id,
             (unsigned long long)row->step, (unsigned long long)row->bytes >> 20,
             row->weights_hash);
    for (uint32_t i = 0; i < job->attempt->n_ranks; i++) {
        struct rank *rank = &job->attempt->ranks[i];

        rank->moved_us = daemon_now_us(session->daemon);
        if (rank->peer) {
            send_ack(rank->peer, row->step);
        }
    }
    jobs_changed(job);
    drop_until(job, row->step);
}

static void catalogue_work(void *arg)
{
    struct session *session = arg;

    session->result = store_checkpoint_put(session->daemon->store, &session->row, &session->err);
}

static void commit_work(void *arg)
{
    struct session *session = arg;

    if (session->result >= 0) {
        session->result = checkpoint_writer_commit(session->writer, &session->end, &session->file,
                                                   &session->err);
    }
}

static void commit_done(void *arg, bool is_run)
{
    struct session *session = arg;
    struct job *job = is_run ? job_of_session(session) : NULL;
    struct store_checkpoint *row = &session->row;

    if (!job || session->is_failed) {
        return;
    }
    if (session->result >= 0) {
        row->job = session->job;
        row->attempt = session->attempt;
        row->step = session->meta.step;
        row->epoch = session->end.epoch;
        row->samples = session->end.samples;
        row->is_final = session->end.is_final;
        row->when_us = session->meta.when_us;
        row->bytes = session->file.bytes;
        row->trust = CHECKPOINT_WRITTEN;
        row->eval_accuracy =
            job->progress.eval_step == row->step ? job->progress.eval_accuracy : NAN;
        memcpy(row->weights_hash, session->file.weights_hash, sizeof row->weights_hash);
        session->result = bg_submit(session->daemon->store_bg, catalogue_work, catalogued, session,
                                    &session->err);
        session->is_cataloguing = session->result >= 0;
    }
    if (session->result < 0) {
        session_failed(job, session, &session->err);
    }
}

void on_shard_end(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__ShardEnd *message = (const Gems__ShardEnd *)base;
    struct daemon *daemon = peer->daemon;
    struct rank *rank;
    struct job *job = launch_job_of(peer, &rank);
    struct session *session;

    (void)call;
    if (!job) {
        return;
    }
    if (checkpoints_row(job, message->step)) {
        send_ack(peer, message->step);
        return;
    }
    session = find_session(daemon, job, message->step);
    if (!session || session->is_committing || session->is_failed) {
        return;
    }
    session->has_ended[peer->rank] = true;
    session->n_tensors[peer->rank] = message->tensors;
    session->end.epoch = message->epoch;
    session->end.samples = message->samples;
    session->end.is_final = message->final;
    for (uint32_t i = 0; i < session->n_ranks; i++) {
        if (!session->has_ended[i]) {
            return;
        }
    }
    for (uint32_t i = 0; i < session->n_ranks; i++) {
        session->end.n_tensors += session->n_tensors[i];
    }
    session->is_committing = true;
    if (bg_submit(daemon->write_bg, commit_work, commit_done, session, &session->err) < 0) {
        session_failed(job, session, &session->err);
    }
}
