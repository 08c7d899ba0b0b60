#include <check.h>
#include <event2/event.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "common/hash.h"
#include "daemon/jobs.h"
#include "proto/codec.h"
#include "tests/sim/sim_peers.h"

enum { VALUES = 32 };

/* What a tensor holds after a step. */
static void fill(const char *name, uint64_t step, float values[VALUES])
{
    for (int i = 0; i < VALUES; i++) {
        values[i] = (float)(step * 1000 + (uint64_t)i) + (float)name[0] + (float)strlen(name);
    }
}

static void rank_free(struct sim_rank *rank)
{
    list_remove(&rank->link);
    if (rank->conn) {
        rpc_destroy(rank->conn);
    }
    event_free(rank->timer);
    free(rank->names);
    free(rank);
}

void sim_rank_kill(struct sim_rank *rank, int signal)
{
    struct sim_agent *agent = rank->agent;
    Gems__RankRef ref = rank->ref;

    rank_free(rank);
    if (agent->is_alive) {
        sim_agent_exit(agent, &ref, true, signal);
    }
}

static void rank_exit(struct sim_rank *rank, int code)
{
    sim_agent_exit(rank->agent, &rank->ref, false, code);
    rank_free(rank);
}

struct sim_rank *sim_find_rank(struct sim *sim, uint32_t number)
{
    list_each(&sim->ranks, link)
    {
        struct sim_rank *rank = list_item(link, struct sim_rank, link);

        if (rank->ref.rank == number) {
            return rank;
        }
    }
    return NULL;
}

/* ---- what it says ---- */

static void send_shards(struct sim_rank *rank)
{
    Gems__ShardEnd end = GEMS__SHARD_END__INIT;

    for (uint32_t i = rank->ref.rank; i < rank->n_tensors; i += rank->n_ranks) {
        Gems__Shard shard = GEMS__SHARD__INIT;
        uint64_t dims[1] = { VALUES };
        float values[VALUES];
        uint8_t hash[HASH_BYTES];

        fill(rank->names[i], rank->checkpoint_step, values);
        hash_of(values, sizeof values, hash);
        shard.step = rank->checkpoint_step;
        shard.name = rank->names[i];
        shard.kind = (char *)"weight";
        shard.order = i;
        shard.dims = dims;
        shard.n_dims = 1;
        shard.total = sizeof values;
        shard.data.data = (uint8_t *)values;
        shard.data.len = sizeof values;
        shard.hash.data = hash;
        shard.hash.len = sizeof hash;
        msg_send(rank->conn, MSG_SHARD, 0, 0, &shard.base);
        end.tensors++;
    }
    end.step = rank->checkpoint_step;
    end.samples = rank->checkpoint_step * rank->batch;
    end.epoch = (uint32_t)((rank->checkpoint_step - 1) / rank->steps_per_epoch);
    end.final = rank->is_final;
    msg_send(rank->conn, MSG_SHARD_END, 0, 0, &end.base);
}

static void send_end(struct sim_rank *rank, int status, const char *text, const char *failure)
{
    Gems__End end = GEMS__END__INIT;

    rank->is_ending = true;
    rank->end_status = status;
    end.ref = &rank->ref;
    end.status = status;
    end.text = (char *)text;
    end.failure_class = (char *)failure;
    end.step = rank->step;
    end.peak_rss_bytes = 9876543;
    msg_send(rank->conn, MSG_END, 0, rpc_next_call(rank->conn), &end.base);
}

static void send_step(struct sim_rank *rank)
{
    Gems__Progress progress = GEMS__PROGRESS__INIT;

    progress.step = rank->step;
    progress.epoch = (uint32_t)((rank->step - 1) / rank->steps_per_epoch);
    progress.samples = rank->step * rank->batch;
    progress.counted = rank->batch;
    progress.correct = rank->batch / 2;
    progress.loss_sum = (double)rank->batch * 0.25;
    progress.step_seconds = 0.001;
    msg_send(rank->conn, MSG_PROGRESS, 0, 0, &progress.base);
}

static void send_heartbeat(struct sim_rank *rank)
{
    Gems__Heartbeat beat = GEMS__HEARTBEAT__INIT;

    beat.step = rank->step;
    beat.watermark = rank->watermark;
    beat.phase = (char *)(rank->is_started ? "FORWARD" : "starting");
    beat.allocated_bytes = 4096;
    msg_send(rank->conn, MSG_HEARTBEAT, 0, 0, &beat.base);
}

