#include "worker/rank/control.h"

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/connect.h"
#include "common/error.h"
#include "common/log.h"
#include "common/rpc.h"
#include "config.h"
#include "worker/rank/link.h"
#include "worker/rank/report.h"

enum {
    CONNECT_TIMEOUT_MS = 5000,
    PAUSE_MIN_MS = 100,
    PAUSE_MAX_MS = 5000,
    REPORT_EVERY_MS = 250,
    REPORTS_PER_HEARTBEAT = 4
};

enum control_state {
    CONTROL_AWAY,     /* no connection; one is being made, or a pause runs */
    CONTROL_GREETED,  /* Hello sent */
    CONTROL_JOINING,  /* Join sent */
    CONTROL_ATTACHED, /* Start or Ok came */
    CONTROL_CLOSED
};

/* A send or call of the compute thread; on its stack. */
struct control_op {
    enum msg_type type;
    const ProtobufCMessage *message;
    bool is_call;
    control_frame_fn fn;
    void *arg;
    uint32_t call;
    bool is_sent, is_done;
    int status;
    struct gems_error err;
};

struct control {
    struct link *link;
    const struct net_ops *net;
    struct event_base *base;
    const Gems__LaunchInfo *info;
    struct address address;
    struct tls_settings tls;
    struct control_join join;
    bool is_running; /* something was posted to the loop */

    /* communication thread */
    struct connector *connector;
    struct rpc_conn *conn;
    struct event *retry, *tick;
    unsigned pause_ms, n_ticks;
    uint32_t call; /* Hello's or Join's */
    uint64_t busy_ns, wait_ns;
    struct report report;

    _Atomic(const struct trainer_watch *) watch;
    _Atomic(const char *) phase;
    _Atomic uint64_t allocated_bytes;
    _Atomic int wish;

    pthread_mutex_t lock; /* what follows; `changed` tells of it */
    pthread_cond_t changed;
    enum control_state state;
    bool has_started;
    Gems__Start *start;
    uint64_t acked_step;
    bool has_ack;
    struct control_op *op; /* NULL: none */
};

static const struct rpc_handlers handlers;

static void set_state(struct control *control, enum control_state state)
{
    pthread_mutex_lock(&control->lock);
    control->state = state;
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
}

/* ---- connecting ---- */

static void pause_and_retry(struct control *control)
{
    struct timeval pause = { control->pause_ms / 1000, control->pause_ms % 1000 * 1000 };

    event_add(control->retry, &pause);
    control->pause_ms = control->pause_ms * 2 < PAUSE_MAX_MS ? control->pause_ms * 2 : PAUSE_MAX_MS;
}

static void on_connected(void *arg, struct bufferevent *bev, const struct gems_error *err)
{
    struct control *control = arg;
    Gems__Hello hello = GEMS__HELLO__INIT;
    struct gems_error failure;

    control->connector = NULL;
    if (!bev) {
        log_warning("gemsd: %s", err->text);
        pause_and_retry(control);
        return;
    }
    control->conn = rpc_create(bev, &handlers, control, &failure);
    if (!control->conn) {
        log_warning("gemsd: %s", failure.text);
        pause_and_retry(control);
        return;
    }
    rpc_set_limits(control->conn, RPC_LIMIT_WORKER, RPC_LIMIT_WORKER);
    hello.protocol = PROTO_VERSION;
    hello.role = (char *)"rank";
    hello.token = control->info->rank_token;
    hello.version = (char *)PACKAGE_VERSION;
    control->call = rpc_next_call(control->conn);
    set_state(control, CONTROL_GREETED);
    msg_send(control->conn, MSG_HELLO, 0, control->call, &hello.base);
}

static void connect_now(struct control *control)
{
    struct gems_error err;

    control->connector = connect_start(control->base, &control->address, &control->tls,
                                       CONNECT_TIMEOUT_MS, on_connected, control, &err);
    if (!control->connector) {
        log_warning("gemsd: %s", err.text);
        pause_and_retry(control);
    }
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    connect_now(arg);
}

static uint64_t watched_step(const struct control *control)
{
    const struct trainer_watch *watch = atomic_load(&control->watch);

    return watch ? atomic_load_explicit(&watch->step, memory_order_relaxed) : 0;
}

static void send_join(struct control *control)
{
    Gems__Join join = GEMS__JOIN__INIT;

    join.ref = control->info->ref;
    join.rank_token = control->info->rank_token;
    join.address.data = (uint8_t *)control->join.address;
    join.address.len = control->join.address_bytes;
    join.net_version = (char *)control->join.net_version;
    join.kind = (char *)control->join.kind;
    join.pid = (uint32_t)getpid();
    join.running = control->has_started;
    join.step = watched_step(control);
    control->call = rpc_next_call(control->conn);
    set_state(control, CONTROL_JOINING);
    msg_send(control->conn, MSG_JOIN, 0, control->call, &join.base);
}

