/* What link.c (compute thread, making and ending) and link_thread.c share.
 *
 * Requests travel through a ring of one producer and one consumer. Both sides
 * avoid system calls while the other is awake: the producer writes the eventfd
 * only if the consumer has said that it sleeps, the consumer wakes the futex
 * only if the producer has said that it waits. Each says so and then looks
 * again at what the other publishes (both sequentially consistent), so that no
 * wake-up is lost.
 *
 * The futex word `turn` changes with every wake-up; it is one for all requests
 * because an abort must end any wait.
 */
#ifndef GEMS_WORKER_RANK_LINK_INTERNAL_H
#define GEMS_WORKER_RANK_LINK_INTERNAL_H

#include <pthread.h>

#include "common/error.h"
#include "worker/rank/link.h"

struct event;

struct link_post {
    struct link_post *next;
    void (*fn)(void *arg);
    void *arg;
};

struct link {
    const struct net_ops *ops;
    struct net *net;
    bool is_spinning, has_thread;
    pthread_t thread;

    struct event_base *base;
    struct event *net_event, *wake_event, *net_timer, *connect_timer;
    int wake_fd;

    /* The ring: head belongs to the producer, tail to the consumer. */
    struct link_request **ring;
    uint32_t mask;
    struct ledger *ledger; /* compute thread; may be NULL */
    _Alignas(64) _Atomic uint32_t head;
    _Alignas(64) _Atomic uint32_t tail;
    _Alignas(64) _Atomic bool is_sleeping;
    _Atomic bool is_stopping;

    _Atomic uint32_t turn;
    _Atomic uint32_t n_waiting;
    _Atomic int abort_status; /* 0: none */

    pthread_mutex_t lock; /* posts and texts: not used in a step that goes well */
    struct link_post *first_post, *last_post;
    _Atomic bool has_posts;
    char abort_text[512], error_text[512];

    /* connect: written by the compute thread before its post */
    struct net_config config;
    const uint8_t *const *addresses;
    const size_t *address_bytes;
    double connect_timeout_s;
    struct gems_error connect_error;
    _Atomic int connect_state; /* LINK_IDLE, LINK_BUSY, LINK_DONE */
};

/* Ends the sleep of the communication thread, if it sleeps. */
void link_wake_thread(struct link *link);
/* Makes whoever waits look again. */
void link_wake_waiters(struct link *link);
void link_cpu_relax(void);

void *link_thread(void *arg);
/* As a post: starts the net's connect. */
void link_do_connect(void *arg);
void link_on_net_event(int fd, short what, void *arg);
void link_on_wake(int fd, short what, void *arg);
void link_on_connect_timeout(int fd, short what, void *arg);

#endif