/* ---- what it does ---- */

static void agree_to_stop(struct sim_rank *rank)
{
    struct sim *sim = rank->sim;

    rank->is_stopping = true;
    if (sim->stop_step == 0) {
        list_each(&sim->ranks, link)
        {
            struct sim_rank *other = list_item(link, struct sim_rank, link);

            sim->stop_step = other->step + 1 > sim->stop_step ? other->step + 1 : sim->stop_step;
        }
    }
}

static void begin_checkpoint(struct sim_rank *rank, bool is_final)
{
    rank->checkpoint_step = rank->step;
    rank->is_final = is_final;
    rank->is_waiting = is_final; /* others do not hold it up */
    if (rank->conn) {
        send_shards(rank);
    }
}

static bool is_disturbed(struct sim_rank *rank)
{
    struct sim *sim = rank->sim;

    if (sim->nan_rank == (int)rank->ref.rank && rank->step == sim->hang_step && rank->conn) {
        sim->nan_rank = -1;
        send_end(rank, GEMS_E_NAN, "loss is not a number", "nan");
        return true;
    }
    return sim->hang_rank == (int)rank->ref.rank && rank->step == sim->hang_step;
}

static void one_step(struct sim_rank *rank)
{
    uint64_t stop_step = rank->is_stopping ? rank->sim->stop_step : 0;

    rank->step++;
    rank->watermark += 7;
    if (rank->conn && rank->has_last_stage) {
        send_step(rank);
    }
    if (rank->step >= rank->steps_total) {
        begin_checkpoint(rank, true);
    } else if (stop_step && rank->step >= stop_step) {
        begin_checkpoint(rank, true);
    } else if (rank->step % 10 == 0) {
        begin_checkpoint(rank, false);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct sim_rank *rank = arg;

    (void)fd;
    (void)what;
    if (rank->conn) {
        send_heartbeat(rank);
    }
    if (rank->is_started && !rank->is_restoring && !rank->is_waiting && !rank->is_ending &&
        !is_disturbed(rank)) {
        one_step(rank);
    }
}

static void send_join(struct sim_rank *rank)
{
    Gems__Join join = GEMS__JOIN__INIT;

    join.ref = &rank->ref;
    join.rank_token = rank->token;
    join.address.data = (uint8_t *)"addr";
    join.address.len = 4;
    join.net_version = (char *)"sim 1";
    join.kind = (char *)"sim";
    join.running = rank->is_started;
    join.step = rank->step;
    msg_send(rank->conn, MSG_JOIN, 0, rpc_next_call(rank->conn), &join.base);
}

static void ask_restore(struct sim_rank *rank, uint64_t step)
{
    Gems__RestoreRequest request = GEMS__RESTORE_REQUEST__INIT;
    char *names[1] = { rank->names[rank->ref.rank] }, *kinds[1] = { (char *)"weight" };

    rank->is_restoring = true;
    rank->step = step;
    request.step = step;
    request.names = names;
    request.kinds = kinds;
    request.n_names = request.n_kinds = 1;
    msg_send(rank->conn, MSG_RESTORE, 0, rpc_next_call(rank->conn), &request.base);
}

static void list_tensors(struct sim_rank *rank, const struct graph *graph)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        struct param params[MODEL_MAX_PARAMS];
        uint32_t n = node_params(graph, i, params);

        for (uint32_t k = 0; k < n; k++) {
            rank->names = realloc(rank->names, (rank->n_tensors + 1) * sizeof *rank->names);
            snprintf(rank->names[rank->n_tensors++], 64, "%.40s.%.20s", graph->nodes[i].name,
                     params[k].suffix);
        }
    }
}

static void take_start(struct sim_rank *rank, const Gems__Start *start)
{
    struct graph graph;
    struct plan plan;

    ck_assert(!rank->is_started);
    ck_assert_uint_eq(start->rank, rank->ref.rank);
    ck_assert_uint_eq(start->n_addresses, rank->n_ranks);
    ck_assert_int_eq(graph_from_proto(start->graph, &graph, NULL), GEMS_OK);
    ck_assert_int_eq(plan_from_proto(start->plan, &plan, NULL), GEMS_OK);
    list_tensors(rank, &graph);
    rank->is_started = true;
    rank->batch = start->spec->train->batch;
    rank->steps_total = plan.steps_total;
    rank->steps_per_epoch = plan.steps_per_epoch;
    rank->has_last_stage = plan_rank(&plan, 0, 0, plan.n_stages - 1) == rank->ref.rank;
    rank->sim->stop_step = 0;
    if (start->has_restore) {
        ask_restore(rank, start->restore_step);
    }
    plan_fini(&plan);
    graph_fini(&graph);
}

