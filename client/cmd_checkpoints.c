#include "client/args.h"
#include "client/call.h"
#include "client/view.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

static const struct option_entry options[] = {
    { "verify", 0, NULL, "read every byte and check every checksum first" },
    { NULL, 0, NULL, NULL },
};

const struct command cmd_checkpoints = {
    .name = "checkpoints",
    .synopsis = "JOB [--verify]",
    .summary = "list the checkpoints of a job",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .run = run,
};

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    Gems__CheckpointsRequest request = GEMS__CHECKPOINTS_REQUEST__INIT;
    ProtobufCMessage *message;
    const Gems__CheckpointsReply *reply;
    int status = args_job(args, 0, &request.job, err);

    request.verify = args_has(args, "verify");
    if (status == 0) {
        status = call_once(client, MSG_CHECKPOINTS, &request.base, MSG_CHECKPOINTS_REPLY,
                           request.verify ? CALL_PLAN_TIMEOUT_MS : CALL_TIMEOUT_MS, &message, err);
    }
    if (status < 0) {
        return status;
    }
    reply = (const Gems__CheckpointsReply *)message;
    if (client->is_json) {
        output_json(json_pack("{s:o}", "checkpoints",
                              view_checkpoints_json(reply->checkpoints, reply->n_checkpoints)));
    } else {
        view_checkpoints(reply->checkpoints, reply->n_checkpoints);
    }
    msg_free(message);
    return EXIT_OK;
}
