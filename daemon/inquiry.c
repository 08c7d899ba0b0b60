#include "daemon/inquiry.h"

#include <stdlib.h>
#include <string.h>

#include "common/bg.h"
#include "common/error.h"
#include "daemon/identity.h"
#include "daemon/nodes.h"
#include "daemon/server.h"
#include "proto/codec.h"

void inquiry_free(struct inquiry *inquiry)
{
    graph_fini(&inquiry->graph);
    device_set_fini(&inquiry->set);
    fact_set_fini(&inquiry->facts);
    plan_fini(&inquiry->plan);
    free(inquiry);
}

static void finish(struct inquiry *inquiry, int status)
{
    inquiry->status = status;
    inquiry->done(inquiry);
}

static void finish_closing(struct inquiry *inquiry)
{
    finish(inquiry, gems_error_set(&inquiry->err, GEMS_E_CANCELLED, "gemsd stops"));
}

/* ---- plan ---- */

/* Device counts worth a look: the largest, and powers of two below it. */
static void plan_work(void *arg)
{
    struct inquiry *inquiry = arg;
    uint32_t hi = inquiry->hi < inquiry->set.n ? inquiry->hi : inquiry->set.n;
    bool has = false;

    inquiry->status = GEMS_E_INVALID;
    for (uint32_t n = hi, next; n >= inquiry->lo && n > 0; n = next) {
        struct plan plan = { 0 };
        int status = planner_plan(&inquiry->graph, &inquiry->spec, &inquiry->facts,
                                  inquiry->set.devices, n, &plan, &inquiry->err);

        for (next = 1; 2 * next < n; next *= 2) {
        }
        next = n == 1 ? 0 : next < inquiry->lo && n > inquiry->lo ? inquiry->lo : next;
        if (status < 0) {
            continue;
        }
        if (!has || (plan.fits && (!inquiry->plan.fits ||
                                   plan.samples_per_second > inquiry->plan.samples_per_second))) {
            plan_fini(&inquiry->plan);
            inquiry->plan = plan;
            has = true;
        } else {
            plan_fini(&plan);
        }
    }
    inquiry->status = has ? GEMS_OK : inquiry->err.status;
}

static void plan_done(void *arg, bool is_run)
{
    struct inquiry *inquiry = arg;

    if (!is_run || inquiry->daemon->is_closing) {
        finish_closing(inquiry);
        return;
    }
    if (inquiry->status >= 0) {
        inquiry->part = INQUIRY_DONE;
    }
    finish(inquiry, inquiry->status);
}

/* ---- inspect ---- */

static int take_facts(struct inquiry *inquiry, const Gems__InspectReply *reply)
{
    if (reply->error && reply->error->status < 0) {
        bool is_known = reply->error->status >= GEMS_E_INTERNAL;

        gems_error_set(&inquiry->err,
                       is_known ? (enum gems_status)reply->error->status : GEMS_E_INTERNAL, "%s",
                       reply->error->text);
        gems_error_hint(&inquiry->err, "%s", reply->error->hint);
        return inquiry->err.status;
    }
    if (!reply->facts) {
        return gems_error_set(&inquiry->err, GEMS_E_INTERNAL,
                              "gems-inspect answered without facts");
    }
    return facts_from_proto(reply->facts, &inquiry->facts, &inquiry->err);
}

static void inspect_answered(void *arg, const ProtobufCMessage *answer,
                             const struct gems_error *err)
{
    struct inquiry *inquiry = arg;
    int status;

    if (inquiry->daemon->is_closing) {
        finish_closing(inquiry);
        return;
    }
    if (!answer) {
        inquiry->err = *err;
        finish(inquiry, err->status);
        return;
    }
    status = take_facts(inquiry, (const Gems__InspectReply *)answer);
    if (status < 0) {
        finish(inquiry, status);
        return;
    }
    inquiry->part = INQUIRY_PLAN;
    status = bg_submit(inquiry->daemon->plan_bg, plan_work, plan_done, inquiry, &inquiry->err);
    if (status < 0) {
        finish(inquiry, status);
    }
}

static void ask_node(struct inquiry *inquiry)
{
    struct daemon *daemon = inquiry->daemon;
    const struct store_rank *rank = &inquiry->set.ranks[0];
    struct cluster_node *node = nodes_find(daemon, rank->node);
    Gems__InspectRequest request = GEMS__INSPECT_REQUEST__INIT;
    int status;

    inquiry->part = INQUIRY_INSPECT;
    if (!node || !node->peer) {
        finish(inquiry,
               gems_error_set(&inquiry->err, GEMS_E_PEER, "node %s is not there", rank->node));
        return;
    }
    request.spec = spec_to_proto(&inquiry->spec);
    if (!request.spec) {
        finish(inquiry, gems_error_set(&inquiry->err, GEMS_E_NOMEM, "inspect: no memory"));
        return;
    }
    request.backend = (char *)rank->backend;
    request.threads = rank->threads;
    request.data = true;
    request.has_uid = inquiry->has_uid;
    request.uid = inquiry->uid;
    status = peer_call(node->peer, MSG_INSPECT, &request.base, daemon->settings->inspect_ms,
                       inspect_answered, inquiry, &inquiry->err);
    msg_free(&request.spec->base);
    if (status < 0) {
        finish(inquiry, status);
    }
}

/* ---- settle ---- */

static void settle_work(void *arg)
{
    struct inquiry *inquiry = arg;

    inquiry->status = spec_graph(&inquiry->spec, &inquiry->graph, &inquiry->err);
    if (inquiry->status >= 0) {
        inquiry->status = planner_settle(&inquiry->graph, &inquiry->spec, &inquiry->err);
    }
}

static void settle_done(void *arg, bool is_run)
{
    struct inquiry *inquiry = arg;
    uint32_t most;

    if (!is_run || inquiry->daemon->is_closing) {
        finish_closing(inquiry);
        return;
    }
    if (inquiry->status < 0) {
        finish(inquiry, inquiry->status);
        return;
    }
    inquiry->part = INQUIRY_DEVICES;
    devices_wanted(&inquiry->spec, &inquiry->lo, &inquiry->hi);
    if (inquiry->set.n == 0 && !devices_pick(inquiry->daemon, &inquiry->spec, inquiry->lo,
                                             inquiry->hi, false, &inquiry->set, &most)) {
        finish(inquiry, gems_error_set(&inquiry->err, GEMS_E_NOFIT,
                                       "needs %u devices, %u are registered", inquiry->lo, most));
        return;
    }
    ask_node(inquiry);
}

struct inquiry *inquiry_start(struct daemon *daemon, const struct job_spec *spec, const char *user,
                              struct device_set *set, inquiry_fn *done, void *arg,
                              struct gems_error *err)
{
    struct inquiry *inquiry = calloc(1, sizeof *inquiry);

    if (!inquiry) {
        gems_error_set(err, GEMS_E_NOMEM, "plan: no memory");
        return NULL;
    }
    inquiry->daemon = daemon;
    inquiry->spec = *spec;
    inquiry->has_uid = identity_uid(user, &inquiry->uid);
    inquiry->done = done;
    inquiry->arg = arg;
    if (bg_submit(daemon->plan_bg, settle_work, settle_done, inquiry, err) < 0) {
        free(inquiry);
        return NULL;
    }
    if (set) {
        inquiry->set = *set;
        memset(set, 0, sizeof *set);
    }
    return inquiry;
}
