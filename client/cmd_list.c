#include <strings.h>

#include "client/args.h"
#include "client/call.h"
#include "client/view.h"
#include "common/error.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

static const struct option_entry options[] = {
    { "state", 0, "STATE", "only jobs in this state; repeatable" },
    { NULL, 0, NULL, NULL },
};

const struct command cmd_list = {
    .name = "list",
    .synopsis = "[--state STATE]...",
    .summary = "list jobs",
    .details = "States: QUEUED, PLACING, STARTING, RUNNING, PAUSED, STOPPING, SUCCEEDED, FAILED, "
               "CANCELLED.\n",
    .options = options,
    .run = run,
};

static const char *const states[] = { "QUEUED",   "PLACING",   "STARTING", "RUNNING",  "PAUSED",
                                      "STOPPING", "SUCCEEDED", "FAILED",   "CANCELLED" };

/* The name of a state in capitals, or NULL. */
static const char *state_of(const char *name)
{
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        if (strcasecmp(states[i], name) == 0) {
            return states[i];
        }
    }
    return NULL;
}

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    const char *wanted[ARGS_MAX_GIVEN];
    Gems__ListRequest request = GEMS__LIST_REQUEST__INIT;
    ProtobufCMessage *message;
    const Gems__ListReply *reply;
    int status;

    request.n_states = args_values(args, "state", wanted, ARGS_MAX_GIVEN);
    for (size_t i = 0; i < request.n_states; i++) {
        const char *state = state_of(wanted[i]);

        if (!state) {
            gems_error_set(err, GEMS_E_INVALID, "--state: '%.40s' is not a state", wanted[i]);
            gems_error_hint(err, "QUEUED, PLACING, STARTING, RUNNING, PAUSED, STOPPING, SUCCEEDED, "
                                 "FAILED, CANCELLED");
            return GEMS_E_INVALID;
        }
        wanted[i] = state;
    }
    request.states = (char **)wanted;
    status =
        call_once(client, MSG_LIST, &request.base, MSG_LIST_REPLY, CALL_TIMEOUT_MS, &message, err);
    if (status < 0) {
        return status;
    }
    reply = (const Gems__ListReply *)message;
    if (client->is_json) {
        output_json(json_pack("{s:o}", "jobs", view_jobs_json(reply->jobs, reply->n_jobs)));
    } else {
        view_jobs(reply->jobs, reply->n_jobs);
    }
    msg_free(message);
    return EXIT_OK;
}
