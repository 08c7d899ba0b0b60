#include "worker/agent/session.h"

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/connect.h"
#include "common/error.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/notify.h"
#include "config.h"
#include "plan/spec.h"
#include "proto/gems.pb-c.h"
#include "worker/agent/agent.h"
#include "worker/agent/inspect.h"
#include "worker/agent/ranks.h"
#include "worker/agent/roots.h"

enum {
    CONNECT_MS = 10000,
    FIRST_RETRY_MS = 100,
    LAST_RETRY_MS = 5000,
    PING_MS = 1000,
    SILENCE_US = 10 * 1000 * 1000, /* without any frame: gemsd is gone */
    MAX_OUTPUT = 16 << 20,
};

struct session {
    struct agent *agent;
    struct connector *connector; /* while it connects */
    struct rpc_conn *conn;       /* while it is connected */
    uint32_t connection;         /* counts connections: answers go to their own only */
    bool is_online;              /* registered */
    uint32_t hello_call, register_call;
    struct event *retry_timer, *ping_timer;
    uint32_t retry_ms;
    int64_t heard_us;
    char last_error[256]; /* logged once until something else happens */
    char boot_id[40];
    uint64_t instance; /* of this process */
};

static void session_connect(struct session *session);

bool session_is_online(const struct session *session)
{
    return session->is_online;
}

uint32_t session_call(struct session *session, enum msg_type type, const ProtobufCMessage *message)
{
    uint32_t call;

    if (!session->is_online) {
        return 0;
    }
    call = rpc_next_call(session->conn);
    return msg_send(session->conn, type, 0, call, message) < 0 ? 0 : call;
}

void session_reply(struct session *session, uint32_t connection, uint32_t call, enum msg_type type,
                   const void *payload, size_t bytes)
{
    if (session->conn && session->connection == connection && call != 0) {
        rpc_send(session->conn, type, RPC_REPLY | RPC_LAST, call, payload, bytes);
    }
}

void session_reply_error(struct session *session, uint32_t connection, uint32_t call,
                         const struct gems_error *err)
{
    if (session->conn && session->connection == connection && call != 0) {
        msg_send_error(session->conn, call, err);
    }
}

/* ---- losing the connection ---- */

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    session_connect(arg);
}

