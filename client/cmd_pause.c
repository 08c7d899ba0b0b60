#include "client/request.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

const struct command cmd_pause = {
    .name = "pause",
    .synopsis = "JOB",
    .summary = "checkpoint a job and free its devices",
    .details =
        "The job writes a checkpoint, gives its devices back and waits as PAUSED for resume.\n",
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    return request_job(client, args, MSG_PAUSE, "pausing", err);
}
