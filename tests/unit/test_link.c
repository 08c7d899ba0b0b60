/* The in-process transport and the communication thread. */
#include <check.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/net_world.h"
#include "worker/net/local.h"
#include "worker/net/match.h"
#include "worker/net/pool.h"

static void stop_delays(void)
{
    net_local_set_delays(0, 0);
}

START_TEST(ranks_exchange_random_messages)
{
    world_case_exchange(&net_local, 2 + (uint32_t)_i, 2000 / (1 + (uint32_t)_i), 20000);
}
END_TEST

START_TEST(ranks_exchange_with_random_delays)
{
    net_local_set_delays(7 + (uint64_t)_i, 500);
    world_case_exchange(&net_local, 4, 160, 5000);
}
END_TEST

START_TEST(spinning_thread_exchanges_too)
{
    struct world world;

    world_create(&world, &net_local, 2, true);
    world_connect(&world);
    world_check_all_ok(&world);
    world.n_messages = 200;
    world.max_bytes = 1000;
    world_run(&world, world_exchange);
    world_check_all_ok(&world);
    world_destroy(&world);
}
END_TEST

START_TEST(equal_keys_arrive_in_order)
{
    if (_i > 0) {
        net_local_set_delays((uint64_t)_i, 2000);
    }
    world_case_order(&net_local);
}
END_TEST

static int pair_body(struct world_rank *rank)
{
    static uint8_t out[2];
    struct link_request requests[2] = { 0 };
    uint8_t in[2] = { 0, 0 };
    bool is_overtaken = false;

    for (uint64_t i = 0; i < 200 && !is_overtaken; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            if (rank->rank == 0) {
                link_send(rank->link, &requests[k], 1, k, &out[k], 1);
            } else {
                link_recv(rank->link, &requests[k], 0, k, &in[k], 1);
            }
        }
        if (rank->rank == 1) {
            link_wait(&requests[1], NULL);
            is_overtaken = !link_done(&requests[0]);
        }
        for (uint32_t k = 0; k < 2; k++) {
            if (requests[k].state != LINK_IDLE) {
                link_wait(&requests[k], NULL);
            }
        }
        /* Both leave the loop together. */
        link_send(rank->link, &requests[0], 1 - rank->rank, 5, &is_overtaken, 1);
        link_recv(rank->link, &requests[1], 1 - rank->rank, 5, &in[0], 1);
        link_wait(&requests[0], NULL);
        link_wait(&requests[1], NULL);
        is_overtaken |= in[0] != 0;
    }
    return is_overtaken ? 0 : GEMS_E_INTERNAL;
}

START_TEST(delays_let_other_keys_overtake)
{
    struct world world;

    net_local_set_delays(3, 1000);
    world_create(&world, &net_local, 2, false);
    world_connect(&world);
    world_check_all_ok(&world);
    world_run(&world, pair_body);
    world_check_all_ok(&world);
    world_destroy(&world);
}
END_TEST

START_TEST(messages_may_come_before_their_receive)
{
    world_case_early_message(&net_local);
}
END_TEST

START_TEST(another_length_ends_the_receive)
{
    world_case_wrong_length(&net_local);
}
END_TEST

static void spoil_secret(struct net_config *config)
{
    config->secret[31] ^= 1;
}

static void spoil_attempt(struct net_config *config)
{
    config->attempt--;
}

static void spoil_job(struct net_config *config)
{
    config->job++;
}

static void (*const spoilers[])(struct net_config *) = { spoil_secret, spoil_attempt, spoil_job };

START_TEST(strangers_are_refused)
{
    world_case_refused(&net_local, spoilers[_i]);
}
END_TEST

START_TEST(a_peer_that_leaves_ends_its_requests)
{
    world_case_peer_leaves(&net_local);
}
END_TEST

START_TEST(connecting_to_nobody_fails_at_once)
{
    struct world world;

    world_create(&world, &net_local, 2, false);
    link_destroy(world.ranks[1].link);
    world.ranks[1].link = NULL;
    ck_assert_int_eq(link_connect(world.ranks[0].link, &world.ranks[0].config, world.address,
                                  world.address_bytes, 20, &world.ranks[0].err),
                     GEMS_E_PEER);
    ck_assert_ptr_nonnull(strstr(world.ranks[0].err.text, "rank 1"));
    world_destroy(&world);
}
END_TEST

static void *abort_soon(void *arg)
{
    link_abort(arg, GEMS_E_CANCELLED, "job 17 was cancelled");
    return NULL;
}

START_TEST(abort_ends_waits_now_and_later)
{
    struct world world;
    struct link_request requests[2] = { 0 };
    struct gems_error err;
    uint8_t bytes[2];
    pthread_t thread;

    world_create(&world, &net_local, 2, false);
    world_connect(&world);
    for (uint64_t i = 0; i < 2; i++) {
        link_recv(world.ranks[0].link, &requests[i], 1, i, &bytes[i], 1);
        if (i == 0) {
            pthread_create(&thread, NULL, abort_soon, world.ranks[0].link);
        }
        ck_assert_int_eq(link_wait(&requests[i], &err), GEMS_E_CANCELLED);
        ck_assert_str_eq(err.text, "job 17 was cancelled");
    }
    pthread_join(thread, NULL);
    world_destroy(&world);
}
END_TEST

