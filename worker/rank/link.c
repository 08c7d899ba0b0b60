/* Hand-over between the compute thread and the communication thread; how it
 * works stands in link_internal.h. */
#include <errno.h>
#include <event2/event.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/rank/ledger.h"
#include "worker/rank/link_internal.h"

enum {
    SPINS_BEFORE_SLEEP = 200,  /* of the compute thread, before the futex */
    NET_TIMER_US = 100 * 1000, /* a net that forgets to signal is looked at this often */
};

static struct event *link_add_event(struct link *link, evutil_socket_t fd, short what,
                                    event_callback_fn fn, const struct timeval *timeout)
{
    struct event *event = event_new(link->base, fd, what, fn, link);

    if (event && event_add(event, timeout) < 0) {
        event_free(event);
        event = NULL;
    }
    return event;
}

static int link_make_events(struct link *link, struct gems_error *err)
{
    struct event_config *config = event_config_new();

    /* One thread uses the base: no locks, and posts wake it by wake_fd. */
    if (config) {
        event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
        link->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    link->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!link->base || link->wake_fd < 0) {
        return gems_error_errno(err, errno, "link: event loop");
    }
    link->net_event = link_add_event(link, link->ops->fd(link->net), EV_READ | EV_PERSIST,
                                     link_on_net_event, NULL);
    link->wake_event =
        link_add_event(link, link->wake_fd, EV_READ | EV_PERSIST, link_on_wake, NULL);
    link->net_timer = link_add_event(link, -1, EV_PERSIST, link_on_net_event,
                                     &(struct timeval){ .tv_usec = NET_TIMER_US });
    link->connect_timer = evtimer_new(link->base, link_on_connect_timeout, link);
    if (!link->net_event || !link->wake_event || !link->net_timer || !link->connect_timer) {
        return gems_error_set(err, GEMS_E_NOMEM, "link: no memory for events");
    }
    return 0;
}

static int link_init(struct link *link, uint32_t max_requests, struct gems_error *err)
{
    uint32_t n = 1;
    int status;

    while (n < max_requests) {
        n *= 2;
    }
    link->mask = n - 1;
    link->ring = calloc(n, sizeof(struct link_request *));
    if (!link->ring) {
        return gems_error_set(err, GEMS_E_NOMEM, "link: no memory for %u requests", max_requests);
    }
    status = link->ops->open(&link->net, err);
    if (status < 0) {
        return status;
    }
    return link_make_events(link, err);
}

int link_create(const struct net_ops *ops, uint32_t max_requests, bool is_spinning,
                struct link **ret_link, struct gems_error *err)
{
    struct link *link = NULL;
    int status;

    if (max_requests == 0 || max_requests > 1U << 20) {
        return gems_error_set(err, GEMS_E_INVALID, "link: %u requests", max_requests);
    }
    if (posix_memalign((void **)&link, 64, sizeof *link) != 0) {
        return gems_error_set(err, GEMS_E_NOMEM, "link: no memory");
    }
    memset(link, 0, sizeof *link);
    link->ops = ops;
    link->is_spinning = is_spinning;
    link->wake_fd = -1;
    pthread_mutex_init(&link->lock, NULL);
    status = link_init(link, max_requests, err);
    if (status < 0) {
        link_destroy(link);
        return status;
    }
    *ret_link = link;
    return 0;
}

