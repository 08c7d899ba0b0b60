/* Running out of memory at every single allocation: each function succeeds or
 * fails cleanly, keeps nothing and leaks nothing (address sanitizer). */
#include <check.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bg.h"
#include "common/buf.h"
#include "common/conf.h"
#include "common/connect.h"
#include "common/error.h"
#include "common/hash.h"
#include "common/listen.h"
#include "common/rpc.h"
#include "proto/codec.h"
#include "proto/messages.h"
#include "tests/lib/fault.h"
#include "tests/lib/loop.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/temp_dir.h"

enum { MIN_FAULTS = 1 };

START_TEST(buffers_and_hashes)
{
    long n;

    for (n = 0; fault_start(n); n++) {
        struct buf buf = { 0 };
        struct hash_stream *stream = hash_create(NULL);
        int st = GEMS_OK;
        char *text;

        for (int i = 0; i < 200; i++) {
            st = buf_printf(&buf, "line %d\n", i);
        }
        text = buf_take(&buf);
        if (!fault_stop()) {
            ck_assert_int_eq(st, GEMS_OK);
            ck_assert_ptr_nonnull(stream);
        }
        ck_assert(!text || strstr(text, "line 199\n"));
        free(text);
        hash_destroy(stream);
    }
    ck_assert_int_gt(n, MIN_FAULTS);
}
END_TEST

struct settings {
    char *name;
    struct conf_list list;
};

START_TEST(configuration)
{
    static const struct conf_key keys[] = {
        { "", "name", CONF_STRING, offsetof(struct settings, name), 0, 0, NULL },
        { "", "list", CONF_LIST, offsetof(struct settings, list), 0, 0, NULL },
    };
    static const struct conf_table table = { keys, 2 };
    static const char text[] = "name = a\nlist = b c d\n";
    long n;

    for (n = 0; fault_start(n); n++) {
        struct settings settings = { 0 };
        struct gems_error err = { 0 };
        int st = conf_parse(text, sizeof text - 1, "t", &table, &settings, &err);

        if (fault_stop()) {
            ck_assert_int_eq(st, GEMS_E_NOMEM);
            ck_assert_int_eq(err.status, GEMS_E_NOMEM);
        } else {
            ck_assert_int_eq(st, GEMS_OK);
        }
        conf_fini(&table, &settings);
    }
    ck_assert_int_gt(n, MIN_FAULTS);
}
END_TEST

static void make_plan(struct plan *plan)
{
    struct instr forward = { .op = INSTR_FORWARD };

    *plan = (struct plan){ .n_stages = 2, .n_groups = 1, .n_chains = 1, .n_ranks = 2, .n_edges = 1,
                           .stage_node = { 0, 5, 10 }, .advice = "none" };
    plan->edges = calloc(1, sizeof *plan->edges);
    plan->edges[0] = (struct plan_edge){ 4, 0, 1 };
    plan->memory = calloc(2, sizeof *plan->memory);
    ck_assert_int_eq(program_init(&plan->train, 2, NULL), GEMS_OK);
    ck_assert_int_eq(program_add(&plan->train, 0, &forward, NULL), GEMS_OK);
    ck_assert_int_eq(program_add(&plan->train, 1, &forward, NULL), GEMS_OK);
}

START_TEST(codec_of_plans_and_graphs)
{
    struct zoo_spec zoo = { .zoo = "lenet", .classes = 10, .channels = 1, .height = 28, .width = 28 };
    struct graph graph;
    struct plan plan;
    long n;

    ck_assert_int_eq(zoo_build(&zoo, &graph, NULL), GEMS_OK);
    make_plan(&plan);
    for (n = 0; fault_start(n); n++) {
        Gems__Plan *plan_message = plan_to_proto(&plan, -1);
        Gems__Graph *graph_message = graph_to_proto(&graph);
        struct gems_error err = { 0 };
        struct plan plan_copy = { 0 };
        struct graph graph_copy = { 0 };
        int st = GEMS_E_NOMEM;

        if (plan_message && graph_message) {
            st = plan_from_proto(plan_message, &plan_copy, &err);
        }
        if (st == GEMS_OK) {
            st = graph_from_proto(graph_message, &graph_copy, &err);
        }
        ck_assert_int_eq(st, fault_stop() ? GEMS_E_NOMEM : GEMS_OK);
        msg_free(plan_message ? &plan_message->base : NULL);
        msg_free(graph_message ? &graph_message->base : NULL);
        plan_fini(&plan_copy);
        graph_fini(&graph_copy);
    }
    ck_assert_int_gt(n, 30);
    plan_fini(&plan);
    graph_fini(&graph);
}
END_TEST

