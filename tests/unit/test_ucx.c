/* The transport over UCX: ranks as threads, and as processes that are killed.
 *
 * Every case runs over what UCX picks on one host (shared memory) and over TCP
 * alone. The program starts itself again with the variables that UCX reads when
 * it is loaded. Processes are forked before this process has touched UCX.
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/net_world.h"

static const char *const transports[] = { NULL, "tcp,self" };
enum { N_TRANSPORTS = 2 };

static const struct net_ops *ucx(int i)
{
    struct gems_error err = { .text = "" };
    const struct net_ops *ops = net_find("ucx", &err);

    ck_assert_msg(ops != NULL, "%s", err.text);
    if (transports[i]) {
        setenv("UCX_TLS", transports[i], 1);
    } else {
        unsetenv("UCX_TLS");
    }
    return ops;
}

START_TEST(two_ranks_exchange_random_messages)
{
    world_case_exchange(ucx(_i), 2, 3000, 60000);
}
END_TEST

START_TEST(four_ranks_exchange_random_messages)
{
    world_case_exchange(ucx(_i), 4, 800, 60000);
}
END_TEST

START_TEST(large_messages_arrive_whole)
{
    world_case_exchange(ucx(_i), 2, 16, 64 << 20);
}
END_TEST

START_TEST(equal_keys_arrive_in_order)
{
    world_case_order(ucx(_i));
}
END_TEST

START_TEST(messages_may_come_before_their_receive)
{
    world_case_early_message(ucx(_i));
}
END_TEST

START_TEST(another_length_ends_the_receive)
{
    world_case_wrong_length(ucx(_i));
}
END_TEST

static void spoil_secret(struct net_config *config)
{
    config->secret[0] ^= 0x80;
}

static void spoil_attempt(struct net_config *config)
{
    config->attempt = 1;
}

static void spoil_ranks(struct net_config *config)
{
    config->n_ranks = 2;
    config->job = 18;
}

static void (*const spoilers[])(struct net_config *) = { spoil_secret, spoil_attempt, spoil_ranks };

START_TEST(strangers_are_refused)
{
    world_case_refused(ucx(_i % N_TRANSPORTS), spoilers[_i / N_TRANSPORTS]);
}
END_TEST

START_TEST(a_peer_that_leaves_ends_its_requests)
{
    world_case_peer_leaves(ucx(_i));
}
END_TEST

START_TEST(a_message_allocates_nothing)
{
    world_case_no_allocations(ucx(_i));
}
END_TEST

START_TEST(version_names_the_library)
{
    ck_assert_ptr_nonnull(strstr(ucx(0)->version(), "ucx 1."));
}
END_TEST

/* ---- processes ---- */

/* A process that seems to have another UCX: the linker puts this in place of
 * the library's function (--wrap). */
static uint32_t odd_rank = WORLD_MAX_RANKS;
static bool is_odd;

void __real_ucp_get_version(unsigned *major, unsigned *minor, unsigned *release);
void __wrap_ucp_get_version(unsigned *major, unsigned *minor, unsigned *release);

void __wrap_ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
    __real_ucp_get_version(major, minor, release);
    *minor += is_odd ? 500 : 0;
}

struct child {
    pid_t pid;
    int to, from; /* our ends of its pipes */
};

static void read_all(int fd, void *buffer, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = read(fd, (char *)buffer + done, bytes - done);

        if (n <= 0) {
            _exit(3);
        }
        done += (size_t)n;
    }
}

static void write_all(int fd, const void *buffer, size_t bytes)
{
    ck_assert_int_eq(write(fd, buffer, bytes), (ssize_t)bytes);
}

/* One rank: tells its address, hears those of all, connects, runs, tells its status. */
static int child_main(const struct net_ops *ops, uint32_t rank, uint32_t n, int in, int out,
                      int (*body)(struct world_rank *rank))
{
    static struct world world;
    struct world_rank *self = &world.ranks[rank];
    struct gems_error *err = &self->err;
    int status;

    is_odd = rank == odd_rank;
    world = (struct world){
        .ops = ops, .n_ranks = n, .seed = 5, .n_messages = 320, .max_bytes = 200000
    };
    *self = (struct world_rank){ .world = &world, .rank = rank };
    self->config = (struct net_config){
        .job = 9, .attempt = 1, .rank = rank, .n_ranks = n, .secret = "secret"
    };
    world.address_bytes[rank] = NET_MAX_ADDRESS;
    status = link_create(ops, 512, false, &self->link, err);
    if (status == 0) {
        status = ops->address(link_net(self->link), world.addresses[rank],
                              &world.address_bytes[rank], err);
    }
    if (status == 0) {
        status = link_start(self->link, err);
    }
    if (status < 0) {
        return 2;
    }
    if (write(out, &world.address_bytes[rank], sizeof(size_t)) < 0 ||
        write(out, world.addresses[rank], NET_MAX_ADDRESS) < 0) {
        return 2;
    }
    for (uint32_t i = 0; i < n; i++) {
        world.address[i] = world.addresses[i];
        read_all(in, &world.address_bytes[i], sizeof(size_t));
        read_all(in, world.addresses[i], NET_MAX_ADDRESS);
    }
    status = link_connect(self->link, &self->config, world.address, world.address_bytes, 20, err);
    if (write(out, &status, sizeof status) < 0) {
        return 2;
    }
    if (status == 0) {
        status = body(self);
    }
    if (write(out, &status, sizeof status) < 0 || write(out, err->text, sizeof err->text) < 0) {
        return 2;
    }
    /* Not before all are done: a link that closes ends its peers' receives. */
    if (read(in, &status, 1) != 0) {
        return 2;
    }
    link_destroy(self->link);
    return 0;
}