static void take_restored(struct sim_rank *rank, const Gems__RestoreChunk *chunk)
{
    float values[VALUES];

    fill(chunk->name, rank->step, values);
    ck_assert_uint_eq(chunk->data.len, sizeof values);
    ck_assert_mem_eq(chunk->data.data, values, sizeof values);
    rank->sim->restored_step = rank->step;
    rank->is_restoring = !chunk->last;
}

static void take_ack(struct sim_rank *rank, const Gems__ShardAck *ack)
{
    if (ack->step != rank->checkpoint_step || rank->checkpoint_step == 0) {
        return;
    }
    rank->checkpoint_step = 0;
    if (rank->is_waiting) {
        bool is_cancelled = rank->step < rank->steps_total;

        send_end(rank, is_cancelled ? GEMS_E_CANCELLED : GEMS_OK, is_cancelled ? "stopped" : "",
                 "");
    }
}

/* Back after gemsd was away: what it has to say it says again. */
static void resume(struct sim_rank *rank)
{
    if (rank->is_ending) {
        send_end(rank, rank->end_status, "again", rank->end_status == GEMS_E_NAN ? "nan" : "");
    } else if (rank->checkpoint_step) {
        send_shards(rank);
    }
}

static void on_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    struct sim_rank *rank = arg;
    ProtobufCMessage *message;
    bool is_over = false;

    (void)conn;
    ck_assert_int_eq(msg_decode(frame, &message, NULL), GEMS_OK);
    switch (frame->type) {
    case MSG_HELLO_REPLY:
        send_join(rank);
        break;
    case MSG_START:
        take_start(rank, (const Gems__Start *)message);
        break;
    case MSG_OK:
        is_over = rank->is_ending && frame->call != 2;
        if (!is_over) {
            resume(rank);
        }
        break;
    case MSG_RESTORE_CHUNK:
        take_restored(rank, (const Gems__RestoreChunk *)message);
        break;
    case MSG_SHARD_ACK:
        take_ack(rank, (const Gems__ShardAck *)message);
        break;
    case MSG_COMMAND: {
        const Gems__Command *command = (const Gems__Command *)message;

        if (command->stop && !command->checkpoint) {
            is_over = true;
        } else if (command->stop) {
            agree_to_stop(rank);
        }
        break;
    }
    case MSG_ERROR:
        rank->sim->n_refused_joins++;
        is_over = true;
        break;
    default:
        ck_abort_msg("a rank got %s", msg_name(frame->type));
    }
    msg_free(message);
    if (is_over) {
        rank_exit(rank, 0);
    }
}

static void on_closed(void *arg, struct rpc_conn *conn, const char *why)
{
    struct sim_rank *rank = arg;

    (void)why;
    rpc_destroy(conn);
    rank->conn = NULL;
}

void sim_peers_turn(struct sim *sim)
{
    static const struct rpc_handlers handlers = { .frame = on_frame, .closed = on_closed };

    sim_agents_turn(sim);
    list_each(&sim->ranks, link)
    {
        struct sim_rank *rank = list_item(link, struct sim_rank, link);

        if (!rank->conn && sim->daemon) {
            rank->conn = sim_connect(sim, &handlers, rank);
            if (rank->conn) {
                sim_hello(rank->conn, "rank", rank->token); /* call 1; Join is call 2 */
            }
        }
    }
}

void sim_rank_start(struct sim_agent *agent, const Gems__Launch *launch)
{
    struct sim_rank *rank = calloc(1, sizeof *rank);
    struct timeval every = { 0, agent->sim->step_ms * 1000 };

    ck_assert_ptr_nonnull(rank);
    rank->sim = agent->sim;
    rank->agent = agent;
    rank->ref = *launch->ref;
    rank->n_ranks = launch->n_ranks;
    snprintf(rank->token, sizeof rank->token, "%s", launch->rank_token);
    rank->timer = event_new(agent->sim->base, -1, EV_PERSIST, on_timer, rank);
    event_add(rank->timer, &every);
    list_push(&agent->sim->ranks, &rank->link);
}
