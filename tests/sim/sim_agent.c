#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/jobs.h"
#include "plan/planner.h"
#include "proto/codec.h"
#include "tests/sim/sim_peers.h"

/* An exit that gemsd has not acknowledged. */
struct unsent {
    struct list link;
    Gems__RankRef ref;
    bool is_signal;
    int code;
    uint32_t call;
};

static void send_exit(struct sim_agent *agent, struct unsent *unsent)
{
    Gems__RankExit message = GEMS__RANK_EXIT__INIT;

    unsent->call = rpc_next_call(agent->conn);
    message.ref = &unsent->ref;
    message.signaled = unsent->is_signal;
    message.code = unsent->code;
    message.tail = (char *)"last line";
    message.peak_rss_bytes = 12345678;
    msg_send(agent->conn, MSG_RANK_EXIT, 0, unsent->call, &message.base);
}

void sim_agent_exit(struct sim_agent *agent, const Gems__RankRef *ref, bool is_signal, int code)
{
    struct unsent *unsent = calloc(1, sizeof *unsent);

    unsent->ref = *ref;
    unsent->is_signal = is_signal;
    unsent->code = code;
    list_push(&agent->unsent, &unsent->link);
    if (agent->conn) {
        send_exit(agent, unsent);
    }
}

static void take_ok(struct sim_agent *agent, uint32_t call)
{
    list_each(&agent->unsent, link)
    {
        struct unsent *unsent = list_item(link, struct unsent, link);

        if (unsent->call == call) {
            list_remove(link);
            free(unsent);
            return;
        }
    }
}

static void send_register(struct sim_agent *agent)
{
    Gems__Register message = GEMS__REGISTER__INIT;
    Gems__DeviceInfo devices[SIM_DEVICES], *device_pointers[SIM_DEVICES];
    Gems__RankRef *running[64];
    char ids[SIM_DEVICES][16];

    message.node = agent->name;
    message.boot_id = (char *)"boot";
    message.version = (char *)"sim";
    message.kind_cpu = (char *)"sim";
    for (int i = 0; i < SIM_DEVICES; i++) {
        gems__device_info__init(&devices[i]);
        snprintf(ids[i], sizeof ids[i], "cpu:%d", i);
        devices[i].id = ids[i];
        devices[i].kind = (char *)"cpu";
        devices[i].memory_bytes = agent->sim->memory_bytes;
        devices[i].threads = 1;
        device_pointers[i] = &devices[i];
    }
    message.devices = device_pointers;
    message.n_devices = SIM_DEVICES;
    message.running = running;
    list_each(&agent->sim->ranks, link)
    {
        struct sim_rank *rank = list_item(link, struct sim_rank, link);

        if (rank->agent == agent) {
            running[message.n_running++] = &rank->ref;
        }
    }
    msg_send(agent->conn, MSG_REGISTER, 0, rpc_next_call(agent->conn), &message.base);
}

/* Made-up bytes, but the right tables. */
static void answer_inspect(struct sim_agent *agent, uint32_t call,
                           const Gems__InspectRequest *request)
{
    Gems__InspectReply reply = GEMS__INSPECT_REPLY__INIT;
    Gems__Error error = GEMS__ERROR__INIT;
    struct fact_set set = { .n_train = 160 };
    struct job_spec spec;
    struct graph graph;
    uint32_t sizes[FACTS_MAX_SIZES];

    ck_assert(request->has_uid && request->uid == geteuid());
    ck_assert_int_eq(spec_from_proto(request->spec, &spec, NULL), GEMS_OK);
    ck_assert_int_eq(spec_graph(&spec, &graph, NULL), GEMS_OK);
    set.n_sizes = planner_batch_sizes(&spec, set.n_train, 0, sizes);
    for (uint32_t i = 0; i < set.n_sizes; i++) {
        struct facts *facts = &set.sizes[i];

        facts->batch = sizes[i];
        facts->n_nodes = graph.n_nodes;
        facts->ops = calloc(graph.n_nodes, sizeof *facts->ops);
        for (uint32_t k = 0; k < graph.n_nodes; k++) {
            facts->ops[k] = (struct op_facts){ .out_bytes = 4096,
                                               .param_bytes = 1024,
                                               .forward_seconds = 1e-4,
                                               .backward_input_seconds = 1e-4,
                                               .backward_weight_seconds = 1e-4 };
        }
    }
    if (agent->sim->inspect_status < 0) {
        error.status = agent->sim->inspect_status;
        error.text = (char *)"train: no such folder";
        reply.error = &error;
    } else {
        reply.facts = facts_to_proto(&set);
    }
    reply.kind = (char *)"sim";
    msg_send(agent->conn, MSG_INSPECT_REPLY, RPC_REPLY | RPC_LAST, call, &reply.base);
    if (reply.facts) {
        msg_free(&reply.facts->base);
    }
    fact_set_fini(&set);
    graph_fini(&graph);
}