int link_start(struct link *link, struct gems_error *err)
{
    sigset_t all, before;
    int error;

    /* Signals are the main thread's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&link->thread, NULL, link_thread, link);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return gems_error_errno(err, error, "link: thread");
    }
    link->has_thread = true;
    return 0;
}

static void link_free_events(struct link *link)
{
    struct event *const events[] = { link->net_event, link->wake_event, link->net_timer,
                                     link->connect_timer };

    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (events[i]) {
            event_free(events[i]);
        }
    }
    if (link->base) {
        event_base_free(link->base);
    }
    if (link->wake_fd >= 0) {
        close(link->wake_fd);
    }
}

void link_destroy(struct link *link)
{
    struct link_post *post;

    if (!link) {
        return;
    }
    if (link->has_thread) {
        atomic_store(&link->is_stopping, true);
        link_wake_thread(link);
        pthread_join(link->thread, NULL);
    }
    link_free_events(link);
    link->ops->close(link->net);
    for (post = link->first_post; post;) {
        struct link_post *next = post->next;

        free(post);
        post = next;
    }
    free(link->ring);
    pthread_mutex_destroy(&link->lock);
    explicit_bzero(&link->config, sizeof link->config);
    free(link);
}

struct event_base *link_base(struct link *link)
{
    return link->base;
}

struct net *link_net(struct link *link)
{
    return link->net;
}

int link_post(struct link *link, void (*fn)(void *arg), void *arg)
{
    struct link_post *post = malloc(sizeof *post);

    if (!post) {
        return GEMS_E_NOMEM;
    }
    *post = (struct link_post){ .fn = fn, .arg = arg };
    pthread_mutex_lock(&link->lock);
    if (link->last_post && link->first_post) {
        link->last_post->next = post;
    } else {
        link->first_post = post;
    }
    link->last_post = post;
    atomic_store(&link->has_posts, true);
    pthread_mutex_unlock(&link->lock);
    link_wake_thread(link);
    return 0;
}

/* ---- the compute thread ---- */

/* Waits until *state is LINK_DONE (true) or the link is aborted (false). */
static bool link_wait_state(struct link *link, const _Atomic int *state)
{
    for (int i = 0; i < SPINS_BEFORE_SLEEP; i++) {
        if (atomic_load_explicit(state, memory_order_acquire) == LINK_DONE) {
            return true;
        }
        link_cpu_relax();
    }
    atomic_fetch_add(&link->n_waiting, 1);
    for (;;) {
        uint32_t turn = atomic_load(&link->turn);

        if (atomic_load(state) == LINK_DONE || atomic_load(&link->abort_status) != 0) {
            break;
        }
        syscall(SYS_futex, &link->turn, FUTEX_WAIT_PRIVATE, turn, NULL, NULL, 0);
    }
    atomic_fetch_sub(&link->n_waiting, 1);
    return atomic_load(state) == LINK_DONE;
}

static int link_abort_error(struct link *link, struct gems_error *err)
{
    int status;

    pthread_mutex_lock(&link->lock);
    status = atomic_load(&link->abort_status);
    gems_error_set(err, (enum gems_status)status, "%s", link->abort_text);
    pthread_mutex_unlock(&link->lock);
    return status;
}

int link_connect(struct link *link, const struct net_config *config,
                 const uint8_t *const *addresses, const size_t *bytes, double timeout_s,
                 struct gems_error *err)
{
    int idle = LINK_IDLE;

    if (!atomic_compare_exchange_strong(&link->connect_state, &idle, LINK_BUSY)) {
        return gems_error_set(err, GEMS_E_STATE, "link: connected already");
    }
    link->config = *config;
    link->addresses = addresses;
    link->address_bytes = bytes;
    link->connect_timeout_s = timeout_s;
    if (link_post(link, link_do_connect, link) < 0) {
        return gems_error_set(err, GEMS_E_NOMEM, "link: no memory");
    }
    if (!link_wait_state(link, &link->connect_state)) {
        return link_abort_error(link, err);
    }
    if (err) {
        *err = link->connect_error;
    }
    return link->connect_error.status;
}

static void link_push(struct link *link, struct link_request *request)
{
    uint32_t head = atomic_load_explicit(&link->head, memory_order_relaxed);

    request->link = link;
    request->status = 0;
    atomic_store_explicit(&request->state, LINK_BUSY, memory_order_relaxed);
    /* Full only if more than max_requests are in flight; the thread makes room. */
    while (head - atomic_load_explicit(&link->tail, memory_order_acquire) > link->mask) {
        link_wake_thread(link);
        link_cpu_relax();
    }
    link->ring[head & link->mask] = request;
    atomic_store(&link->head, head + 1);
    link_wake_thread(link);
}

void link_send(struct link *link, struct link_request *request, uint32_t peer, uint64_t tag,
               const void *buffer, uint64_t bytes)
{
    request->is_send = true;
    request->peer = peer;
    request->tag = tag;
    request->buffer = (void *)(uintptr_t)buffer;
    request->bytes = bytes;
    link_push(link, request);
}

void link_recv(struct link *link, struct link_request *request, uint32_t peer, uint64_t tag,
               void *buffer, uint64_t bytes)
{
    request->is_send = false;
    request->peer = peer;
    request->tag = tag;
    request->buffer = buffer;
    request->bytes = bytes;
    link_push(link, request);
}

bool link_done(const struct link_request *request)
{
    return atomic_load_explicit(&request->state, memory_order_acquire) == LINK_DONE;
}

void link_count_waits(struct link *link, struct ledger *ledger)
{
    link->ledger = ledger;
}

static bool link_wait_request(struct link *link, const struct link_request *request)
{
    enum timeline_kind before;
    bool is_done;

    if (!link->ledger || link_done(request)) {
        return link_wait_state(link, &request->state);
    }
    before = ledger_turn(link->ledger, TIMELINE_WAIT);
    is_done = link_wait_state(link, &request->state);
    ledger_turn(link->ledger, before);
    return is_done;
}

int link_wait(struct link_request *request, struct gems_error *err)
{
    struct link *link = request->link;
    int status;

    if (!link_wait_request(link, request)) {
        return link_abort_error(link, err);
    }
    status = request->status;
    atomic_store_explicit(&request->state, LINK_IDLE, memory_order_relaxed);
    if (status < 0) {
        pthread_mutex_lock(&link->lock);
        gems_error_set(err, (enum gems_status)status, "%s %s rank %u: %s",
                       request->is_send ? "send" : "receive", request->is_send ? "to" : "from",
                       request->peer, link->error_text);
        pthread_mutex_unlock(&link->lock);
    }
    return status;
}

void link_abort(struct link *link, int status, const char *text)
{
    pthread_mutex_lock(&link->lock);
    if (atomic_load(&link->abort_status) == 0) {
        snprintf(link->abort_text, sizeof link->abort_text, "%s", text);
        atomic_store(&link->abort_status, status);
    }
    pthread_mutex_unlock(&link->lock);
    link_wake_waiters(link);
}
