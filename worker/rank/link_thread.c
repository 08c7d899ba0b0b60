/* The communication thread of a rank. */
#include <event2/event.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/rank/link_internal.h"

enum { LOOP_EVERY = 64 /* turns of a busy net between looks at the event loop */ };

void link_wake_thread(struct link *link)
{
    uint64_t one = 1;

    if (atomic_load(&link->is_sleeping)) {
        /* EAGAIN: the counter is full, the thread is awake already. */
        (void)!write(link->wake_fd, &one, sizeof one);
    }
}

void link_wake_waiters(struct link *link)
{
    if (atomic_load(&link->n_waiting) > 0) {
        atomic_fetch_add(&link->turn, 1);
        syscall(SYS_futex, &link->turn, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}

void link_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void link_take_error(struct link *link, const char *text)
{
    pthread_mutex_lock(&link->lock);
    if (link->error_text[0] == '\0') {
        snprintf(link->error_text, sizeof link->error_text, "%s", text);
    }
    pthread_mutex_unlock(&link->lock);
}

static void on_request_done(void *arg, int status)
{
    struct link_request *request = arg;
    struct link *link = request->link;

    if (status < 0) {
        link_take_error(link, link->ops->peer_error(link->net));
    }
    request->status = status;
    atomic_store(&request->state, LINK_DONE);
    /* The request may be reused from here on. */
    link_wake_waiters(link);
}

static void link_issue(struct link *link, struct link_request *request)
{
    struct gems_error err = { .text = "" };
    int status;

    if (request->is_send) {
        status = link->ops->send(link->net, request->peer, request->tag, request->buffer,
                                 request->bytes, on_request_done, request, &err);
    } else {
        status = link->ops->recv(link->net, request->peer, request->tag, request->buffer,
                                 request->bytes, on_request_done, request, &err);
    }
    if (status < 0) {
        link_take_error(link, err.text);
        on_request_done(request, status);
    }
}

static bool link_drain_ring(struct link *link)
{
    uint32_t tail = atomic_load_explicit(&link->tail, memory_order_relaxed);
    uint32_t head = atomic_load(&link->head);

    if (tail == head) {
        return false;
    }
    while (tail != head) {
        struct link_request *request = link->ring[tail & link->mask];

        atomic_store_explicit(&link->tail, ++tail, memory_order_release);
        link_issue(link, request);
    }
    return true;
}

static bool link_run_posts(struct link *link)
{
    struct link_post *post;

    if (!atomic_load(&link->has_posts)) {
        return false;
    }
    pthread_mutex_lock(&link->lock);
    post = link->first_post;
    link->first_post = link->last_post = NULL;
    atomic_store(&link->has_posts, false);
    pthread_mutex_unlock(&link->lock);
    while (post) {
        struct link_post *next = post->next;

        post->fn(post->arg);
        free(post);
        post = next;
    }
    return true;
}

/* Without EVLOOP_ONCE the loop would go on while the net's descriptor is
 * readable, which only progress() ends. */
static void link_look_at_events(struct link *link)
{
    event_base_loop(link->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

/* Sleeps in the event loop until something happens, unless there is work. */
static void link_sleep(struct link *link)
{
    bool is_idle;

    atomic_store(&link->is_sleeping, true);
    is_idle = atomic_load(&link->head) == atomic_load_explicit(&link->tail, memory_order_relaxed) &&
              !atomic_load(&link->has_posts) && !atomic_load(&link->is_stopping);
    if (is_idle && link->ops->arm(link->net) == 0) {
        event_base_loop(link->base, EVLOOP_ONCE);
    } else {
        link_look_at_events(link);
    }
    atomic_store(&link->is_sleeping, false);
}

void *link_thread(void *arg)
{
    struct link *link = arg;
    uint32_t n_turns = 0;

    while (!atomic_load(&link->is_stopping)) {
        bool is_busy = link_drain_ring(link);

        is_busy |= link_run_posts(link);
        is_busy |= link->ops->progress(link->net) > 0;
        if (is_busy || link->is_spinning) {
            if (n_turns++ % LOOP_EVERY == 0) {
                link_look_at_events(link);
            }
            if (!is_busy) {
                link_cpu_relax();
            }
        } else {
            link_sleep(link);
        }
    }
    return NULL;
}

/* The thread's own loop calls progress; the events only end its sleep. */
void link_on_net_event(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
}

void link_on_wake(evutil_socket_t fd, short what, void *arg)
{
    uint64_t count;

    (void)what;
    (void)arg;
    (void)!read(fd, &count, sizeof count);
}

static void link_end_connect(struct link *link, int status)
{
    const char *why = link->ops->peer_error(link->net);

    event_del(link->connect_timer);
    if (atomic_load(&link->connect_state) != LINK_BUSY) {
        return;
    }
    if (status == GEMS_E_TIMEOUT) {
        gems_error_set(&link->connect_error, status, "peers not connected after %.1f s: %s",
                       link->connect_timeout_s, why);
    } else if (status < 0 && link->connect_error.text[0] == '\0') {
        gems_error_set(&link->connect_error, (enum gems_status)status, "connecting to peers: %s",
                       why);
    }
    link->connect_error.status = (enum gems_status)status;
    atomic_store(&link->connect_state, LINK_DONE);
    link_wake_waiters(link);
}

static void on_connect_done(void *arg, int status)
{
    link_end_connect(arg, status);
}

void link_on_connect_timeout(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    link_end_connect(arg, GEMS_E_TIMEOUT);
}

void link_do_connect(void *arg)
{
    struct link *link = arg;
    struct timeval timeout = {
        .tv_sec = (time_t)link->connect_timeout_s,
        .tv_usec =
            (suseconds_t)((link->connect_timeout_s - (double)(time_t)link->connect_timeout_s) *
                          1e6),
    };
    int status;

    event_add(link->connect_timer, &timeout);
    status = link->ops->connect(link->net, &link->config, link->addresses, link->address_bytes,
                                on_connect_done, link, &link->connect_error);
    explicit_bzero(&link->config, sizeof link->config);
    if (status < 0) {
        link_end_connect(link, status);
    }
}
