/* Clients that ask for too much: others are served as if they were not there. */
#include <check.h>
#include <stdlib.h>

#include "common/error.h"
#include "tests/lib/run_suite.h"
#include "tests/sim/sim_peers.h"

enum { CROWD = 20, MAX_PEERS = 10, FLOOD = 20000, MAX_AHEAD = 1000 };

static struct sim sim;

struct guest {
    struct rpc_conn *conn;
    int n_answers, n_errors;
    bool is_closed;
};

static void setup(void)
{
    sim_init(&sim);
}

static void teardown(void)
{
    sim_fini(&sim);
}

static void take_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    (void)conn;
    ((struct guest *)arg)->n_answers++;
    ((struct guest *)arg)->n_errors += frame->type == MSG_ERROR;
}

static void take_end(void *arg, struct rpc_conn *conn, const char *why)
{
    (void)conn;
    (void)why;
    ((struct guest *)arg)->is_closed = true;
}

static void come(struct guest *guest, const char *role)
{
    static const struct rpc_handlers handlers = { .frame = take_frame, .closed = take_end };

    guest->conn = sim_connect(&sim, &handlers, guest);
    ck_assert_ptr_nonnull(guest->conn);
    sim_hello(guest->conn, role, "");
}

/* Who asks once waits for a few of the questions of who asks all the time, not for all. */
START_TEST(a_flood_of_requests_does_not_hold_up_others)
{
    Gems__ListRequest list = GEMS__LIST_REQUEST__INIT;
    struct guest flood = { 0 };
    uint64_t job;
    int before;

    sim_start(&sim);
    job = sim_submit(&sim, 5, "");
    come(&flood, "client");
    for (int i = 0; i < FLOOD; i++) {
        ck_assert_int_ge(msg_send(flood.conn, MSG_LIST, 0, rpc_next_call(flood.conn), &list.base),
                         GEMS_OK);
    }
    sim_turn(&sim, 20);
    before = flood.n_answers;
    ck_assert(sim_has_event(&sim, job, "submit", ""));
    ck_assert_int_lt(flood.n_answers - before, MAX_AHEAD);
    for (int i = 0; i < 1000 && flood.n_answers < 1 + FLOOD; i++) {
        sim_turn(&sim, 20);
    }
    ck_assert_int_eq(flood.n_answers, 1 + FLOOD); /* that of Hello is one */
    rpc_destroy(flood.conn);
}
END_TEST

START_TEST(a_request_without_a_call_ends_the_connection)
{
    Gems__ListRequest list = GEMS__LIST_REQUEST__INIT;
    struct guest guest = { 0 };

    sim_start(&sim);
    come(&guest, "client");
    msg_send(guest.conn, MSG_LIST, 0, 0, &list.base);
    for (int i = 0; i < 100 && !guest.is_closed; i++) {
        sim_turn(&sim, 20);
    }
    ck_assert(guest.is_closed);
    rpc_destroy(guest.conn);
}
END_TEST

START_TEST(idle_clients_make_room_for_agents_and_ranks)
{
    struct guest crowd[CROWD] = { { 0 } };
    Gems__StatusReply *status;
    int n_closed = 0;
    uint64_t job;

    sim.settings.max_peers = MAX_PEERS;
    sim_start(&sim);
    for (int i = 0; i < CROWD; i++) {
        come(&crowd[i], "client");
        sim_turn(&sim, 5);
    }
    sim_agent_start(&sim, 0);
    sim_turn(&sim, 50);
    job = sim_submit(&sim, 9, "");
    ck_assert_msg(job > 0, "%s", sim_error.text);
    sim_wait_state(&sim, job, "SUCCEEDED");
    status = sim_status(&sim, job);
    ck_assert_uint_eq(status->job->attempt, 1);
    msg_free(&status->base);
    for (int i = 0; i < CROWD; i++) {
        n_closed += crowd[i].is_closed;
        rpc_destroy(crowd[i].conn);
    }
    ck_assert_int_ge(n_closed, CROWD - MAX_PEERS);
}
END_TEST

/* It would end the ranks of the first one, and the first one its own, by turns. */
START_TEST(a_second_agent_of_one_name_is_refused)
{
    Gems__Register message = GEMS__REGISTER__INIT;
    Gems__DeviceInfo device = GEMS__DEVICE_INFO__INIT, *devices[] = { &device };
    struct guest second = { 0 };
    Gems__StatusReply *status;
    uint64_t job;

    sim_start(&sim);
    sim_agent_start(&sim, 0);
    sim_turn(&sim, 50);
    job = sim_submit(&sim, 60, "");
    sim_wait_step(&sim, job, 3);
    come(&second, "worker");
    message.node = sim.agents[0].name;
    message.boot_id = message.version = message.kind_cpu = (char *)"sim";
    message.instance = 1;
    device.id = (char *)"cpu:0";
    device.kind = (char *)"cpu";
    device.memory_bytes = sim.memory_bytes;
    device.threads = 1;
    message.devices = devices;
    message.n_devices = 1;
    msg_send(second.conn, MSG_REGISTER, 0, rpc_next_call(second.conn), &message.base);
    sim_turn(&sim, 100);
    ck_assert_int_eq(second.n_answers, 2);
    ck_assert_int_eq(second.n_errors, 1);
    sim_wait_state(&sim, job, "SUCCEEDED");
    status = sim_status(&sim, job);
    ck_assert_uint_eq(status->job->attempt, 1);
    msg_free(&status->base);
    rpc_destroy(second.conn);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("crowd");
    TCase *tcase = tcase_create("crowd");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_flood_of_requests_does_not_hold_up_others);
    tcase_add_test(tcase, a_request_without_a_call_ends_the_connection);
    tcase_add_test(tcase, idle_clients_make_room_for_agents_and_ranks);
    tcase_add_test(tcase, a_second_agent_of_one_name_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
