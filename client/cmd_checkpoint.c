#include "client/request.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

const struct command cmd_checkpoint = {
    .name = "checkpoint",
    .synopsis = "JOB",
    .summary = "write a checkpoint of a running job now",
    .details =
        "The checkpoint is written at the end of the step; gems-client checkpoints JOB lists it.\n",
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    return request_job(client, args, MSG_CHECKPOINT, "checkpoint asked for", err);
}
