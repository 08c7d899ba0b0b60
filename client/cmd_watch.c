#include "client/args.h"
#include "client/follow.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

const struct command cmd_watch = {
    .name = "watch",
    .synopsis = "JOB",
    .summary = "show the progress of a job until it ends",
    .details =
        "On a terminal, one line with step, rate, loss, accuracy and time left; elsewhere a line\n"
        "at every change of state, every epoch and every ten seconds. With --json, every status\n"
        "as one line. Ends with the job: 0 if it succeeded, 1 if not.\n",
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    struct follow follow = { .is_json = client->is_json, .lines = stdout };
    int status = args_job(args, 0, &follow.job, err);

    return status < 0 ? status : follow_job(client, &follow, err);
}
