/* SUBMIT and PLAN: a job is settled, looked at against the registered devices,
 * stored, and only then answered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bg.h"
#include "common/error.h"
#include "common/log.h"
#include "daemon/handlers.h"
#include "daemon/inquiry.h"
#include "proto/codec.h"

struct submit {
    struct daemon *daemon;
    uint64_t peer;
    uint32_t call;
    bool is_plan;
    struct store_job row;
    uint64_t id;
    bool is_new;
    int result;
    struct gems_error err;
};

static void submit_free(struct submit *submit)
{
    store_job_fini(&submit->row);
    free(submit);
}

static void answer_error(struct submit *submit, const struct gems_error *err)
{
    struct peer *peer = server_peer(submit->daemon->server, submit->peer);

    if (peer) {
        peer_error(peer, submit->call, err);
    }
    submit_free(submit);
}

/* ---- stored ---- */

static void store_work(void *arg)
{
    struct submit *submit = arg;

    submit->result = store_submit(submit->daemon->store, &submit->row, &submit->id, &submit->is_new,
                                  &submit->err);
}

static void store_done(void *arg, bool is_run)
{
    struct submit *submit = arg;
    struct daemon *daemon = submit->daemon;
    struct peer *peer = server_peer(daemon->server, submit->peer);
    Gems__SubmitReply reply = GEMS__SUBMIT_REPLY__INIT;

    if (!is_run || daemon->is_closing) {
        submit_free(submit);
        return;
    }
    if (submit->result < 0) {
        answer_error(submit, &submit->err);
        return;
    }
    if (submit->is_new) {
        submit->row.id = submit->id;
        if (!jobs_add(daemon, &submit->row, &submit->err)) {
            log_error("job %llu: stored, but runs only after a restart of gemsd: %s",
                      (unsigned long long)submit->id, submit->err.text);
        }
        log_info("job %llu \"%s\" submitted by %s", (unsigned long long)submit->id,
                 submit->row.name, submit->row.user);
        daemon->is_placing = true;
    }
    if (peer) {
        reply.job = submit->id;
        peer_reply(peer, submit->call, MSG_SUBMIT_REPLY, &reply.base);
    }
    submit_free(submit);
}

static void store_job_row(struct submit *submit, const struct job_spec *spec)
{
    Gems__JobSpec *message = spec_to_proto(spec);
    struct store_job *row = &submit->row;
    int status = message ? proto_pack(&message->base, &row->spec.data, &row->spec.n, &submit->err)
                         : gems_error_set(&submit->err, GEMS_E_NOMEM, "submit: no memory");

    if (message) {
        msg_free(&message->base);
    }
    snprintf(row->name, sizeof row->name, "%s", spec->name);
    job_core_init(&row->core);
    row->submitted_us = daemon_wall_us(submit->daemon);
    if (status >= 0) {
        status = bg_submit(submit->daemon->store_bg, store_work, store_done, submit, &submit->err);
    }
    if (status < 0) {
        answer_error(submit, &submit->err);
    }
}

/* ---- looked at ---- */

/* Refused now: what is wrong with the job itself. What may change (no node, a
 * busy agent, data that is not there yet) is no reason to refuse. */
static bool is_refused(struct inquiry *inquiry)
{
    struct gems_error *err = &inquiry->err;
    bool is_wrong = inquiry->status == GEMS_E_INVALID || inquiry->status == GEMS_E_UNSUPPORTED ||
                    inquiry->status == GEMS_E_DENIED;

    if (inquiry->part == INQUIRY_DONE && !inquiry->plan.fits) {
        gems_error_set(err, GEMS_E_NOFIT, "does not fit the %u devices at hand: %.300s",
                       inquiry->set.n, inquiry->plan.advice);
        gems_error_hint(err, "gems-client plan shows the bytes of every device");
        return true;
    }
    return inquiry->part == INQUIRY_SETTLE ? inquiry->status < 0 : is_wrong;
}

static void answer_plan(struct submit *submit, struct inquiry *inquiry)
{
    struct peer *peer = server_peer(submit->daemon->server, submit->peer);
    Gems__PlanReply reply = GEMS__PLAN_REPLY__INIT;

    if (inquiry->status < 0) {
        answer_error(submit, &inquiry->err);
        return;
    }
    reply.plan = plan_to_proto(&inquiry->plan, -1);
    if (peer && reply.plan) {
        peer_reply(peer, submit->call, MSG_PLAN_REPLY, &reply.base);
    }
    if (reply.plan) {
        msg_free(&reply.plan->base);
    }
    submit_free(submit);
}

static void looked(struct inquiry *inquiry)
{
    struct submit *submit = inquiry->arg;

    if (submit->daemon->is_closing) {
        submit_free(submit);
    } else if (submit->is_plan) {
        answer_plan(submit, inquiry);
    } else if (is_refused(inquiry)) {
        answer_error(submit, &inquiry->err);
    } else {
        store_job_row(submit, &inquiry->spec);
    }
    inquiry_free(inquiry);
}

/* ---- asked ---- */

static int check_submit(struct peer *peer, const Gems__JobSpec *message, const char *key,
                        struct job_spec *ret_spec, struct gems_error *err)
{
    if (peer->is_viewer) {
        return gems_error_set(err, GEMS_E_DENIED, "%s may look, not submit", peer->user);
    }
    if (!message) {
        return gems_error_set(err, GEMS_E_INVALID, "submit: no job");
    }
    if (strlen(key) >= STORE_KEY_BYTES) {
        return gems_error_set(err, GEMS_E_INVALID, "submit: the key is longer than %d bytes",
                              STORE_KEY_BYTES - 1);
    }
    if (jobs_count(peer->daemon) >= peer->daemon->settings->max_jobs) {
        return gems_error_set(err, GEMS_E_STATE, "submit: %zu jobs wait or run already",
                              jobs_count(peer->daemon));
    }
    return spec_from_proto(message, ret_spec, err);
}

static void ask(struct peer *peer, uint32_t call, const Gems__JobSpec *message, const char *key,
                bool is_plan)
{
    struct submit *submit = calloc(1, sizeof *submit);
    struct job_spec spec;
    struct gems_error err;

    if (!submit) {
        gems_error_set(&err, GEMS_E_NOMEM, "submit: no memory");
        peer_error(peer, call, &err);
        return;
    }
    submit->daemon = peer->daemon;
    submit->peer = peer->id;
    submit->call = call;
    submit->is_plan = is_plan;
    snprintf(submit->row.user, sizeof submit->row.user, "%s", peer->user);
    snprintf(submit->row.key, sizeof submit->row.key, "%s", key);
    if (check_submit(peer, message, key, &spec, &err) < 0 ||
        !inquiry_start(peer->daemon, &spec, peer->user, NULL, looked, submit, &err)) {
        peer_error(peer, call, &err);
        submit_free(submit);
    }
}

void on_submit(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__SubmitRequest *message = (const Gems__SubmitRequest *)base;

    ask(peer, call, message->spec, message->key, false);
}

void on_plan(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    ask(peer, call, ((const Gems__PlanRequest *)base)->spec, "", true);
}