/* Many agents come back at once when gemsd restarts: half to all of the time. */
static void session_retry_later(struct session *session)
{
    uint32_t random = 0, ms;
    struct timeval delay;

    if (session->agent->is_stopping) {
        return;
    }
    hash_random(&random, sizeof random, NULL);
    ms = session->retry_ms / 2 + random % (session->retry_ms / 2 + 1);
    session->retry_ms =
        session->retry_ms * 2 < LAST_RETRY_MS ? session->retry_ms * 2 : LAST_RETRY_MS;
    delay = (struct timeval){ .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
    evtimer_add(session->retry_timer, &delay);
}

static void session_lose(struct session *session, const char *why)
{
    if (strcmp(session->last_error, why) != 0) {
        log_warning("gemsd: %s; trying again", why);
        snprintf(session->last_error, sizeof session->last_error, "%s", why);
    }
    session->is_online = false;
    session->hello_call = session->register_call = 0;
    evtimer_del(session->ping_timer);
    if (session->conn) {
        rpc_destroy(session->conn);
        session->conn = NULL;
    }
    ranks_offline(session->agent);
    agent_check_stop(session->agent);
    session_retry_later(session);
}

static void on_ping(evutil_socket_t fd, short what, void *arg)
{
    struct session *session = arg;
    Gems__Ping ping = GEMS__PING__INIT;

    (void)fd;
    (void)what;
    if (clock_monotonic_us(&clock_system) - session->heard_us > SILENCE_US) {
        session_lose(session, "silent for 10 s");
        return;
    }
    session_call(session, MSG_PING, &ping.base);
}

/* ---- Hello, Register ---- */

static void send_hello(struct session *session)
{
    const struct settings *settings = &session->agent->settings;
    Gems__Hello hello = GEMS__HELLO__INIT;

    hello.protocol = PROTO_VERSION;
    hello.role = (char *)(uintptr_t) "worker";
    hello.token = settings->token ? settings->token : hello.token;
    hello.version = (char *)(uintptr_t)PACKAGE_VERSION;
    session->hello_call = rpc_next_call(session->conn);
    msg_send(session->conn, MSG_HELLO, 0, session->hello_call, &hello.base);
}

static int fill_devices(const struct devices *devices, Gems__DeviceInfo *infos,
                        Gems__DeviceInfo **pointers)
{
    for (uint32_t i = 0; i < devices->n; i++) {
        gems__device_info__init(&infos[i]);
        infos[i].id = (char *)(uintptr_t)devices->items[i].id;
        infos[i].kind = (char *)(uintptr_t)devices->items[i].kind;
        infos[i].memory_bytes = devices->items[i].memory_bytes;
        infos[i].threads = devices->items[i].threads;
        pointers[i] = &infos[i];
    }
    return (int)devices->n;
}

static void send_register(struct session *session)
{
    struct agent *agent = session->agent;
    size_t n = ranks_count(agent);
    Gems__Register message = GEMS__REGISTER__INIT;
    Gems__DeviceInfo infos[DEVICES_MAX], *devices[DEVICES_MAX];
    Gems__RankRef *refs = calloc(n + 1, sizeof *refs), **running = calloc(n + 1, sizeof *running);

    if (!refs || !running) {
        free(refs);
        free(running);
        session_lose(session, "no memory to register");
        return;
    }
    ranks_refs(agent, refs);
    for (size_t i = 0; i < n; i++) {
        running[i] = &refs[i];
    }
    message.node = agent->settings.name;
    message.boot_id = session->boot_id;
    message.version = (char *)(uintptr_t)PACKAGE_VERSION;
    message.n_devices = (size_t)fill_devices(&agent->devices, infos, devices);
    message.devices = devices;
    message.n_running = n;
    message.running = running;
    message.cores = devices_cores();
    message.uid = (uint32_t)getuid();
    message.kind_cpu = agent->kind_cpu;
    message.instance = session->instance;
    session->register_call = rpc_next_call(session->conn);
    msg_send(session->conn, MSG_REGISTER, 0, session->register_call, &message.base);
    free(refs);
    free(running);
}

static void on_registered(struct session *session, const Gems__RegisterReply *reply)
{
    struct agent *agent = session->agent;

    session->is_online = true;
    session->retry_ms = FIRST_RETRY_MS;
    session->last_error[0] = '\0';
    log_info("gemsd: registered as %s with %u devices", agent->settings.name, agent->devices.n);
    notify_ready();
    for (size_t i = 0; i < reply->n_kill; i++) {
        log_info("job %" PRIu64 " attempt %u rank %u: is over, killed", reply->kill[i]->job,
                 reply->kill[i]->attempt, reply->kill[i]->rank);
        ranks_kill(agent, reply->kill[i], 0);
    }
    ranks_online(agent);
    evtimer_add(session->ping_timer, &(struct timeval){ .tv_sec = PING_MS / 1000 });
}

/* ---- answers ---- */

static void on_refused(struct session *session, const char *what, const ProtobufCMessage *message)
{
    const Gems__Error *error = (const Gems__Error *)message;
    char why[256];

    snprintf(why, sizeof why, "%s refused: %.150s%s%.60s", what, error->text,
             error->hint[0] ? "; " : "", error->hint);
    /* A mistake of configuration: there is no hurry. */
    session->retry_ms = LAST_RETRY_MS;
    session_lose(session, why);
}

static void on_answer(struct session *session, const struct rpc_frame *frame,
                      const ProtobufCMessage *message)
{
    bool is_error = frame->type == MSG_ERROR;

    if (frame->call == session->hello_call) {
        session->hello_call = 0;
        if (is_error) {
            on_refused(session, "hello", message);
        } else {
            rpc_set_limits(session->conn, RPC_LIMIT_WORKER, MAX_OUTPUT);
            send_register(session);
        }
    } else if (frame->call == session->register_call) {
        session->register_call = 0;
        if (is_error) {
            on_refused(session, "register", message);
        } else if (frame->type == MSG_REGISTER_REPLY) {
            on_registered(session, (const Gems__RegisterReply *)message);
        }
    } else {
        /* A ping's, if no rank waits for it. */
        ranks_answered(session->agent, frame->call, !is_error);
    }
}

/* ---- orders ---- */

struct question {
    struct session *session;
    uint32_t connection, call;
};

static void on_inspected(void *arg, const uint8_t *reply, size_t n, const struct gems_error *err)
{
    struct question *question = arg;

    if (err) {
        session_reply_error(question->session, question->connection, question->call, err);
    } else {
        session_reply(question->session, question->connection, question->call, MSG_INSPECT_REPLY,
                      reply, n);
    }
    free(question);
}

/* Before gems-inspect opens anything. */
static int check_question(const struct agent *agent, const Gems__InspectRequest *request,
                          struct gems_error *err)
{
    const Gems__DataSpec *data = request->spec ? request->spec->data : NULL;
    const struct conf_list *roots = &agent->settings.data_roots;
    struct submitter who = { request->has_uid, request->uid };
    int status = 0;

    if (data && request->data && data->format != DATA_SYNTHETIC) {
        status = roots_check(roots, &who, data->train, err);
        if (status == 0 && data->eval[0]) {
            status = roots_check(roots, &who, data->eval, err);
        }
    }
    return status;
}

static void on_inspect(struct session *session, const struct rpc_frame *frame,
                       const ProtobufCMessage *message)
{
    struct question *question = malloc(sizeof *question);
    struct gems_error err = { 0 };
    int status = question ? 0 : gems_error_set(&err, GEMS_E_NOMEM, "inspect: no memory");

    if (status == 0) {
        status = check_question(session->agent, (const Gems__InspectRequest *)message, &err);
    }
    if (status == 0) {
        *question = (struct question){ session, session->connection, frame->call };
        status = inspect_start(session->agent, frame->payload, frame->bytes, on_inspected, question,
                               &err);
    }
    if (status < 0) {
        session_reply_error(session, session->connection, frame->call, &err);
        free(question);
    }
}

static void on_launch(struct session *session, const struct rpc_frame *frame,
                      const ProtobufCMessage *message)
{
    struct gems_error err = { 0 };

    if (ranks_launch(session->agent, (const Gems__Launch *)message, &err) < 0) {
        log_error("%s", err.text);
        session_reply_error(session, session->connection, frame->call, &err);
    } else {
        session_reply(session, session->connection, frame->call, MSG_OK, NULL, 0);
    }
}

static void on_kill(struct session *session, const struct rpc_frame *frame,
                    const ProtobufCMessage *message)
{
    const Gems__Kill *order = (const Gems__Kill *)message;

    if (order->ref) {
        ranks_kill(session->agent, order->ref, order->grace_ms);
    }
    session_reply(session, session->connection, frame->call, MSG_OK, NULL, 0);
}

static void on_request(struct session *session, const struct rpc_frame *frame,
                       const ProtobufCMessage *message)
{
    struct gems_error err;

    switch (frame->type) {
    case MSG_LAUNCH:
        on_launch(session, frame, message);
        break;
    case MSG_KILL:
        on_kill(session, frame, message);
        break;
    case MSG_INSPECT:
        on_inspect(session, frame, message);
        break;
    case MSG_PING:
        session_reply(session, session->connection, frame->call, MSG_OK, NULL, 0);
        break;
    default:
        gems_error_set(&err, GEMS_E_UNSUPPORTED, "an agent does not take %s",
                       msg_name(frame->type));
        session_reply_error(session, session->connection, frame->call, &err);
        break;
    }
}

static void on_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    struct session *session = arg;
    struct gems_error err = { 0 };
    ProtobufCMessage *message;

    (void)conn;
    session->heard_us = clock_monotonic_us(&clock_system);
    if (msg_decode(frame, &message, &err) < 0) {
        session_lose(session, err.text);
        return;
    }
    if (frame->flags & RPC_REPLY) {
        on_answer(session, frame, message);
    } else {
        on_request(session, frame, message);
    }
    msg_free(message);
}