/* ---- frames ---- */

static void end_op(struct control *control, int status, const char *text)
{
    struct control_op *op;

    pthread_mutex_lock(&control->lock);
    op = control->op;
    if (op) {
        op->status = status;
        if (status < 0) {
            gems_error_set(&op->err, (enum gems_status)status, "%s", text);
        }
        op->is_done = true;
        control->op = NULL;
        pthread_cond_broadcast(&control->changed);
    }
    pthread_mutex_unlock(&control->lock);
}

/* gemsd does not want this rank: another attempt runs, or none. */
static void leave(const Gems__Error *error)
{
    log_error("gemsd refuses this rank: %s", error->text);
    _exit(CONTROL_EXIT_FENCED);
}

static void take_start(struct control *control, ProtobufCMessage **inout_message)
{
    pthread_mutex_lock(&control->lock);
    if (!control->has_started) {
        control->start = (Gems__Start *)*inout_message;
        control->has_started = true;
        *inout_message = NULL;
    }
    pthread_mutex_unlock(&control->lock);
}

/* The answer to Hello or Join. */
static void advance(struct control *control, enum msg_type type, ProtobufCMessage **inout_message)
{
    if (type == MSG_ERROR) {
        leave((const Gems__Error *)*inout_message);
    }
    if (control->state == CONTROL_GREETED && type == MSG_HELLO_REPLY) {
        send_join(control);
    } else if (control->state == CONTROL_JOINING && (type == MSG_START || type == MSG_OK)) {
        control->pause_ms = PAUSE_MIN_MS;
        if (type == MSG_START) {
            take_start(control, inout_message);
        }
        set_state(control, CONTROL_ATTACHED);
    } else {
        log_warning("gemsd answers with %s out of turn", msg_name((uint16_t)type));
    }
}

static void obey(struct control *control, const Gems__Command *command)
{
    if (command->stop && !command->checkpoint) {
        log_info("gemsd stops this rank: %s", command->reason);
        _exit(CONTROL_EXIT_COMMAND);
    }
    if (command->stop || command->pause) {
        atomic_store(&control->wish, TRAINER_CHECKPOINT_AND_STOP);
    } else if (command->checkpoint && atomic_load(&control->wish) == TRAINER_GO_ON) {
        atomic_store(&control->wish, TRAINER_CHECKPOINT);
    }
}

static void note_ack(struct control *control, const Gems__ShardAck *ack)
{
    pthread_mutex_lock(&control->lock);
    control->acked_step = ack->step;
    control->has_ack = true;
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
}

static void answer_op(struct control *control, const struct rpc_frame *frame,
                      const ProtobufCMessage *message)
{
    struct control_op *op = control->op;
    int status = GEMS_OK;

    if (!op || !op->is_sent || op->call != frame->call) {
        return;
    }
    if (frame->type == MSG_ERROR) {
        const Gems__Error *error = (const Gems__Error *)message;

        /* GEMS_E_PEER is ours: it says that the connection broke */
        end_op(control,
               error->status < 0 && error->status != GEMS_E_PEER ? error->status : GEMS_E_STATE,
               error->text);
        return;
    }
    if (op->fn) {
        status = op->fn(op->arg, (enum msg_type)frame->type, message);
    }
    if (status < 0) {
        end_op(control, status, "the answer cannot be used");
    } else if (frame->type != MSG_RESTORE_CHUNK || (frame->flags & RPC_LAST)) {
        end_op(control, GEMS_OK, "");
    }
}

static void on_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    struct control *control = arg;
    ProtobufCMessage *message;
    struct gems_error err;

    (void)conn;
    if (msg_decode(frame, &message, &err) < 0) {
        log_warning("gemsd: %s", err.text);
        return;
    }
    if (control->state != CONTROL_ATTACHED && frame->call == control->call) {
        advance(control, (enum msg_type)frame->type, &message);
    } else if (frame->type == MSG_COMMAND) {
        obey(control, (const Gems__Command *)message);
    } else if (frame->type == MSG_SHARD_ACK) {
        note_ack(control, (const Gems__ShardAck *)message);
    } else {
        answer_op(control, frame, message);
    }
    if (message) {
        msg_free(message);
    }
}

static void on_closed(void *arg, struct rpc_conn *conn, const char *why)
{
    struct control *control = arg;

    log_warning("gemsd is gone: %s", why);
    rpc_destroy(conn);
    control->conn = NULL;
    set_state(control, CONTROL_AWAY);
    end_op(control, GEMS_E_PEER, "gemsd is gone");
    pause_and_retry(control);
}

