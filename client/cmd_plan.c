#include <stdio.h>

#include "client/args.h"
#include "client/call.h"
#include "client/draw.h"
#include "client/jobfile.h"
#include "client/offline.h"
#include "client/output.h"
#include "client/planview.h"
#include "common/error.h"
#include "model/passes.h"
#include "proto/codec.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

static const struct option_entry options[] = {
    { "set", 's', "KEY=VALUE", "replace a value of the job file; repeatable" },
    { "devices", 0, "LIST", "plan for these devices (4x16GiB,2x40GiB), without gemsd" },
    { "gantt", 0, NULL, "draw one step: what every rank does when" },
    { "cluster", 0, "FILE", NULL },
    { "svg", 0, "FILE", NULL },
    { "trace", 0, "FILE", NULL },
    { NULL, 0, NULL, NULL },
};

const struct command cmd_plan = {
    .name = "plan",
    .synopsis = "FILE [--set KEY=VALUE]... [--devices LIST] [--gantt]",
    .summary = "say how a job would run, and whether it fits",
    .details =
        "Shows the cut into stages, the memory of every rank to the byte, and the time of a step.\n"
        "Without --devices, gemsd plans for its nodes as they are now. Exit 7: it does not fit; "
        "the\n"
        "last line says what would help.\n\n"
        "  gems-client plan job.yaml --devices 4x16GiB --set parallel.schedule=gems-mast --gantt\n",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .run = run,
};

enum { GANTT_WIDTH = 96 };

/* The answer, with the picture if asked for; exit code. */
static int show(const struct client *client, const struct args *args, const struct plan *plan,
                const struct graph *graph, const struct facts *facts, struct gems_error *err)
{
    if (client->is_json) {
        output_json(planview_json(plan));
    } else {
        planview_print(plan);
        if (args_has(args, "gantt")) {
            int status;

            printf("\n");
            status = draw_step(plan, graph, facts, GANTT_WIDTH, err);
            if (status < 0) {
                return status;
            }
        }
    }
    if (!plan->fits) {
        fflush(stdout);
        fprintf(stderr, "gems-client: plan: does not fit: %s\n", plan->advice);
        return EXIT_NO_FIT;
    }
    return EXIT_OK;
}

static int plan_offline(const struct client *client, const struct args *args, struct jobfile *job,
                        struct gems_error *err)
{
    struct plan_device devices[OFFLINE_MAX_DEVICES];
    struct offline offline;
    uint32_t n;
    int status =
        offline_devices(args_value(args, "devices"), job->spec.resources.kind, devices, &n, err);

    if (status == GEMS_OK) {
        status = offline_plan(&job->spec, devices, n, &offline, err);
    }
    if (status < 0) {
        jobfile_locate(job, err);
        return status;
    }
    if (offline.is_blind) {
        fprintf(stderr,
                "gems-client: plan: the data set is not on this machine: whole batches are "
                "assumed (%s)\n",
                offline.why_blind);
    }
    status = show(client, args, &offline.plan, &offline.graph,
                  fact_set_find(&offline.facts, offline.plan.microbatch), err);
    offline_fini(&offline);
    return status;
}

static int ask_plan(const struct client *client, const struct jobfile *job, struct plan *ret_plan,
                    struct gems_error *err)
{
    Gems__PlanRequest request = GEMS__PLAN_REQUEST__INIT;
    ProtobufCMessage *message;
    const Gems__PlanReply *reply;
    int status;

    request.spec = spec_to_proto(&job->spec);
    if (!request.spec) {
        return gems_error_set(err, GEMS_E_NOMEM, "plan: out of memory");
    }
    status = call_once(client, MSG_PLAN, &request.base, MSG_PLAN_REPLY, CALL_PLAN_TIMEOUT_MS,
                       &message, err);
    msg_free(&request.spec->base);
    if (status < 0) {
        return status;
    }
    reply = (const Gems__PlanReply *)message;
    status = reply->plan ? plan_from_proto(reply->plan, ret_plan, err)
                         : gems_error_set(err, GEMS_E_PEER, "gemsd: a reply without a plan");
    msg_free(message);
    return status;
}

static int plan_online(const struct client *client, const struct args *args,
                       const struct jobfile *job, struct gems_error *err)
{
    struct graph graph;
    struct plan plan;
    int status = ask_plan(client, job, &plan, err);

    if (status < 0) {
        jobfile_locate(job, err);
        return status;
    }
    status = zoo_build(&job->spec.model, &graph, err);
    if (status == GEMS_OK) {
        status = graph_fuse(&graph, err);
        if (status == GEMS_OK) {
            status = show(client, args, &plan, &graph, NULL, err);
        }
        graph_fini(&graph);
    }
    plan_fini(&plan);
    return status;
}

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    const char *sets[ARGS_MAX_GIVEN];
    uint32_t n_sets = args_values(args, "set", sets, ARGS_MAX_GIVEN);
    struct jobfile job;
    int status = jobfile_load(args->operands[0], sets, n_sets, &job, err);

    if (status < 0) {
        return status;
    }
    return args_has(args, "devices") ? plan_offline(client, args, &job, err)
                                     : plan_online(client, args, &job, err);
}
