/* `checkpoints JOB [--verify]`: the catalogue, if asked for after every file
 * has been read again. */
#include <stdlib.h>
#include <string.h>

#include "common/bg.h"
#include "common/error.h"
#include "daemon/checkpoint_file.h"
#include "daemon/checkpoints.h"
#include "daemon/handlers.h"
#include "daemon/status.h"

struct audit {
    struct daemon *daemon;
    uint64_t peer, job;
    uint32_t call;
    struct store_checkpoint *rows; /* owned */
    size_t n;
    char **damage; /* owned texts */
    int result;
    struct gems_error err;
};

static void audit_free(struct audit *audit)
{
    for (size_t i = 0; audit->damage && i < audit->n; i++) {
        free(audit->damage[i]);
    }
    free(audit->damage);
    free(audit->rows);
    free(audit);
}

static void audit_fail(struct audit *audit)
{
    struct peer *peer = server_peer(audit->daemon->server, audit->peer);

    if (peer) {
        peer_error(peer, audit->call, &audit->err);
    }
    audit_free(audit);
}

static void note_work(void *arg)
{
    struct audit *audit = arg;

    for (size_t i = 0; audit->result >= 0 && i < audit->n; i++) {
        audit->result = store_checkpoint_trust(
            audit->daemon->store, audit->job, audit->rows[i].step,
            audit->damage[i] ? CHECKPOINT_DAMAGED : CHECKPOINT_VERIFIED, &audit->err);
    }
}

static void note_done(void *arg, bool is_run)
{
    struct audit *audit = arg;
    struct peer *peer = is_run ? server_peer(audit->daemon->server, audit->peer) : NULL;
    struct job *job = is_run ? jobs_find(audit->daemon, audit->job) : NULL;

    for (size_t i = 0; job && i < audit->n; i++) {
        checkpoints_verdict(audit->daemon, job, audit->rows[i].step, audit->damage[i]);
    }
    if (peer && audit->result < 0) {
        peer_error(peer, audit->call, &audit->err);
    } else if (peer) {
        status_checkpoints(peer, audit->call, audit->job);
    }
    audit_free(audit);
}

static void read_work(void *arg)
{
    struct audit *audit = arg;
    char dir[900], path[1024];
    struct gems_error err;

    checkpoints_dir(audit->daemon, audit->job, dir, sizeof dir);
    for (size_t i = 0; i < audit->n; i++) {
        checkpoint_path(dir, audit->rows[i].step, path, sizeof path);
        if (checkpoint_verify(path, &err) < 0) {
            audit->damage[i] = strdup(err.text);
        }
    }
}

static void read_done(void *arg, bool is_run)
{
    struct audit *audit = arg;

    if (!is_run || audit->daemon->is_closing) {
        audit_free(audit);
    } else if (bg_submit(audit->daemon->store_bg, note_work, note_done, audit, &audit->err) < 0) {
        audit_fail(audit);
    }
}

static void rows_work(void *arg)
{
    struct audit *audit = arg;
    struct store_job job;

    audit->result = store_job(audit->daemon->store, audit->job, &job, &audit->err);
    if (audit->result < 0) {
        return;
    }
    store_job_fini(&job);
    audit->result =
        store_checkpoints(audit->daemon->store, audit->job, &audit->rows, &audit->n, &audit->err);
    audit->damage = calloc(audit->n + 1, sizeof *audit->damage);
    if (audit->result >= 0 && !audit->damage) {
        audit->n = 0;
        audit->result = gems_error_set(&audit->err, GEMS_E_NOMEM, "checkpoints: no memory");
    }
}

static void rows_done(void *arg, bool is_run)
{
    struct audit *audit = arg;

    if (!is_run || audit->daemon->is_closing) {
        audit_free(audit);
    } else if (audit->result < 0 ||
               bg_submit(audit->daemon->read_bg, read_work, read_done, audit, &audit->err) < 0) {
        audit_fail(audit);
    }
}

void on_checkpoints(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__CheckpointsRequest *message = (const Gems__CheckpointsRequest *)base;
    struct gems_error err;
    struct audit *audit;

    if (!message->verify) {
        status_checkpoints(peer, call, message->job);
        return;
    }
    audit = calloc(1, sizeof *audit);
    if (!audit) {
        gems_error_set(&err, GEMS_E_NOMEM, "checkpoints: no memory");
        peer_error(peer, call, &err);
        return;
    }
    audit->daemon = peer->daemon;
    audit->peer = peer->id;
    audit->call = call;
    audit->job = message->job;
    if (bg_submit(peer->daemon->store_bg, rows_work, rows_done, audit, &audit->err) < 0) {
        audit_fail(audit);
    }
}
