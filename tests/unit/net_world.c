#include "tests/unit/net_world.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/rng.h"

enum { WINDOW = 16 };

void world_create(struct world *world, const struct net_ops *ops, uint32_t n_ranks,
                  bool is_spinning)
{
    struct gems_error err = { .text = "" };

    memset(world, 0, sizeof *world);
    world->ops = ops;
    world->n_ranks = n_ranks;
    world->connect_timeout_s = 20;
    world->seed = 1;
    for (uint32_t i = 0; i < n_ranks; i++) {
        struct world_rank *rank = &world->ranks[i];

        rank->world = world;
        rank->rank = i;
        rank->config = (struct net_config){
            .job = 17, .attempt = 2, .rank = i, .n_ranks = n_ranks, .secret = "0123456789abcdef"
        };
        ck_assert_msg(link_create(ops, 1024, is_spinning, &rank->link, &err) == 0, "%s", err.text);
        world->address[i] = world->addresses[i];
        world->address_bytes[i] = NET_MAX_ADDRESS;
        ck_assert_msg(ops->address(link_net(rank->link), world->addresses[i],
                                   &world->address_bytes[i], &err) == 0,
                      "%s", err.text);
        ck_assert_msg(link_start(rank->link, &err) == 0, "%s", err.text);
    }
}

void world_destroy(struct world *world)
{
    for (uint32_t i = 0; i < world->n_ranks; i++) {
        link_destroy(world->ranks[i].link);
        world->ranks[i].link = NULL;
    }
}

static void *run_body(void *arg)
{
    struct world_rank *rank = arg;

    rank->status = rank->world->body(rank);
    return NULL;
}

void world_run(struct world *world, int (*body)(struct world_rank *rank))
{
    pthread_t threads[WORLD_MAX_RANKS];

    world->body = body;
    for (uint32_t i = 0; i < world->n_ranks; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_body, &world->ranks[i]), 0);
    }
    for (uint32_t i = 0; i < world->n_ranks; i++) {
        pthread_join(threads[i], NULL);
    }
}

static int connect_rank(struct world_rank *rank)
{
    struct world *world = rank->world;

    return link_connect(rank->link, &rank->config, world->address, world->address_bytes,
                        world->connect_timeout_s, &rank->err);
}

void world_connect(struct world *world)
{
    world_run(world, connect_rank);
}

void world_check_all_ok(const struct world *world)
{
    for (uint32_t i = 0; i < world->n_ranks; i++) {
        ck_assert_msg(world->ranks[i].status == 0, "rank %u: %s", i, world->ranks[i].err.text);
    }
}

static uint64_t key_of(uint32_t from, uint32_t to, uint64_t index)
{
    return ((uint64_t)from << 40 | (uint64_t)to << 32) ^ index * UINT64_C(0x9e3779b97f4a7c15);
}

void world_fill(void *buffer, uint64_t bytes, uint32_t from, uint32_t to, uint64_t index)
{
    uint64_t key = key_of(from, to, index);
    uint8_t *at = buffer;

    for (uint64_t i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(key >> (i % 8 * 8)) ^ (uint8_t)(i / 251);
    }
}

int world_verify(const void *buffer, uint64_t bytes, uint32_t from, uint32_t to, uint64_t index,
                 struct gems_error *err)
{
    uint64_t key = key_of(from, to, index);
    const uint8_t *at = buffer;

    for (uint64_t i = 0; i < bytes; i++) {
        if (at[i] != ((uint8_t)(key >> (i % 8 * 8)) ^ (uint8_t)(i / 251))) {
            return gems_error_set(err, GEMS_E_INTERNAL, "message %llu from %u to %u: byte %llu",
                                  (unsigned long long)index, from, to, (unsigned long long)i);
        }
    }
    return 0;
}

static uint64_t size_of(const struct world *world, uint32_t from, uint32_t to, uint64_t index)
{
    /* Many small ones, few large ones, some empty. */
    uint64_t limit = index % 8 == 0 ? world->max_bytes : world->max_bytes / 64;

    return rng_below(world->seed, key_of(from, to, 0), index, limit + 1);
}