static void on_drained(void *arg, struct rpc_conn *conn)
{
    struct control *control = arg;

    (void)conn;
    if (control->op && control->op->is_sent && !control->op->is_call) {
        end_op(control, GEMS_OK, "");
    }
}

static const struct rpc_handlers handlers = { .frame = on_frame,
                                              .closed = on_closed,
                                              .drained = on_drained };

/* ---- reports and heartbeats ---- */

static double busy_since_last(struct control *control, const struct trainer_watch *watch)
{
    uint64_t busy = atomic_load_explicit(&watch->busy_ns, memory_order_relaxed);
    uint64_t wait = atomic_load_explicit(&watch->wait_ns, memory_order_relaxed);
    uint64_t busy_part = busy - control->busy_ns, all = busy_part + wait - control->wait_ns;

    control->busy_ns = busy;
    control->wait_ns = wait;
    return all ? (double)busy_part / (double)all : 0;
}

static void send_heartbeat(struct control *control)
{
    struct report_pulse pulse = { .watch = atomic_load(&control->watch),
                                  .phase = atomic_load(&control->phase),
                                  .allocated_bytes = atomic_load(&control->allocated_bytes) };
    struct net_counters counters;

    control->net->counters(link_net(control->link), &counters);
    pulse.bytes_in = counters.bytes_in;
    pulse.bytes_out = counters.bytes_out;
    if (pulse.watch) {
        pulse.busy_fraction = busy_since_last(control, pulse.watch);
    }
    report_heartbeat(&pulse, control->conn);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct control *control = arg;

    (void)fd;
    (void)what;
    report_collect(&control->report);
    if (control->state != CONTROL_ATTACHED) {
        return;
    }
    report_send(&control->report, control->conn);
    if (++control->n_ticks % REPORTS_PER_HEARTBEAT == 0) {
        send_heartbeat(control);
    }
}

/* ---- compute thread ---- */

int control_create(struct link *link, const struct net_ops *net, const Gems__LaunchInfo *info,
                   struct control **ret_control, struct gems_error *err)
{
    struct timeval every = { 0, REPORT_EVERY_MS * 1000 };
    struct control *control = calloc(1, sizeof *control);
    int status;

    if (!control) {
        return gems_error_set(err, GEMS_E_NOMEM, "control: no memory");
    }
    pthread_mutex_init(&control->lock, NULL);
    pthread_cond_init(&control->changed, NULL);
    control->link = link;
    control->net = net;
    control->base = link_base(link);
    control->info = info;
    control->pause_ms = PAUSE_MIN_MS;
    control->tls = (struct tls_settings){ .ca = info->tls_ca,
                                          .certificate = info->tls_cert,
                                          .key = info->tls_key };
    atomic_store(&control->phase, "starting");
    status = address_parse(info->connect, &control->address, err);
    if (status < 0) {
        control_destroy(control);
        return status;
    }
    control->retry = evtimer_new(control->base, on_retry, control);
    control->tick = event_new(control->base, -1, EV_PERSIST, on_tick, control);
    if (!control->retry || !control->tick || event_add(control->tick, &every) < 0) {
        control_destroy(control);
        return gems_error_set(err, GEMS_E_NOMEM, "control: no memory");
    }
    *ret_control = control;
    return GEMS_OK;
}

/* Everything that hangs on the loop; on its thread, or before that runs. */
static void tear_down(void *arg)
{
    struct control *control = arg;

    if (control->connector) {
        connect_cancel(control->connector);
    }
    if (control->conn) {
        rpc_destroy(control->conn);
    }
    if (control->retry) {
        event_free(control->retry);
    }
    if (control->tick) {
        event_free(control->tick);
    }
    set_state(control, CONTROL_CLOSED);
}

void control_destroy(struct control *control)
{
    if (!control) {
        return;
    }
    if (!control->is_running) {
        tear_down(control);
    } else if (link_post(control->link, tear_down, control) == GEMS_OK) {
        pthread_mutex_lock(&control->lock);
        while (control->state != CONTROL_CLOSED) {
            pthread_cond_wait(&control->changed, &control->lock);
        }
        pthread_mutex_unlock(&control->lock);
    }
    if (control->start) {
        msg_free(&control->start->base);
    }
    report_fini(&control->report);
    pthread_cond_destroy(&control->changed);
    pthread_mutex_destroy(&control->lock);
    free(control);
}

static void start_connecting(void *arg)
{
    connect_now(arg);
}

