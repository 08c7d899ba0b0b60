#include <stdio.h>

#include "client/args.h"
#include "client/call.h"
#include "client/chrome.h"
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
    { "svg", 0, "FILE", "write that drawing to a file; - is stdout" },
    { "trace", 0, "FILE", "write the step as a trace for chrome://tracing or Perfetto" },
    { "cluster", 0, "FILE", NULL },
    { NULL, 0, NULL, NULL },
};

const struct command cmd_plan = {
    .name = "plan",
    .synopsis = "FILE [--set KEY=VALUE]... [--devices LIST] [--gantt] [--svg FILE] [--trace FILE]",
    .summary = "say how a job would run, and whether it fits",
    .details =
        "Shows the cut into stages, the memory of every rank to the byte, and the time of a step.\n"
        "Without --devices, gemsd plans for its nodes as they are now. Exit 7: it does not fit; "
        "the\n"
        "last line says what would help. The trace has the names of `gems-client trace`, which "
        "gives\n"
        "the measured one.\n\n"
        "  gems-client plan job.yaml --devices 4x16GiB --set parallel.schedule=gems-mast --gantt\n",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .run = run,
};

enum { GANTT_WIDTH = 96 };

/* A plan and what is at hand to simulate it with. */
struct shown {
    const char *name; /* of the job */
    const struct plan *plan;
    const struct graph *graph;
    const struct facts *facts;         /* NULL: gemsd has planned */
    const struct plan_device *devices; /* NULL as facts */
};

static json_t *about_json(const struct shown *shown)
{
    const struct plan *plan = shown->plan;

    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:f}", "source", "simulated", "job",
                     shown->name, "schedule", schedule_name(plan->schedule), "stages",
                     (int)plan->n_stages, "groups", (int)plan->n_groups, "microbatches",
                     (int)plan->n_microbatches, "step_seconds", plan->step_seconds);
}

static int write_files(const struct args *args, const struct shown *shown,
                       const struct sim_result *result, struct gems_error *err)
{
    const char *svg = args_value(args, "svg"), *trace = args_value(args, "trace");
    struct timeline timeline;
    char title[256];
    int status = draw_timeline(shown->plan, result, &timeline, err);

    if (status < 0) {
        return status;
    }
    snprintf(title, sizeof title, "%s: one step of %s on %u stages, as planned", shown->name,
             schedule_name(shown->plan->schedule), shown->plan->n_stages);
    if (svg) {
        status = draw_write_svg(&timeline, title, true, svg, err);
    }
    if (trace && status == GEMS_OK) {
        status = chrome_write(&timeline, about_json(shown), trace, err);
    }
    timeline_fini(&timeline);
    return status;
}

/* The pictures that are asked for. */
static int show_step(const struct client *client, const struct args *args,
                     const struct shown *shown, struct gems_error *err)
{
    bool is_printed = args_has(args, "gantt") && !client->is_json;
    bool is_written = args_has(args, "svg") || args_has(args, "trace");
    struct sim_result result;
    int status;

    if (!is_printed && !is_written) {
        return GEMS_OK;
    }
    status = draw_simulate(shown->plan, shown->graph, shown->facts, shown->devices, &result, err);
    if (status < 0) {
        return status;
    }
    if (is_printed) {
        printf("\n");
        status = draw_print(shown->plan, &result, GANTT_WIDTH, err);
    }
    if (is_written && status == GEMS_OK) {
        status = write_files(args, shown, &result, err);
    }
    sim_result_fini(&result);
    return status;
}

/* The answer, with the pictures; exit code. */
static int show(const struct client *client, const struct args *args, const struct shown *shown,
                struct gems_error *err)
{
    const struct plan *plan = shown->plan;
    int status;

    if (client->is_json) {
        output_json(planview_json(plan));
    } else {
        planview_print(plan);
    }
    status = show_step(client, args, shown, err);
    if (status < 0) {
        return status;
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
    status = show(client, args,
                  &(struct shown){ .name = job->spec.name,
                                   .plan = &offline.plan,
                                   .graph = &offline.graph,
                                   .facts = fact_set_find(&offline.facts, offline.plan.microbatch),
                                   .devices = devices },
                  err);
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
            status = show(client, args,
                          &(struct shown){ .name = job->spec.name, .plan = &plan, .graph = &graph },
                          err);
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