static void start_children(struct child *children, const struct net_ops *ops, uint32_t n,
                           int (*body)(struct world_rank *rank))
{
    for (uint32_t i = 0; i < n; i++) {
        int to[2], from[2];

        ck_assert_int_eq(pipe(to), 0);
        ck_assert_int_eq(pipe(from), 0);
        children[i].pid = fork();
        ck_assert_int_ge(children[i].pid, 0);
        if (children[i].pid == 0) {
            for (uint32_t k = 0; k < i; k++) {
                close(children[k].to);
                close(children[k].from);
            }
            close(to[1]);
            close(from[0]);
            _exit(child_main(ops, i, n, to[0], from[1], body));
        }
        close(to[0]);
        close(from[1]);
        children[i].to = to[1];
        children[i].from = from[0];
    }
}

static void exchange_addresses(struct child *children, uint32_t n)
{
    static uint8_t addresses[WORLD_MAX_RANKS][NET_MAX_ADDRESS];
    size_t bytes[WORLD_MAX_RANKS];

    for (uint32_t i = 0; i < n; i++) {
        read_all(children[i].from, &bytes[i], sizeof bytes[i]);
        read_all(children[i].from, addresses[i], NET_MAX_ADDRESS);
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n; k++) {
            write_all(children[i].to, &bytes[k], sizeof bytes[k]);
            write_all(children[i].to, addresses[k], NET_MAX_ADDRESS);
        }
    }
}

/* Returns when all are connected. */
static void introduce(struct child *children, uint32_t n)
{
    int status;

    exchange_addresses(children, n);
    for (uint32_t i = 0; i < n; i++) {
        read_all(children[i].from, &status, sizeof status);
        ck_assert_int_eq(status, 0);
    }
}

static void end_children(struct child *children, uint32_t first, uint32_t n)
{
    int wstatus;

    for (uint32_t i = first; i < n; i++) {
        close(children[i].to);
    }
    for (uint32_t i = first; i < n; i++) {
        close(children[i].from);
        ck_assert_int_eq(waitpid(children[i].pid, &wstatus, 0), children[i].pid);
        ck_assert_msg(WIFEXITED(wstatus) && WEXITSTATUS(wstatus) == 0, "rank %u ended with %#x", i,
                      (unsigned)wstatus);
    }
}

/* The first of children[first..n) that says something; its index. */
static uint32_t hear_any(struct child *children, uint32_t first, uint32_t n, int timeout_ms,
                         int *ret_status, char *ret_text)
{
    struct pollfd fds[WORLD_MAX_RANKS];
    struct gems_error err;
    uint32_t i = first;

    for (uint32_t k = first; k < n; k++) {
        fds[k] = (struct pollfd){ .fd = children[k].from, .events = POLLIN };
    }
    ck_assert_msg(poll(&fds[first], n - first, timeout_ms) > 0, "nothing heard in %d ms",
                  timeout_ms);
    while (fds[i].revents == 0) {
        i++;
    }
    read_all(children[i].from, ret_status, sizeof *ret_status);
    read_all(children[i].from, ret_text, sizeof err.text);
    return i;
}

START_TEST(processes_exchange_random_messages)
{
    enum { N = 4 };
    struct child children[N];
    char text[512];
    int status;

    start_children(children, ucx(_i), N, world_exchange);
    introduce(children, N);
    for (uint32_t i = 0; i < N; i++) {
        hear_any(children, i, i + 1, 30000, &status, text);
        ck_assert_msg(status == 0, "rank %u: %s", i, text);
    }
    end_children(children, 0, N);
}
END_TEST