int control_join(struct control *control, const struct control_join *join, Gems__Start **ret_start,
                 struct gems_error *err)
{
    control->join = *join;
    control->is_running = true;
    if (link_post(control->link, start_connecting, control) < 0) {
        return gems_error_set(err, GEMS_E_NOMEM, "control: no memory");
    }
    pthread_mutex_lock(&control->lock);
    while (!control->start) {
        pthread_cond_wait(&control->changed, &control->lock);
    }
    *ret_start = control->start;
    control->start = NULL;
    pthread_mutex_unlock(&control->lock);
    return GEMS_OK;
}

void control_watch(struct control *control, const struct trainer_watch *watch,
                   uint64_t allocated_bytes)
{
    atomic_store(&control->allocated_bytes, allocated_bytes);
    atomic_store(&control->watch, watch);
}

void control_phase(struct control *control, const char *phase)
{
    atomic_store(&control->phase, phase);
}

void control_step(struct control *control, const struct trainer_step *step)
{
    report_push(&control->report, step);
}

enum trainer_wish control_wish(struct control *control)
{
    return (enum trainer_wish)atomic_exchange(&control->wish, TRAINER_GO_ON);
}

bool control_is_attached(struct control *control)
{
    bool is_attached;

    pthread_mutex_lock(&control->lock);
    is_attached = control->state == CONTROL_ATTACHED;
    pthread_mutex_unlock(&control->lock);
    return is_attached;
}

void control_wait_attached(struct control *control)
{
    pthread_mutex_lock(&control->lock);
    while (control->state != CONTROL_ATTACHED) {
        pthread_cond_wait(&control->changed, &control->lock);
    }
    pthread_mutex_unlock(&control->lock);
}

/* Communication thread: step reports first, so that gemsd knows the numbers
 * of a step before its checkpoint. */
static void start_op(void *arg)
{
    struct control *control = arg;
    struct control_op *op = control->op;
    int status;

    if (!op || op->is_sent) { /* ended with the connection before its turn */
        return;
    }
    if (control->state != CONTROL_ATTACHED) {
        end_op(control, GEMS_E_PEER, "gemsd is gone");
        return;
    }
    report_collect(&control->report);
    report_send(&control->report, control->conn);
    op->call = op->is_call ? rpc_next_call(control->conn) : 0;
    op->is_sent = true;
    status = msg_send(control->conn, op->type, 0, op->call, op->message);
    if (status < 0) {
        end_op(control, status, "gemsd is gone");
    } else if (status == 0 && !op->is_call) {
        end_op(control, GEMS_OK, "");
    }
}

static int run_op(struct control *control, struct control_op *op, struct gems_error *err)
{
    pthread_mutex_lock(&control->lock);
    control->op = op;
    pthread_mutex_unlock(&control->lock);
    if (link_post(control->link, start_op, control) < 0) {
        control->op = NULL;
        return gems_error_set(err, GEMS_E_NOMEM, "control: no memory");
    }
    pthread_mutex_lock(&control->lock);
    while (!op->is_done) {
        pthread_cond_wait(&control->changed, &control->lock);
    }
    pthread_mutex_unlock(&control->lock);
    return op->status < 0 ? gems_error_set(err, (enum gems_status)op->status, "%s", op->err.text)
                          : GEMS_OK;
}

int control_send(struct control *control, enum msg_type type, const ProtobufCMessage *message,
                 struct gems_error *err)
{
    struct control_op op = { .type = type, .message = message };

    return run_op(control, &op, err);
}

int control_call(struct control *control, enum msg_type type, const ProtobufCMessage *message,
                 control_frame_fn fn, void *arg, struct gems_error *err)
{
    struct control_op op = {
        .type = type, .message = message, .is_call = true, .fn = fn, .arg = arg
    };

    return run_op(control, &op, err);
}

int control_wait_ack(struct control *control, uint64_t step, unsigned timeout_ms,
                     struct gems_error *err)
{
    struct timespec until;
    bool has_ack, is_late = false;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    pthread_mutex_lock(&control->lock);
    while (control->state == CONTROL_ATTACHED && !is_late &&
           !(control->has_ack && control->acked_step >= step)) {
        if (timeout_ms == 0) {
            pthread_cond_wait(&control->changed, &control->lock);
        } else {
            is_late = pthread_cond_clockwait(&control->changed, &control->lock, CLOCK_MONOTONIC,
                                             &until) == ETIMEDOUT;
        }
    }
    has_ack = control->has_ack && control->acked_step >= step;
    pthread_mutex_unlock(&control->lock);
    if (has_ack) {
        return GEMS_OK;
    }
    return is_late ? gems_error_set(err, GEMS_E_TIMEOUT, "not durable after %u ms", timeout_ms)
                   : gems_error_set(err, GEMS_E_PEER, "gemsd is gone");
}