struct slot {
    struct link_request send, recv;
    void *out, *in;
    uint32_t peer;
    uint64_t index;
};

static void shuffle(uint32_t *order, uint32_t n, uint64_t seed, uint64_t stream)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = (uint32_t)rng_below(seed, stream, i, i + 1);

        order[i] = order[j];
        order[j] = i;
    }
}

/* One window of messages to and from every peer. */
static int exchange_window(struct world_rank *rank, struct slot *slots, uint32_t n_slots,
                           uint64_t w)
{
    struct world *world = rank->world;
    uint32_t order[WINDOW * WORLD_MAX_RANKS];
    int status = 0;

    for (uint32_t i = 0; i < n_slots; i++) {
        world_fill(slots[i].out, size_of(world, rank->rank, slots[i].peer, slots[i].index),
                   rank->rank, slots[i].peer, slots[i].index);
    }
    shuffle(order, n_slots, world->seed, w * 64 + rank->rank * 2);
    for (uint32_t i = 0; i < n_slots; i++) {
        struct slot *s = &slots[order[i]];

        link_send(rank->link, &s->send, s->peer, s->index, s->out,
                  size_of(world, rank->rank, s->peer, s->index));
    }
    shuffle(order, n_slots, world->seed, w * 64 + rank->rank * 2 + 1);
    for (uint32_t i = 0; i < n_slots; i++) {
        struct slot *s = &slots[order[i]];

        link_recv(rank->link, &s->recv, s->peer, s->index, s->in,
                  size_of(world, s->peer, rank->rank, s->index));
    }
    for (uint32_t i = 0; i < n_slots && status == 0; i++) {
        struct slot *s = &slots[i];

        status = link_wait(&s->recv, &rank->err);
        if (status == 0) {
            status = world_verify(s->in, size_of(world, s->peer, rank->rank, s->index), s->peer,
                                  rank->rank, s->index, &rank->err);
        }
        if (status == 0) {
            status = link_wait(&s->send, &rank->err);
        }
    }
    return status;
}

int world_exchange(struct world_rank *rank)
{
    struct world *world = rank->world;
    uint32_t n_slots = 0;
    struct slot *slots = calloc(WINDOW * WORLD_MAX_RANKS, sizeof *slots);
    int status = 0;

    for (uint32_t p = 0; p < world->n_ranks; p++) {
        for (uint32_t i = 0; p != rank->rank && i < WINDOW; i++) {
            slots[n_slots++] = (struct slot){ .out = malloc(world->max_bytes + 1),
                                              .in = malloc(world->max_bytes + 1),
                                              .peer = p };
        }
    }
    for (uint64_t w = 0; w * WINDOW < world->n_messages && status == 0; w++) {
        for (uint32_t i = 0; i < n_slots; i++) {
            slots[i].index = w * WINDOW + i % WINDOW;
        }
        status = exchange_window(rank, slots, n_slots, w);
    }
    for (uint32_t i = 0; i < n_slots && status == 0; i++) {
        free(slots[i].out);
        free(slots[i].in);
    }
    if (status == 0) {
        free(slots);
    }
    return status;
}

/* ---- cases ---- */

/* Allocations of our code on a communication thread (linked with --wrap). */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *at, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static _Thread_local bool is_counted;
static _Atomic uint64_t n_counted;

static void count(void)
{
    if (is_counted) {
        n_counted++;
    }
}