struct posted {
    struct link *link;
    pthread_t thread;
    _Atomic int n_runs;
};

static void on_post(void *arg)
{
    struct posted *posted = arg;

    posted->thread = pthread_self();
    posted->n_runs++;
}

START_TEST(posts_run_on_the_communication_thread)
{
    struct world world;
    struct posted posted = { .n_runs = 0 };

    world_create(&world, &net_local, 1, false);
    world_connect(&world);
    world_check_all_ok(&world); /* one rank has nobody to wait for */
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(link_post(world.ranks[0].link, on_post, &posted), 0);
    }
    while (posted.n_runs < 1000) {
        sched_yield();
    }
    ck_assert(!pthread_equal(posted.thread, pthread_self()));
    world_destroy(&world);
}
END_TEST

START_TEST(a_message_allocates_nothing)
{
    world_case_no_allocations(&net_local);
}
END_TEST

START_TEST(match_keeps_order_and_forgets_nothing)
{
    enum { N = 3000 };
    static struct match_item items[N];
    struct match_table table;
    struct match_item *item;
    uint32_t n = 0;

    ck_assert_int_eq(net_match_init(&table, NULL), 0);
    for (uint32_t i = 0; i < N; i++) {
        items[i] = (struct match_item){ .source = i % 3, .tag = (uint64_t)(i % 500) << 40 };
        net_match_push(&table, &items[i]);
    }
    ck_assert_ptr_null(net_match_take(&table, 7, 0));
    ck_assert_ptr_null(net_match_take(&table, 0, 1));
    for (uint32_t i = 0; i < N; i += 2) {
        item = net_match_take(&table, i % 3, (uint64_t)(i % 500) << 40);
        ck_assert_ptr_eq(item, &items[i]);
    }
    while ((item = match_take_source(&table, 1))) {
        ck_assert_uint_eq(item->source, 1);
        n++;
    }
    ck_assert_uint_eq(n, N / 6);
    ck_assert_uint_eq(table.n_items, N / 3);
    net_match_fini(&table);
}
END_TEST

START_TEST(pool_reuses_and_has_a_limit)
{
    struct pool pool;
    void *objects[128];

    pool_init(&pool, 40, 128);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 128; i++) {
            objects[i] = pool_take(&pool);
            ck_assert_ptr_nonnull(objects[i]);
            memset(objects[i], i, 40);
        }
        ck_assert_ptr_null(pool_take(&pool));
        for (int i = 0; i < 128; i++) {
            ck_assert_uint_eq(((uint8_t *)objects[i])[39], (unsigned)i);
            pool_give(&pool, objects[i]);
        }
    }
    pool_fini(&pool);
}
END_TEST

START_TEST(unknown_transport_is_named_with_what_there_is)
{
    struct gems_error err;

    ck_assert_ptr_eq(net_find("local", &err), &net_local);
    ck_assert_ptr_null(net_find("pigeon", &err));
    ck_assert_int_eq(err.status, GEMS_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.hint, "local"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("link");
    TCase *parts = tcase_create("parts");
    TCase *net = tcase_create("local net");
    TCase *link = tcase_create("link");
    SRunner *runner;
    int n_failed;

    tcase_add_test(parts, match_keeps_order_and_forgets_nothing);
    tcase_add_test(parts, pool_reuses_and_has_a_limit);
    tcase_add_test(parts, unknown_transport_is_named_with_what_there_is);
    suite_add_tcase(suite, parts);
    tcase_set_timeout(net, 60);
    tcase_add_checked_fixture(net, NULL, stop_delays);
    tcase_add_loop_test(net, ranks_exchange_random_messages, 0, 3);
    tcase_add_loop_test(net, ranks_exchange_with_random_delays, 0, 2);
    tcase_add_loop_test(net, equal_keys_arrive_in_order, 0, 4);
    tcase_add_test(net, delays_let_other_keys_overtake);
    tcase_add_test(net, messages_may_come_before_their_receive);
    tcase_add_test(net, another_length_ends_the_receive);
    tcase_add_loop_test(net, strangers_are_refused, 0, 3);
    tcase_add_test(net, a_peer_that_leaves_ends_its_requests);
    tcase_add_test(net, connecting_to_nobody_fails_at_once);
    suite_add_tcase(suite, net);
    tcase_set_timeout(link, 60);
    tcase_add_test(link, spinning_thread_exchanges_too);
    tcase_add_test(link, abort_ends_waits_now_and_later);
    tcase_add_test(link, posts_run_on_the_communication_thread);
    tcase_add_test(link, a_message_allocates_nothing);
    suite_add_tcase(suite, link);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
