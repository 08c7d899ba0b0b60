#include "tests/sim/sim.h"

#include <check.h>
#include <event2/bufferevent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/fsutil.h"
#include "common/log.h"
#include "proto/codec.h"
#include "tests/sim/sim_peers.h"

struct gems_error sim_error;

struct rpc_conn *sim_connect(struct sim *sim, const struct rpc_handlers *handlers, void *arg)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct bufferevent *bev;
    struct rpc_conn *conn;

    snprintf(address.sun_path, sizeof address.sun_path, "%s", sim->socket);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        return NULL;
    }
    bev = bufferevent_socket_new(sim->base, fd, BEV_OPT_CLOSE_ON_FREE);
    ck_assert_ptr_nonnull(bev);
    conn = rpc_create(bev, handlers, arg, NULL);
    ck_assert_ptr_nonnull(conn);
    rpc_set_limits(conn, RPC_LIMIT_WORKER, 64 << 20);
    return conn;
}

void sim_hello(struct rpc_conn *conn, const char *role, const char *token)
{
    Gems__Hello hello = GEMS__HELLO__INIT;

    hello.protocol = PROTO_VERSION;
    hello.role = (char *)role;
    hello.token = (char *)token;
    hello.version = (char *)"sim";
    msg_send(conn, MSG_HELLO, 0, rpc_next_call(conn), &hello.base);
}

static void quiet(void *arg, enum log_level level, const char *line)
{
    if (getenv("SIM_LOG")) {
        fprintf(stderr, "%d %s\n", (int)level, line);
    }
    (void)arg;
}

void sim_init(struct sim *sim)
{
    struct gems_error err;

    memset(sim, 0, sizeof *sim);
    log_set_sink(quiet, NULL);
    signal(SIGPIPE, SIG_IGN); /* as gemsd's main does */
    snprintf(sim->dir, sizeof sim->dir, "test_daemon.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(sim->dir));
    snprintf(sim->socket, sizeof sim->socket, "%s/s", sim->dir);
    snprintf(sim->state, sizeof sim->state, "%s/state", sim->dir);
    sim->base = event_base_new();
    list_init(&sim->ranks);
    sim->hang_rank = sim->nan_rank = -1;
    sim->memory_bytes = 1ull << 30;
    sim->step_ms = 2;
    ck_assert_int_eq(settings_init(&sim->settings, &err), GEMS_OK);
    free(sim->settings.state_dir);
    free(sim->settings.socket);
    sim->settings.state_dir = strdup(sim->state);
    sim->settings.socket = strdup(sim->socket);
    sim->settings.ballast_bytes = 64 << 10;
    sim->settings.reserve_bytes = 0;
    sim->settings.suspect_ms = 1000;
    sim->settings.lost_ms = 4000;
    sim->settings.hang_ms = 2500;
    sim->settings.rejoin_ms = 4000;
    sim->settings.recover_ms = 6000;
    sim->settings.kill_ms = 300;
    sim->settings.backoff_ms = 10;
    for (int i = 0; i < SIM_AGENTS; i++) {
        sim->agents[i].sim = sim;
        snprintf(sim->agents[i].name, sizeof sim->agents[i].name, "node%d", i);
        list_init(&sim->agents[i].unsent);
    }
}

void sim_fini(struct sim *sim)
{
    for (int i = 0; i < SIM_AGENTS; i++) {
        sim_agent_kill(sim, i);
    }
    sim_kill(sim);
    settings_fini(&sim->settings);
    event_base_free(sim->base);
    fs_remove_tree(".", sim->dir, NULL);
}

void sim_start(struct sim *sim)
{
    struct gems_error err;

    ck_assert_msg(daemon_create(sim->base, &clock_system, &sim->settings, &sim->daemon, &err) ==
                      GEMS_OK,
                  "%s", err.text);
}

void sim_kill(struct sim *sim)
{
    if (sim->daemon) {
        daemon_destroy(sim->daemon);
        sim->daemon = NULL;
    }
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    *(bool *)arg = true;
}

void sim_step(struct sim *sim)
{
    event_base_loop(sim->base, EVLOOP_ONCE);
    sim->n_turns++;
    sim_peers_turn(sim);
}

void sim_turn(struct sim *sim, int ms)
{
    struct timeval time = { ms / 1000, ms % 1000 * 1000 };
    bool is_over = false;
    struct event *timer = evtimer_new(sim->base, on_time, &is_over);

    evtimer_add(timer, &time);
    while (!is_over) {
        sim_step(sim);
    }
    event_free(timer);
}

void sim_wait(struct sim *sim, sim_condition_fn *condition, void *arg, const char *what)
{
    struct timeval time = { 20, 0 };
    bool is_over = false;
    struct event *timer = evtimer_new(sim->base, on_time, &is_over);

    evtimer_add(timer, &time);
    while (!condition(sim, arg)) {
        sim_step(sim);
        ck_assert_msg(!is_over, "in vain: %s", what);
    }
    event_free(timer);
}

/* ---- client ---- */

struct asking {
    struct rpc_conn *conn;
    uint32_t call;
    bool is_stream, is_done;
    enum msg_type type;
    ProtobufCMessage *reply;
    size_t bytes;
};

static void client_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    struct asking *asking = arg;
    ProtobufCMessage *message;

    (void)conn;
    ck_assert_int_eq(msg_decode(frame, &message, NULL), GEMS_OK);
    if (frame->call != asking->call || asking->is_done) {
        msg_free(message);
        return;
    }
    if (asking->is_stream && frame->type == MSG_LOG_CHUNK) {
        asking->bytes += ((Gems__LogChunk *)message)->data.len;
    } else if (asking->is_stream && frame->type == MSG_FETCH_CHUNK) {
        asking->bytes += ((Gems__FetchChunk *)message)->data.len;
    }
    if (asking->reply) {
        msg_free(asking->reply);
    }
    asking->reply = message;
    asking->type = (enum msg_type)frame->type;
    asking->is_done = !asking->is_stream || (frame->flags & RPC_LAST);
}