void *__wrap_malloc(size_t bytes)
{
    count();
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    count();
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *at, size_t bytes)
{
    count();
    return __real_realloc(at, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    count();
    return __real_aligned_alloc(alignment, bytes);
}

static void start_counting(void *arg)
{
    (void)arg;
    is_counted = true;
}

static int count_body(struct world_rank *rank)
{
    int status = world_exchange(rank);

    if (status == 0) {
        link_post(rank->link, start_counting, NULL);
    }
    return status;
}

void world_case_no_allocations(const struct net_ops *ops)
{
    struct world world;

    world_create(&world, ops, 2, false);
    world_connect(&world);
    world_check_all_ok(&world);
    world.n_messages = 320;
    world.max_bytes = 30000;
    world_run(&world, count_body);
    world_check_all_ok(&world);
    n_counted = 0;
    world.n_messages = 1600;
    world_run(&world, world_exchange);
    world_check_all_ok(&world);
    ck_assert_uint_eq(n_counted, 0);
    world_destroy(&world);
}

void world_case_exchange(const struct net_ops *ops, uint32_t n_ranks, uint32_t n_messages,
                         uint32_t max_bytes)
{
    struct world world;
    struct net_counters counters;

    world_create(&world, ops, n_ranks, false);
    world_connect(&world);
    world_check_all_ok(&world);
    n_messages -= n_messages % WINDOW;
    world.n_messages = n_messages;
    world.max_bytes = max_bytes;
    world_run(&world, world_exchange);
    world_check_all_ok(&world);
    for (uint32_t i = 0; i < n_ranks; i++) {
        ops->counters(link_net(world.ranks[i].link), &counters);
        ck_assert_uint_eq(counters.messages_in, (uint64_t)n_messages * (n_ranks - 1));
        ck_assert_uint_eq(counters.messages_out, (uint64_t)n_messages * (n_ranks - 1));
        ck_assert_uint_eq(counters.dropped, 0);
    }
    world_destroy(&world);
}

static int order_body(struct world_rank *rank)
{
    enum { N = 100 };
    static uint32_t out[N];
    uint32_t in[N] = { 0 };
    struct link_request requests[N] = { 0 };
    int status = 0;

    for (uint32_t i = 0; i < N; i++) {
        if (rank->rank == 0) {
            out[i] = i;
            link_send(rank->link, &requests[i], 1, i % 2, &out[i], sizeof out[i]);
        } else {
            link_recv(rank->link, &requests[i], 0, i % 2, &in[i], sizeof in[i]);
        }
    }
    for (uint32_t i = 0; i < N && status == 0; i++) {
        status = link_wait(&requests[i], &rank->err);
        if (status == 0 && rank->rank == 1 && in[i] != i) {
            status = gems_error_set(&rank->err, GEMS_E_INTERNAL, "%u came as number %u", in[i], i);
        }
    }
    return status;
}

void world_case_order(const struct net_ops *ops)
{
    struct world world;

    world_create(&world, ops, 2, false);
    world_connect(&world);
    world_check_all_ok(&world);
    world_run(&world, order_body);
    world_check_all_ok(&world);
    world_destroy(&world);
}

/* Messages of all sizes reach rank 1 before it posts; the last tag sent comes first. */
static int early_body(struct world_rank *rank)
{
    enum { N = 6, LARGE = 1 << 22 };
    static const uint64_t bytes[N] = { 0, 1, 1000, 9000, 100000, LARGE };
    static uint8_t out[N][LARGE], in[N][LARGE];
    struct link_request requests[N] = { 0 }, note = { 0 };
    uint8_t last = 1;
    int status = 0;

    if (rank->rank == 0) {
        for (uint32_t i = 0; i < N; i++) {
            world_fill(out[i], bytes[i], 0, 1, i);
            link_send(rank->link, &requests[i], 1, i, out[i], bytes[i]);
        }
        link_send(rank->link, &note, 1, 99, &last, 1);
    } else {
        link_recv(rank->link, &note, 0, 99, &last, 1);
        status = link_wait(&note, &rank->err);
        for (uint32_t i = N; i-- > 0;) {
            link_recv(rank->link, &requests[i], 0, i, in[i], bytes[i]);
        }
    }
    for (uint32_t i = 0; i < N && status == 0; i++) {
        status = link_wait(&requests[i], &rank->err);
        if (status == 0 && rank->rank == 1) {
            status = world_verify(in[i], bytes[i], 0, 1, i, &rank->err);
        }
    }
    return status == 0 && rank->rank == 0 ? link_wait(&note, &rank->err) : status;
}

void world_case_early_message(const struct net_ops *ops)
{
    struct world world;

    world_create(&world, ops, 2, false);
    world_connect(&world);
    world_check_all_ok(&world);
    world_run(&world, early_body);
    world_check_all_ok(&world);
    world_destroy(&world);
}

/* Too short, too long, small and large, posted before and after. */
static int length_body(struct world_rank *rank)
{
    static const struct {
        uint64_t sent, expected;
    } cases[] = { { 8, 16 }, { 16, 8 }, { 1 << 20, 4 }, { 4, 1 << 20 }, { 0, 1 } };
    static uint8_t out[1 << 20], in[1 << 20];
    struct link_request request = { 0 }, sync = { 0 };
    uint8_t byte = 0;

    if (rank->rank == 1) {
        memset(in, 0xaa, sizeof in);
    }
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (rank->rank == 0) {
            link_send(rank->link, &request, 1, i, out, cases[i].sent);
            link_wait(&request, &rank->err);
            continue;
        }
        link_recv(rank->link, &request, 0, i, in, cases[i].expected);
        if (link_wait(&request, &rank->err) != GEMS_E_PEER) {
            return gems_error_set(&rank->err, GEMS_E_INTERNAL, "case %u: not refused", i);
        }
        if (!strstr(rank->err.text, "rank 0") || !strstr(rank->err.text, "expected")) {
            return GEMS_E_INTERNAL;
        }
        for (size_t k = 0; k < sizeof in; k++) {
            if (in[k] != 0xaa) {
                return gems_error_set(&rank->err, GEMS_E_INTERNAL, "case %u: byte landed", i);
            }
        }
    }
    /* The peer lives on. */
    if (rank->rank == 0) {
        link_send(rank->link, &sync, 1, 77, &byte, 1);
    } else {
        link_recv(rank->link, &sync, 0, 77, &byte, 1);
    }
    return link_wait(&sync, &rank->err);
}

