#include <stdio.h>

#include "client/args.h"
#include "client/call.h"
#include "client/output.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

const struct command cmd_undrain = {
    .name = "undrain",
    .synopsis = "NODE",
    .summary = "use a drained node again",
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    Gems__DrainRequest request = GEMS__DRAIN_REQUEST__INIT;
    int status;

    request.node = (char *)args->operands[0];
    request.undrain = true;
    status = call_once(client, MSG_DRAIN, &request.base, MSG_OK, CALL_TIMEOUT_MS, NULL, err);
    if (status < 0) {
        return status;
    }
    if (client->is_json) {
        output_json(json_pack("{s:s}", "node", request.node));
    } else {
        printf("node %s: in use again\n", request.node);
    }
    return EXIT_OK;
}