static void client_closed(void *arg, struct rpc_conn *conn, const char *why)
{
    struct asking *asking = arg;

    (void)conn;
    (void)why;
    asking->is_done = true;
}

static bool is_answered(struct sim *sim, void *arg)
{
    (void)sim;
    return ((struct asking *)arg)->is_done;
}

static void ask(struct sim *sim, struct asking *asking, enum msg_type type,
                const ProtobufCMessage *message)
{
    static const struct rpc_handlers handlers = { .frame = client_frame, .closed = client_closed };

    asking->conn = sim_connect(sim, &handlers, asking);
    ck_assert_ptr_nonnull(asking->conn);
    sim_hello(asking->conn, "client", "");
    asking->call = rpc_next_call(asking->conn);
    msg_send(asking->conn, type, 0, asking->call, message);
    sim_wait(sim, is_answered, asking, msg_name((uint16_t)type));
    rpc_destroy(asking->conn);
}

ProtobufCMessage *sim_ask(struct sim *sim, enum msg_type type, const ProtobufCMessage *message,
                          enum msg_type *ret_type)
{
    struct asking asking = { 0 };

    ask(sim, &asking, type, message);
    ck_assert_ptr_nonnull(asking.reply);
    if (asking.type == MSG_ERROR) {
        Gems__Error *error = (Gems__Error *)asking.reply;

        gems_error_set(&sim_error, (enum gems_status)error->status, "%s", error->text);
    }
    *ret_type = asking.type;
    return asking.reply;
}

size_t sim_stream(struct sim *sim, enum msg_type type, const ProtobufCMessage *message,
                  int *ret_status)
{
    struct asking asking = { .is_stream = true };

    ask(sim, &asking, type, message);
    *ret_status = asking.type == MSG_ERROR ? ((Gems__Error *)asking.reply)->status : GEMS_OK;
    if (asking.reply) {
        msg_free(asking.reply);
    }
    return asking.bytes;
}

