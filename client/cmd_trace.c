#include "client/args.h"
#include "common/error.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

static const struct option_entry options[] = {
    { "output", 'o', "FILE", "file to write" },
    { NULL, 0, NULL, NULL },
};

/* Known, so that its name is kept and the answer is clear; without a summary
 * it is not listed. */
const struct command cmd_trace = {
    .name = "trace",
    .synopsis = "JOB -o FILE.json",
    .min_operands = 0,
    .max_operands = 1,
    .options = options,
    .run = run,
};

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    (void)client;
    (void)args;
    return gems_error_set(err, GEMS_E_UNSUPPORTED, "trace: not in this version");
}