void world_case_wrong_length(const struct net_ops *ops)
{
    struct world world;

    world_create(&world, ops, 2, false);
    world_connect(&world);
    world_check_all_ok(&world);
    world_run(&world, length_body);
    world_check_all_ok(&world);
    world_destroy(&world);
}

void world_case_refused(const struct net_ops *ops, void (*spoil)(struct net_config *config))
{
    struct world world;
    struct net_counters counters;
    uint64_t dropped = 0;

    world_create(&world, ops, 2, false);
    spoil(&world.ranks[1].config);
    world.connect_timeout_s = 0.5;
    world_connect(&world);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(world.ranks[i].status, GEMS_E_TIMEOUT);
        ck_assert_msg(strstr(world.ranks[i].err.text, i == 0 ? "rank 1" : "rank 0"), "%s",
                      world.ranks[i].err.text);
        ops->counters(link_net(world.ranks[i].link), &counters);
        dropped += counters.dropped;
    }
    ck_assert_uint_gt(dropped, 0);
    world_destroy(&world);
}

static int wait_for_zero(struct world_rank *rank)
{
    struct link_request request = { 0 };
    uint8_t byte;

    if (rank->rank == 0) {
        return 0;
    }
    link_recv(rank->link, &request, 0, 1, &byte, 1);
    return link_wait(&request, &rank->err);
}

static void *leave(void *arg)
{
    link_destroy(arg);
    return NULL;
}

/* Receives that wait, and those posted later, end with the name of the rank. */
void world_case_peer_leaves(const struct net_ops *ops)
{
    struct world world;
    pthread_t leaver;

    world_create(&world, ops, 3, false);
    world_connect(&world);
    world_check_all_ok(&world);
    pthread_create(&leaver, NULL, leave, world.ranks[0].link);
    world.ranks[0].link = NULL;
    for (int round = 0; round < 2; round++) {
        world_run(&world, wait_for_zero);
        for (uint32_t i = 1; i < 3; i++) {
            ck_assert_int_eq(world.ranks[i].status, GEMS_E_PEER);
            ck_assert_msg(strstr(world.ranks[i].err.text, "rank 0"), "%s", world.ranks[i].err.text);
        }
    }
    pthread_join(leaver, NULL);
    world_destroy(&world);
}
