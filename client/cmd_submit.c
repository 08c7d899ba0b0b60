#include <inttypes.h>
#include <stdio.h>

#include "client/args.h"
#include "client/call.h"
#include "client/follow.h"
#include "client/jobfile.h"
#include "client/output.h"
#include "common/error.h"
#include "proto/codec.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

static const struct option_entry options[] = {
    { "set", 's', "KEY=VALUE", "replace a value of the job file (train.lr=0.05); repeatable" },
    { "wait", 'w', NULL, "wait for the end; exit 1 if the job does not succeed" },
    { "key", 0, "KEY", "submit once: the same KEY again gives the same job" },
    { NULL, 0, NULL, NULL },
};

const struct command cmd_submit = {
    .name = "submit",
    .synopsis = "FILE [--set KEY=VALUE]... [--wait] [--key KEY]",
    .summary = "submit a job file, print the number of the job",
    .details =
        "FILE is YAML (gems-job(5)); - is the standard input. Relative paths in it start from its\n"
        "folder. The number is printed when the job is stored for good.\n\n"
        "  gems-client submit examples/fashion-mnist.yaml\n"
        "  gems-client submit job.yaml --set train.lr=0.05 --set parallel.stages=4 --wait\n",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .run = run,
};

static int submit(const struct client *client, const struct jobfile *job, const char *key,
                  uint64_t *ret_job, struct gems_error *err)
{
    Gems__SubmitRequest request = GEMS__SUBMIT_REQUEST__INIT;
    ProtobufCMessage *reply;
    int status;

    request.spec = spec_to_proto(&job->spec);
    request.key = (char *)(key ? key : "");
    if (!request.spec) {
        return gems_error_set(err, GEMS_E_NOMEM, "submit: out of memory");
    }
    status = call_once(client, MSG_SUBMIT, &request.base, MSG_SUBMIT_REPLY, CALL_PLAN_TIMEOUT_MS,
                       &reply, err);
    msg_free(&request.spec->base);
    if (status < 0) {
        jobfile_locate(job, err);
        return status;
    }
    *ret_job = ((const Gems__SubmitReply *)reply)->job;
    msg_free(reply);
    return GEMS_OK;
}

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    const char *sets[ARGS_MAX_GIVEN];
    uint32_t n_sets = args_values(args, "set", sets, ARGS_MAX_GIVEN);
    struct follow follow = { .is_known = true };
    struct jobfile job;
    int status = jobfile_load(args->operands[0], sets, n_sets, &job, err);

    if (status == GEMS_OK) {
        status = submit(client, &job, args_value(args, "key"), &follow.job, err);
    }
    if (status < 0) {
        return status;
    }
    if (client->is_json) {
        output_json(json_pack("{s:I}", "job", (json_int_t)follow.job));
    } else {
        printf("%" PRIu64 "\n", follow.job);
        fflush(stdout);
    }
    return args_has(args, "wait") ? follow_job(client, &follow, err) : EXIT_OK;
}
