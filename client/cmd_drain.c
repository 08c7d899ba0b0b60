#include <stdio.h>

#include "client/args.h"
#include "client/call.h"
#include "client/output.h"
#include "common/error.h"
#include "common/units.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

static const struct option_entry options[] = {
    { "reason", 0, "TEXT", "why; shown by nodes" },
    { "deadline", 0, "TIME", "stop what still runs there after this time (30m)" },
    { NULL, 0, NULL, NULL },
};

const struct command cmd_drain = {
    .name = "drain",
    .synopsis = "NODE [--reason TEXT] [--deadline TIME]",
    .summary = "start no more work on a node",
    .details =
        "Jobs there go on to their end, or to the deadline: then they are checkpointed and queued\n"
        "again for other nodes.\n",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .run = run,
};

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    Gems__DrainRequest request = GEMS__DRAIN_REQUEST__INIT;
    const char *reason = args_value(args, "reason"), *deadline = args_value(args, "deadline");
    uint64_t deadline_ms = 0;
    int status;

    if (deadline && (parse_duration(deadline, &deadline_ms, NULL) < 0 || deadline_ms < 1000 ||
                     deadline_ms / 1000 > UINT32_MAX)) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "--deadline: '%.40s' is not a time of at least 1s such as 90s or 30m",
                              deadline);
    }
    request.node = (char *)args->operands[0];
    request.reason = (char *)(reason ? reason : "");
    request.deadline_s = (uint32_t)(deadline_ms / 1000);
    status = call_once(client, MSG_DRAIN, &request.base, MSG_OK, CALL_TIMEOUT_MS, NULL, err);
    if (status < 0) {
        return status;
    }
    if (client->is_json) {
        output_json(json_pack("{s:s}", "node", request.node));
    } else {
        printf("node %s: draining\n", request.node);
    }
    return EXIT_OK;
}
