#include <stdio.h>

#include "client/args.h"
#include "client/call.h"
#include "client/view.h"
#include "common/error.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

const struct command cmd_status = {
    .name = "status",
    .synopsis = "[JOB]",
    .summary = "show a job, its ranks and its checkpoints",
    .details = "Without JOB: the jobs that are not over, and the nodes.\n",
    .max_operands = 1,
    .run = run,
};

static int show_job(const struct client *client, const struct args *args, struct gems_error *err)
{
    Gems__JobRequest request = GEMS__JOB_REQUEST__INIT;
    ProtobufCMessage *message;
    const Gems__StatusReply *reply;
    int status = args_job(args, 0, &request.job, err);

    if (status == 0) {
        status = call_once(client, MSG_STATUS, &request.base, MSG_STATUS_REPLY, CALL_TIMEOUT_MS,
                           &message, err);
    }
    if (status < 0) {
        return status;
    }
    reply = (const Gems__StatusReply *)message;
    if (!reply->job) {
        status = gems_error_set(err, GEMS_E_PEER, "gemsd: a status without a job");
    } else if (client->is_json) {
        output_json(view_status_json(reply));
    } else {
        view_status(reply);
    }
    msg_free(message);
    return status;
}

static int show_all(const struct client *client, struct gems_error *err)
{
    static char *living[] = { "QUEUED", "PLACING", "STARTING", "RUNNING", "PAUSED", "STOPPING" };
    Gems__ListRequest list = GEMS__LIST_REQUEST__INIT;
    Gems__Ok empty = GEMS__OK__INIT;
    ProtobufCMessage *jobs = NULL, *nodes = NULL;
    struct call *call;
    int status = call_open(client, &call, err);

    if (status < 0) {
        return status;
    }
    list.n_states = sizeof living / sizeof living[0];
    list.states = living;
    status = call_ask(call, MSG_LIST, &list.base, MSG_LIST_REPLY, CALL_TIMEOUT_MS, &jobs, err);
    if (status == 0) {
        status =
            call_ask(call, MSG_NODES, &empty.base, MSG_NODES_REPLY, CALL_TIMEOUT_MS, &nodes, err);
    }
    call_close(call);
    if (status == 0) {
        const Gems__ListReply *j = (const Gems__ListReply *)jobs;
        const Gems__NodesReply *n = (const Gems__NodesReply *)nodes;

        if (client->is_json) {
            output_json(json_pack("{s:o, s:o}", "jobs", view_jobs_json(j->jobs, j->n_jobs), "nodes",
                                  view_nodes_json(n->nodes, n->n_nodes)));
        } else {
            view_jobs(j->jobs, j->n_jobs);
            printf("\n");
            view_nodes(n->nodes, n->n_nodes);
        }
    }
    if (jobs) {
        msg_free(jobs);
    }
    if (nodes) {
        msg_free(nodes);
    }
    return status;
}

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    return args->n_operands > 0 ? show_job(client, args, err) : show_all(client, err);
}
