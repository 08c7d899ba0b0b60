#include <config.h>

#include <stdio.h>

#include "client/args.h"
#include "client/output.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

const struct command cmd_version = {
    .name = "version",
    .synopsis = "",
    .summary = "print the version of gems-client",
    .run = run,
};

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    (void)args;
    (void)err;
    if (client->is_json) {
        output_json(json_pack("{s:s}", "version", PACKAGE_VERSION));
    } else {
        printf("gems-client %s\n", PACKAGE_VERSION);
    }
    return EXIT_OK;
}