static void on_closed(void *arg, struct rpc_conn *conn, const char *why)
{
    (void)conn;
    session_lose(arg, why);
}

/* ---- connecting ---- */

static void on_connected(void *arg, struct bufferevent *bev, const struct gems_error *why)
{
    static const struct rpc_handlers handlers = { .frame = on_frame, .closed = on_closed };
    struct session *session = arg;
    struct gems_error err = { 0 };

    session->connector = NULL;
    if (!bev) {
        session_lose(session, why->text);
        return;
    }
    session->conn = rpc_create(bev, &handlers, session, &err);
    if (!session->conn) {
        session_lose(session, err.text);
        return;
    }
    session->connection++;
    session->heard_us = clock_monotonic_us(&clock_system);
    send_hello(session);
}

static void session_connect(struct session *session)
{
    const struct settings *settings = &session->agent->settings;
    struct tls_settings tls = settings_tls(settings);
    struct gems_error err = { 0 };

    session->connector = connect_start(session->agent->base, &settings->address,
                                       settings->address.is_unix ? NULL : &tls, CONNECT_MS,
                                       on_connected, session, &err);
    if (!session->connector) {
        session_lose(session, err.text);
    }
}

void session_start(struct session *session)
{
    session_connect(session);
}

static void read_boot_id(struct session *session)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (file) {
        if (fgets(session->boot_id, sizeof session->boot_id, file)) {
            session->boot_id[strcspn(session->boot_id, "\n")] = '\0';
        }
        fclose(file);
    }
}

struct session *session_create(struct agent *agent, struct gems_error *err)
{
    struct session *session = calloc(1, sizeof *session);

    if (!session) {
        gems_error_set(err, GEMS_E_NOMEM, "session: no memory");
        return NULL;
    }
    session->agent = agent;
    session->retry_ms = FIRST_RETRY_MS;
    read_boot_id(session);
    if (hash_random(&session->instance, sizeof session->instance, err) < 0) {
        session_destroy(session);
        return NULL;
    }
    session->retry_timer = evtimer_new(agent->base, on_retry, session);
    session->ping_timer = event_new(agent->base, -1, EV_PERSIST, on_ping, session);
    if (!session->retry_timer || !session->ping_timer) {
        gems_error_set(err, GEMS_E_NOMEM, "session: no memory");
        session_destroy(session);
        return NULL;
    }
    return session;
}

void session_destroy(struct session *session)
{
    if (!session) {
        return;
    }
    if (session->connector) {
        connect_cancel(session->connector);
    }
    if (session->conn) {
        rpc_destroy(session->conn);
    }
    if (session->retry_timer) {
        event_free(session->retry_timer);
    }
    if (session->ping_timer) {
        event_free(session->ping_timer);
    }
    free(session);
}