/* What a real agent goes by when it allows the data. */
static void check_launch_data(const Gems__Launch *launch)
{
    ck_assert(launch->has_uid && launch->uid == geteuid());
    ck_assert_uint_eq(launch->n_data, 1);
    ck_assert_str_eq(launch->data[0], SIM_DATA);
}

static bool is_running(struct sim_agent *agent, const Gems__RankRef *ref)
{
    list_each(&agent->sim->ranks, link)
    {
        const Gems__RankRef *other = &list_item(link, struct sim_rank, link)->ref;

        if (other->job == ref->job && other->attempt == ref->attempt && other->rank == ref->rank) {
            return true;
        }
    }
    return false;
}

static void kill_ref(struct sim_agent *agent, const Gems__RankRef *ref)
{
    list_each(&agent->sim->ranks, link)
    {
        struct sim_rank *rank = list_item(link, struct sim_rank, link);

        if (rank->agent == agent && rank->ref.job == ref->job &&
            rank->ref.attempt == ref->attempt && rank->ref.rank == ref->rank) {
            sim_rank_kill(rank, SIGTERM);
            return;
        }
    }
}

static void on_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    static const Gems__Ok ok = GEMS__OK__INIT;
    struct sim_agent *agent = arg;
    ProtobufCMessage *message;

    ck_assert_int_eq(msg_decode(frame, &message, NULL), GEMS_OK);
    switch (frame->type) {
    case MSG_HELLO_REPLY:
        send_register(agent);
        break;
    case MSG_REGISTER_REPLY: {
        const Gems__RegisterReply *reply = (const Gems__RegisterReply *)message;

        for (size_t i = 0; i < reply->n_kill; i++) {
            kill_ref(agent, reply->kill[i]);
        }
        list_each(&agent->unsent, link)
        {
            send_exit(agent, list_item(link, struct unsent, link));
        }
        break;
    }
    case MSG_INSPECT:
        answer_inspect(agent, frame->call, (const Gems__InspectRequest *)message);
        break;
    case MSG_LAUNCH:
        check_launch_data((const Gems__Launch *)message);
        if (!is_running(agent, ((const Gems__Launch *)message)->ref)) {
            sim_rank_start(agent, (const Gems__Launch *)message);
            agent->n_launched++;
        }
        msg_send(conn, MSG_OK, RPC_REPLY | RPC_LAST, frame->call, &ok.base);
        break;
    case MSG_KILL:
        kill_ref(agent, ((const Gems__Kill *)message)->ref);
        break;
    case MSG_OK:
        take_ok(agent, frame->call);
        break;
    default:
        ck_abort_msg("an agent got %s", msg_name(frame->type));
    }
    msg_free(message);
}

static void on_closed(void *arg, struct rpc_conn *conn, const char *why)
{
    struct sim_agent *agent = arg;

    (void)why;
    rpc_destroy(conn);
    agent->conn = NULL;
}

static void agent_connect(struct sim_agent *agent)
{
    static const struct rpc_handlers handlers = { .frame = on_frame, .closed = on_closed };

    agent->conn = sim_connect(agent->sim, &handlers, agent);
    if (agent->conn) {
        sim_hello(agent->conn, "worker", "");
    }
}

void sim_agents_turn(struct sim *sim)
{
    Gems__Ping ping = GEMS__PING__INIT;

    for (int i = 0; i < SIM_AGENTS; i++) {
        struct sim_agent *agent = &sim->agents[i];

        if (agent->is_alive && !agent->conn && sim->daemon) {
            agent_connect(agent);
        } else if (agent->conn && sim->n_turns % 16 == 0) {
            msg_send(agent->conn, MSG_PING, 0, 0, &ping.base);
        }
    }
}

void sim_agent_start(struct sim *sim, int i)
{
    sim->agents[i].is_alive = true;
    agent_connect(&sim->agents[i]);
}

void sim_agent_kill(struct sim *sim, int i)
{
    struct sim_agent *agent = &sim->agents[i];
    struct list *link;

    agent->is_alive = false;
    if (agent->conn) {
        rpc_destroy(agent->conn);
        agent->conn = NULL;
    }
    list_each(&sim->ranks, rank_link)
    {
        struct sim_rank *rank = list_item(rank_link, struct sim_rank, link);

        if (rank->agent == agent) {
            sim_rank_kill(rank, SIGKILL);
        }
    }
    while ((link = list_pop(&agent->unsent))) {
        free(list_item(link, struct unsent, link));
    }
}
