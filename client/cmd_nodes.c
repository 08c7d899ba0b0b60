#include "client/args.h"
#include "client/call.h"
#include "client/view.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

const struct command cmd_nodes = {
    .name = "nodes",
    .synopsis = "",
    .summary = "list nodes and their devices",
    .run = run,
};

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    Gems__Ok request = GEMS__OK__INIT;
    ProtobufCMessage *message;
    const Gems__NodesReply *reply;
    int status = call_once(client, MSG_NODES, &request.base, MSG_NODES_REPLY, CALL_TIMEOUT_MS,
                           &message, err);

    (void)args;
    if (status < 0) {
        return status;
    }
    reply = (const Gems__NodesReply *)message;
    if (client->is_json) {
        output_json(json_pack("{s:o}", "nodes", view_nodes_json(reply->nodes, reply->n_nodes)));
    } else {
        view_nodes(reply->nodes, reply->n_nodes);
    }
    msg_free(message);
    return EXIT_OK;
}
