#include "client/request.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

const struct command cmd_cancel = {
    .name = "cancel",
    .synopsis = "JOB",
    .summary = "end a job; its checkpoints stay",
    .details =
        "Works in every state but the final ones. gems-client watch JOB shows when it is over.\n",
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    return request_job(client, args, MSG_CANCEL, "cancelling", err);
}