START_TEST(decoding)
{
    struct plan plan;
    Gems__PlanReply reply = GEMS__PLAN_REPLY__INIT;
    struct rpc_frame frame = { .type = MSG_PLAN_REPLY };
    uint8_t *bytes = NULL;
    long n;

    make_plan(&plan);
    reply.plan = plan_to_proto(&plan, -1);
    ck_assert_int_eq(proto_pack(&reply.base, &bytes, &frame.bytes, NULL), GEMS_OK);
    frame.payload = bytes;
    for (n = 0; fault_start(n); n++) {
        ProtobufCMessage *message = NULL;
        int st = msg_decode(&frame, &message, NULL);

        ck_assert_int_eq(st, fault_stop() ? GEMS_E_INVALID : GEMS_OK);
        ck_assert(st == GEMS_OK || !message);
        msg_free(message);
    }
    ck_assert_int_gt(n, 20);
    free(bytes);
    msg_free(&reply.plan->base);
    plan_fini(&plan);
}
END_TEST

static void no_work(void *arg)
{
    (void)arg;
}

START_TEST(background_thread)
{
    long n;

    for (n = 0; fault_start(n); n++) {
        struct event_base *base = event_base_new();
        struct bg *bg = base ? bg_create(base, "faulty", 4, NULL) : NULL;
        int st = bg ? bg_submit(bg, no_work, NULL, NULL, NULL) : GEMS_E_NOMEM;

        /* libevent gets over some of its own. */
        ck_assert(fault_stop() ? st == GEMS_E_NOMEM || st == GEMS_OK : st == GEMS_OK);
        bg_destroy(bg);
        if (base) {
            event_base_free(base);
        }
    }
    ck_assert_int_gt(n, MIN_FAULTS);
}
END_TEST

/* ---- a connection from listening to the echo of a frame ---- */

struct exchange {
    struct rpc_conn *server, *client;
    bool is_over; /* echoed, or failed */
    bool is_echoed;
};

static void on_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    struct exchange *exchange = arg;

    if (conn == exchange->client) {
        exchange->is_over = exchange->is_echoed = true;
    } else if (rpc_send(conn, frame->type, RPC_REPLY, frame->call, frame->payload, frame->bytes) < 0) {
        exchange->is_over = true;
    }
}

static void on_closed(void *arg, struct rpc_conn *conn, const char *why)
{
    struct exchange *exchange = arg;

    (void)why;
    exchange->is_over = true;
    if (conn == exchange->client) {
        exchange->client = NULL;
    } else {
        exchange->server = NULL;
    }
    rpc_destroy(conn);
}

static const struct rpc_handlers handlers = { on_frame, on_closed, NULL };

static void on_accepted(void *arg, struct bufferevent *bev, const struct listen_peer *peer)
{
    struct exchange *exchange = arg;

    (void)peer;
    exchange->server = rpc_create(bev, &handlers, exchange, NULL);
    exchange->is_over |= !exchange->server;
}

static void on_note(void *arg, const char *text)
{
    (void)text;
    ((struct exchange *)arg)->is_over = true;
}

static void on_connected(void *arg, struct bufferevent *bev, const struct gems_error *err)
{
    struct exchange *exchange = arg;

    (void)err;
    exchange->client = bev ? rpc_create(bev, &handlers, exchange, NULL) : NULL;
    if (!exchange->client || rpc_send(exchange->client, 1, 0, 1, "abc", 3) < 0) {
        exchange->is_over = true;
    }
}

START_TEST(connection)
{
    static const struct listen_handlers listening = { on_accepted, on_note };
    struct address address = { .is_unix = true };
    struct temp_dir dir;
    long n;

    temp_dir_create(&dir);
    snprintf(address.path, sizeof address.path, "%s", temp_dir_file(&dir, "s"));
    fault_spare_libevent(true);
    for (n = 0; fault_start(n); n++) {
        struct exchange exchange = { 0 };
        struct event_base *base = event_base_new();
        struct listener *listener = NULL;
        struct connector *connector = NULL;

        if (base) {
            listener = listen_unix(base, address.path, 0600, &listening, &exchange, NULL);
        }
        if (listener) {
            connector = connect_start(base, &address, NULL, 2000, on_connected, &exchange, NULL);
        }
        while (connector && !exchange.is_over && event_base_loop(base, EVLOOP_ONCE) == 0) {
        }
        if (!fault_stop()) {
            ck_assert(exchange.is_echoed);
        }
        rpc_destroy(exchange.client);
        rpc_destroy(exchange.server);
        listen_destroy(listener);
        if (base) {
            event_base_free(base);
        }
    }
    fault_spare_libevent(false);
    ck_assert_int_gt(n, 3);
    temp_dir_destroy(&dir);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("faults");

    suite_case(suite, "buffers", buffers_and_hashes);
    suite_case(suite, "configuration", configuration);
    suite_case(suite, "codec", codec_of_plans_and_graphs);
    suite_case(suite, "decoding", decoding);
    suite_case(suite, "thread", background_thread);
    suite_case(suite, "connection", connection);
    return run_suite(suite);
}