static void make_spec(uint32_t steps, struct job_spec *spec)
{
    spec_init(spec);
    snprintf(spec->name, sizeof spec->name, "sim");
    snprintf(spec->model.zoo, sizeof spec->model.zoo, "mlp");
    spec->model.n_hidden = 2;
    spec->model.hidden[0] = spec->model.hidden[1] = 8;
    spec->model.classes = 4;
    spec->model.channels = 1;
    spec->model.height = spec->model.width = 4;
    spec->data.format = DATA_IDX; /* no agent opens it: see SIM_DATA */
    snprintf(spec->data.train, sizeof spec->data.train, SIM_DATA);
    spec->data.channels = 1;
    spec->data.height = spec->data.width = 4;
    spec->train.epochs = 0;
    spec->train.steps = steps;
    spec->train.batch = 16;
    spec->train.lr = 0.1;
    spec->parallel.schedule = SCHEDULE_LAYER;
    spec->parallel.stages = 2;
    spec->parallel.groups = 1;
    spec->checkpoint_every_steps = 10;
    spec->checkpoint_every_epochs = 0;
    spec->checkpoint_keep = 3;
    spec->max_restarts = 3;
}

uint64_t sim_submit(struct sim *sim, uint32_t steps, const char *key)
{
    Gems__SubmitRequest request = GEMS__SUBMIT_REQUEST__INIT;
    struct job_spec spec;
    ProtobufCMessage *reply;
    enum msg_type type;
    uint64_t id = 0;

    make_spec(steps, &spec);
    request.spec = spec_to_proto(&spec);
    request.key = (char *)key;
    reply = sim_ask(sim, MSG_SUBMIT, &request.base, &type);
    if (type == MSG_SUBMIT_REPLY) {
        id = ((Gems__SubmitReply *)reply)->job;
    }
    msg_free(reply);
    msg_free(&request.spec->base);
    return id;
}

Gems__StatusReply *sim_status(struct sim *sim, uint64_t job)
{
    Gems__JobRequest request = GEMS__JOB_REQUEST__INIT;
    ProtobufCMessage *reply;
    enum msg_type type;

    request.job = job;
    reply = sim_ask(sim, MSG_STATUS, &request.base, &type);
    ck_assert_msg(type == MSG_STATUS_REPLY, "%s", sim_error.text);
    return (Gems__StatusReply *)reply;
}

void sim_wait_state(struct sim *sim, uint64_t job, const char *state)
{
    char last[600] = "";

    for (int i = 0; i < 1000; i++) {
        Gems__StatusReply *status = sim_status(sim, job);
        bool is_there = !strcmp(status->job->state, state);

        snprintf(last, sizeof last, "%s in attempt %u: %s", status->job->state,
                 status->job->attempt, status->job->reason);
        msg_free(&status->base);
        if (is_there) {
            return;
        }
        sim_turn(sim, 20);
    }
    ck_abort_msg("job %d is not %s but %s", (int)job, state, last);
}

void sim_wait_step(struct sim *sim, uint64_t job, uint64_t step)
{
    for (int i = 0; i < 1000; i++) {
        Gems__StatusReply *status = sim_status(sim, job);
        bool is_there = status->job->step >= step && !strcmp(status->job->state, "RUNNING");

        msg_free(&status->base);
        if (is_there) {
            return;
        }
        sim_turn(sim, 5);
    }
    ck_abort_msg("job %d does not reach step %d", (int)job, (int)step);
}

int sim_verb(struct sim *sim, enum msg_type verb, uint64_t job)
{
    Gems__JobRequest request = GEMS__JOB_REQUEST__INIT;
    ProtobufCMessage *reply;
    enum msg_type type;

    request.job = job;
    reply = sim_ask(sim, verb, &request.base, &type);
    msg_free(reply);
    return type == MSG_ERROR ? (int)sim_error.status : GEMS_OK;
}

bool sim_has_event(struct sim *sim, uint64_t job, const char *event, const char *word)
{
    Gems__JobRequest request = GEMS__JOB_REQUEST__INIT;
    Gems__EventsReply *reply;
    enum msg_type type;
    bool has = false;

    request.job = job;
    reply = (Gems__EventsReply *)sim_ask(sim, MSG_EVENTS, &request.base, &type);
    ck_assert_int_eq(type, MSG_EVENTS_REPLY);
    for (size_t i = 0; i < reply->n_events; i++) {
        has |= !strcmp(reply->events[i]->event, event) && strstr(reply->events[i]->why, word);
    }
    msg_free(&reply->base);
    return has;
}
