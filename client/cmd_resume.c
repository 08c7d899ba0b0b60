#include "client/request.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

const struct command cmd_resume = {
    .name = "resume",
    .synopsis = "JOB",
    .summary = "queue a paused job again",
    .details = "The job goes on from its checkpoint, bit for bit as if it had never stopped.\n",
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    return request_job(client, args, MSG_RESUME, "queued", err);
}
