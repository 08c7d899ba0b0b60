/* In-process transport: the ranks are threads of one process.
 *
 * It makes every test of training possible without a network, so it is strict
 * where others are lenient: a send ends only when its bytes have been received,
 * and messages may be held back at random (local.h). An address is a key of
 * the hub (local_hub.h), which does the work; here are the descriptors and the
 * callbacks, on the owner's thread.
 */
#include "worker/net/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/error.h"
#include "worker/net/local_hub.h"

enum { MAX_ITEMS = 1 << 20, MAX_RANKS = 4096 };

static int local_open_fds(struct net *net, struct gems_error *err)
{
    struct epoll_event event = { .events = EPOLLIN };

    net->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    net->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    net->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (net->epoll_fd < 0 || net->event_fd < 0 || net->timer_fd < 0 ||
        epoll_ctl(net->epoll_fd, EPOLL_CTL_ADD, net->event_fd, &event) < 0 ||
        epoll_ctl(net->epoll_fd, EPOLL_CTL_ADD, net->timer_fd, &event) < 0) {
        return gems_error_errno(err, errno, "transport local: descriptors");
    }
    return 0;
}

static void local_free(struct net *net)
{
    if (net->epoll_fd >= 0) {
        close(net->epoll_fd);
    }
    if (net->event_fd >= 0) {
        close(net->event_fd);
    }
    if (net->timer_fd >= 0) {
        close(net->timer_fd);
    }
    net_match_fini(&net->posted);
    net_match_fini(&net->arrived);
    pool_fini(&net->pool);
    free(net->peers);
    explicit_bzero(&net->config, sizeof net->config);
    free(net);
}

static int local_open(struct net **ret_net, struct gems_error *err)
{
    struct net *net = calloc(1, sizeof *net);
    int status;

    if (!net) {
        return gems_error_set(err, GEMS_E_NOMEM, "transport local: no memory");
    }
    net->epoll_fd = net->event_fd = net->timer_fd = -1;
    pool_init(&net->pool, sizeof(struct local_item), MAX_ITEMS);
    status = local_open_fds(net, err);
    if (status == 0) {
        status = net_match_init(&net->posted, err);
    }
    if (status == 0) {
        status = net_match_init(&net->arrived, err);
    }
    if (status < 0) {
        local_free(net);
        return status;
    }
    hub_join(net);
    *ret_net = net;
    return 0;
}

static void local_close(struct net *net)
{
    if (net) {
        hub_leave(net);
        local_free(net);
    }
}

static int local_address(struct net *net, uint8_t *ret_address, size_t *inout_bytes,
                         struct gems_error *err)
{
    if (*inout_bytes < sizeof net->key) {
        return gems_error_set(err, GEMS_E_INVALID, "transport local: address needs %zu bytes",
                              sizeof net->key);
    }
    memcpy(ret_address, &net->key, sizeof net->key);
    *inout_bytes = sizeof net->key;
    return 0;
}

static const char *local_version(void)
{
    return "local 1";
}

static int local_connect(struct net *net, const struct net_config *config,
                         const uint8_t *const *addresses, const size_t *bytes, net_done_fn done,
                         void *arg, struct gems_error *err)
{
    struct local_peer *peers;

    if (net->peers) {
        return gems_error_set(err, GEMS_E_STATE, "transport local: connected already");
    }
    if (config->n_ranks == 0 || config->n_ranks > MAX_RANKS || config->rank >= config->n_ranks) {
        return gems_error_set(err, GEMS_E_INVALID, "transport local: rank %u of %u", config->rank,
                              config->n_ranks);
    }
    peers = calloc(config->n_ranks, sizeof *peers);
    if (!peers) {
        return gems_error_set(err, GEMS_E_NOMEM, "transport local: no memory for peers");
    }
    hub_connect(net, config, peers, addresses, bytes, done, arg);
    return 0;
}

static int local_take_item(struct net *net, uint32_t peer, const struct local_item *filled,
                           struct local_item **ret_item, struct gems_error *err)
{
    struct local_item *item;

    if (!net->peers || peer >= net->config.n_ranks || peer == net->config.rank) {
        return gems_error_set(err, GEMS_E_INVALID, "transport local: no peer %u", peer);
    }
    item = pool_take(&net->pool);
    if (!item) {
        return gems_error_set(err, GEMS_E_NOMEM, "transport local: too many requests");
    }
    *item = *filled;
    item->owner = net;
    *ret_item = item;
    return 0;
}

static int local_send(struct net *net, uint32_t to, uint64_t tag, const void *buffer,
                      uint64_t bytes, net_done_fn done, void *arg, struct gems_error *err)
{
    const struct local_item filled = {
        .match = { .source = net->config.rank, .tag = tag },
        .from = buffer,
        .bytes = bytes,
        .done = done,
        .arg = arg,
    };
    struct local_item *item;
    int status = local_take_item(net, to, &filled, &item, err);

    if (status == 0) {
        hub_send(net, to, item);
    }
    return status;
}

static int local_recv(struct net *net, uint32_t from, uint64_t tag, void *buffer, uint64_t bytes,
                      net_done_fn done, void *arg, struct gems_error *err)
{
    const struct local_item filled = {
        .match = { .source = from, .tag = tag },
        .into = buffer,
        .bytes = bytes,
        .done = done,
        .arg = arg,
    };
    struct local_item *item;
    int status = local_take_item(net, from, &filled, &item, err);

    if (status == 0) {
        hub_recv(net, from, item);
    }
    return status;
}

static int local_progress(struct net *net)
{
    int n_events = 0;

    for (;;) {
        int connect_status;
        struct local_item *item = hub_collect(net, &connect_status);

        if (!item && connect_status > 0) {
            return n_events;
        }
        if (connect_status <= 0) {
            n_events++;
            net->connect_done(net->connect_arg, connect_status);
        }
        while (item) {
            struct local_item *next = item->next;
            net_done_fn done = item->done;
            void *arg = item->arg;
            int status = item->status;

            pool_give(&net->pool, item);
            n_events++;
            done(arg, status);
            item = next;
        }
    }
}

static int local_fd(struct net *net)
{
    return net->epoll_fd;
}

static int local_arm(struct net *net)
{
    int64_t due_ns;

    if (hub_has_work(net, &due_ns)) {
        return 1;
    }
    /* An absolute time of 0 stops the timer. */
    timerfd_settime(net->timer_fd, TFD_TIMER_ABSTIME,
                    &(struct itimerspec){ .it_value = { .tv_sec = due_ns / 1000000000,
                                                        .tv_nsec = due_ns % 1000000000 } },
                    NULL);
    return 0;
}

const struct net_ops net_local = {
    .name = "local",
    .open = local_open,
    .close = local_close,
    .address = local_address,
    .version = local_version,
    .connect = local_connect,
    .send = local_send,
    .recv = local_recv,
    .progress = local_progress,
    .fd = local_fd,
    .arm = local_arm,
    .peer_error = hub_peer_error,
    .counters = hub_counters,
};