/* Whoever sees it first says so and hangs up: the other may only see that. */
START_TEST(another_version_is_refused)
{
    enum { N = 2 };
    struct child children[N];
    char text[512];
    int status, n_named = 0;

    odd_rank = 1;
    start_children(children, ucx(_i), N, world_exchange);
    odd_rank = WORLD_MAX_RANKS; /* the children have theirs; other tests may run in this process */
    exchange_addresses(children, N);
    for (uint32_t i = 0; i < N; i++) {
        const char *theirs, *ours;

        read_all(children[i].from, &status, sizeof status);
        ck_assert_int_eq(status, GEMS_E_PEER);
        hear_any(children, i, i + 1, 1000, &status, text);
        ck_assert_msg(strstr(text, i == 0 ? "rank 1" : "rank 0"), "%s", text);
        theirs = strstr(text, i == 0 ? "has ucx 1.5" : "has ucx 1.");
        ours = strstr(text, i == 0 ? "this rank has ucx 1." : "this rank has ucx 1.5");
        n_named += theirs && ours && theirs < ours;
    }
    ck_assert_int_ge(n_named, 1);
    end_children(children, 0, N);
}
END_TEST

/* Rank 0 waits for ever; the others for a message of it. */
static int wait_body(struct world_rank *rank)
{
    struct link_request request = { 0 };
    uint8_t byte;

    link_recv(rank->link, &request, rank->rank == 0 ? 1 : 0, 1, &byte, 1);
    return link_wait(&request, &rank->err);
}

/* All send to each other without end. */
static int busy_body(struct world_rank *rank)
{
    int status = 0;

    while (status == 0) {
        status = world_exchange(rank);
    }
    return status;
}

/* UCX looks for dead peers every second (ucx.c); a busy machine takes longer. */
enum { NOTICE_MS = 10000 };

/* One of the others names it. Whoever had nothing more to do with it
 * learns of the end when the one that noticed leaves. */
static void kill_rank_0(const struct net_ops *ops, int (*body)(struct world_rank *rank))
{
    enum { N = 3 };
    struct child children[N];
    char text[512];
    int status, wstatus;
    uint32_t i;

    start_children(children, ops, N, body);
    introduce(children, N);
    nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    kill(children[0].pid, SIGKILL);
    ck_assert_int_eq(waitpid(children[0].pid, &wstatus, 0), children[0].pid);
    ck_assert(WIFSIGNALED(wstatus));
    close(children[0].to);
    close(children[0].from);
    i = hear_any(children, 1, N, NOTICE_MS, &status, text);
    ck_assert_int_eq(status, GEMS_E_PEER);
    ck_assert_msg(strstr(text, "rank 0"), "%s", text);
    end_children(children, i, i + 1);
    i = N - i;
    hear_any(children, i, i + 1, NOTICE_MS, &status, text);
    ck_assert_int_eq(status, GEMS_E_PEER);
    end_children(children, i, i + 1);
}

START_TEST(a_killed_peer_is_noticed_while_waiting)
{
    kill_rank_0(ucx(_i), wait_body);
}
END_TEST

START_TEST(a_killed_peer_is_noticed_while_busy)
{
    kill_rank_0(ucx(_i), busy_body);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("ucx");
    TCase *processes = tcase_create("processes");
    TCase *threads = tcase_create("threads");
    SRunner *runner;
    int n_failed;

    (void)argc;
    if (!getenv("UCX_ERROR_SIGNALS")) {
        setenv("UCX_ERROR_SIGNALS", "", 1);
        setenv("UCX_DEBUG_SIGNO", "0", 1);
        setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 1);
        execv("/proc/self/exe", argv);
        return EXIT_FAILURE;
    }
    signal(SIGPIPE, SIG_IGN);
    tcase_set_timeout(processes, 60);
    tcase_add_loop_test(processes, processes_exchange_random_messages, 0, N_TRANSPORTS);
    tcase_add_loop_test(processes, another_version_is_refused, 0, N_TRANSPORTS);
    tcase_add_loop_test(processes, a_killed_peer_is_noticed_while_waiting, 0, N_TRANSPORTS);
    tcase_add_loop_test(processes, a_killed_peer_is_noticed_while_busy, 0, N_TRANSPORTS);
    suite_add_tcase(suite, processes);
    tcase_set_timeout(threads, 60);
    tcase_add_test(threads, version_names_the_library);
    tcase_add_loop_test(threads, a_message_allocates_nothing, 0, N_TRANSPORTS);
    tcase_add_loop_test(threads, two_ranks_exchange_random_messages, 0, N_TRANSPORTS);
    tcase_add_loop_test(threads, four_ranks_exchange_random_messages, 0, N_TRANSPORTS);
    tcase_add_loop_test(threads, large_messages_arrive_whole, 0, N_TRANSPORTS);
    tcase_add_loop_test(threads, equal_keys_arrive_in_order, 0, N_TRANSPORTS);
    tcase_add_loop_test(threads, messages_may_come_before_their_receive, 0, N_TRANSPORTS);
    tcase_add_loop_test(threads, another_length_ends_the_receive, 0, N_TRANSPORTS);
    tcase_add_loop_test(threads, strangers_are_refused, 0, 3 * N_TRANSPORTS);
    tcase_add_loop_test(threads, a_peer_that_leaves_ends_its_requests, 0, N_TRANSPORTS);
    suite_add_tcase(suite, threads);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
