#include "worker/net/local_hub.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/rng.h"
#include "worker/net/local.h"

static struct {
    pthread_mutex_t lock;
    struct net *nets;
    uint64_t last_key;
    uint64_t delay_seed, delay_index;
    uint32_t delay_max_us;
} hub = { .lock = PTHREAD_MUTEX_INITIALIZER };

void net_local_set_delays(uint64_t seed, uint32_t max_us)
{
    pthread_mutex_lock(&hub.lock);
    hub.delay_seed = seed;
    hub.delay_index = 0;
    hub.delay_max_us = max_us;
    pthread_mutex_unlock(&hub.lock);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- under the lock ---- */

static void net_signal(struct net *net)
{
    uint64_t one = 1;

    if (!net->is_signalled) {
        net->is_signalled = true;
        /* Cannot fail: the counter is 0 or 1. */
        (void)!write(net->event_fd, &one, sizeof one);
    }
}

static void list_append(struct local_list *list, struct local_item *item)
{
    item->next = NULL;
    if (list->last) {
        list->last->next = item;
    } else {
        list->first = item;
    }
    list->last = item;
}

static void item_finish(struct local_item *item, int status)
{
    item->status = status;
    list_append(&item->owner->finished, item);
    net_signal(item->owner);
}

static void net_note(struct net *net, uint32_t rank, const char *what)
{
    if (net->error[0] == '\0') {
        snprintf(net->error, sizeof net->error, "rank %u (in this process): %s", rank, what);
    }
}

static void pair_finish(struct local_item *send, struct local_item *recv)
{
    struct net *receiver = recv->owner;
    int status = 0;

    if (send->bytes == recv->bytes) {
        if (recv->bytes > 0) {
            memcpy(recv->into, send->from, recv->bytes);
        }
        receiver->counters.bytes_in += recv->bytes;
        receiver->counters.messages_in++;
    } else {
        char what[128];

        snprintf(what, sizeof what, "message %016llx has %llu bytes, expected %llu",
                 (unsigned long long)send->match.tag, (unsigned long long)send->bytes,
                 (unsigned long long)recv->bytes);
        net_note(receiver, send->match.source, what);
        receiver->counters.dropped++;
        status = GEMS_E_PEER;
    }
    item_finish(send, 0);
    item_finish(recv, status);
}

static void net_deliver(struct net *net, struct local_item *send)
{
    struct match_item *posted = net_match_take(&net->posted, send->match.source, send->match.tag);

    if (posted) {
        pair_finish(send, (struct local_item *)posted);
    } else {
        net_match_push(&net->arrived, &send->match);
    }
}

/* Into net->delayed, in order of due times; never before an equal key. */
static void net_delay(struct net *net, struct local_item *send)
{
    uint64_t late_us = rng_below(hub.delay_seed, 0, hub.delay_index++, hub.delay_max_us + 1);
    struct local_item **at = &net->delayed.first;

    send->due_ns = now_ns() + (int64_t)late_us * 1000;
    for (struct local_item *i = net->delayed.first; i; i = i->next) {
        if (i->match.source == send->match.source && i->match.tag == send->match.tag &&
            i->due_ns > send->due_ns) {
            send->due_ns = i->due_ns;
        }
    }
    while (*at && (*at)->due_ns <= send->due_ns) {
        at = &(*at)->next;
    }
    send->next = *at;
    *at = send;
    if (!send->next) {
        net->delayed.last = send;
    }
    net_signal(net);
}

static void net_deliver_due(struct net *net)
{
    int64_t now = net->delayed.first ? now_ns() : 0;

    while (net->delayed.first && net->delayed.first->due_ns <= now) {
        struct local_item *send = net->delayed.first;

        net->delayed.first = send->next;
        if (!send->next) {
            net->delayed.last = NULL;
        }
        net_deliver(net, send);
    }
}

/* Takes out what a peer that leaves sent to net and net has not received. */
static void net_withdraw(struct net *net, uint32_t source, const struct net *owner)
{
    struct local_list kept = { NULL, NULL };

    while (match_take_source(&net->arrived, source)) {
        continue;
    }
    for (struct local_item *i = net->delayed.first, *next; i; i = next) {
        next = i->next;
        if (i->owner != owner) {
            list_append(&kept, i);
        }
    }
    net->delayed = kept;
}

static void connect_end(struct net *net, int status)
{
    if (net->connect_status > 0) {
        net->connect_status = status;
        net_signal(net);
    }
}

static void peer_gone(struct net *net, uint32_t rank, const char *why)
{
    struct local_peer *peer = &net->peers[rank];
    struct match_item *item;

    peer->net = NULL;
    if (peer->state == PEER_GONE) {
        return;
    }
    peer->state = PEER_GONE;
    net_note(net, rank, why);
    while ((item = match_take_source(&net->posted, rank))) {
        item_finish((struct local_item *)item, GEMS_E_PEER);
    }
    connect_end(net, GEMS_E_PEER);
}

static void peer_proven(struct net *net, uint32_t rank)
{
    net->peers[rank].state = PEER_PROVEN;
    if (--net->n_unproven == 0) {
        connect_end(net, 0);
    }
}

/* What a HELLO would find out; both sides have called connect. */
static void peers_prove(struct net *a, struct net *b)
{
    uint32_t ra = a->config.rank, rb = b->config.rank;
    bool is_equal = a->config.job == b->config.job && a->config.attempt == b->config.attempt &&
                    a->config.n_ranks == b->config.n_ranks &&
                    memcmp(a->config.secret, b->config.secret, NET_SECRET_BYTES) == 0;

    if (is_equal && ra != rb && ra < b->config.n_ranks && b->peers[ra].net == a) {
        peer_proven(a, rb);
        peer_proven(b, ra);
        return;
    }
    a->counters.dropped++;
    b->counters.dropped++;
    a->peers[rb].state = PEER_REFUSED;
    for (uint32_t i = 0; i < b->config.n_ranks; i++) {
        if (b->peers[i].net == a) {
            b->peers[i].state = PEER_REFUSED;
        }
    }
}

static struct net *hub_find(const uint8_t *address, size_t bytes)
{
    uint64_t key;

    if (bytes != sizeof key) {
        return NULL;
    }
    memcpy(&key, address, sizeof key);
    for (struct net *net = hub.nets; net; net = net->next) {
        if (net->key == key) {
            return net;
        }
    }
    return NULL;
}

/* ---- takes the lock ---- */

void hub_join(struct net *net)
{
    pthread_mutex_lock(&hub.lock);
    net->key = ++hub.last_key;
    net->next = hub.nets;
    hub.nets = net;
    pthread_mutex_unlock(&hub.lock);
}

/* Messages to a net that leaves: their senders learn that it is gone. */
static void net_bounce(struct net *net)
{
    struct local_item *item = net->delayed.first;

    for (uint32_t i = 0; net->peers && i < net->config.n_ranks; i++) {
        struct match_item *arrived;

        while ((arrived = match_take_source(&net->arrived, i))) {
            item_finish((struct local_item *)arrived, GEMS_E_PEER);
        }
    }
    while (item) {
        struct local_item *next = item->next;

        item_finish(item, GEMS_E_PEER);
        item = next;
    }
}

void hub_leave(struct net *net)
{
    struct net **at = &hub.nets;

    pthread_mutex_lock(&hub.lock);
    while (*at != net) {
        at = &(*at)->next;
    }
    *at = net->next;
    for (struct net *other = hub.nets; other; other = other->next) {
        for (uint32_t i = 0; other->peers && i < other->config.n_ranks; i++) {
            if (other->peers[i].net == net) {
                net_withdraw(other, i, net);
                peer_gone(other, i, "closed");
            }
        }
    }
    net_bounce(net);
    pthread_mutex_unlock(&hub.lock);
}

void hub_connect(struct net *net, const struct net_config *config, struct local_peer *peers,
                 const uint8_t *const *addresses, const size_t *bytes, net_done_fn done, void *arg)
{
    pthread_mutex_lock(&hub.lock);
    net->config = *config;
    net->peers = peers;
    net->n_unproven = config->n_ranks - 1;
    net->connect_done = done;
    net->connect_arg = arg;
    net->connect_status = net->n_unproven > 0;
    net_signal(net);
    for (uint32_t i = 0; i < config->n_ranks; i++) {
        if (i != config->rank) {
            peers[i].net = hub_find(addresses[i], bytes[i]);
        }
    }
    for (uint32_t i = 0; i < config->n_ranks; i++) {
        struct net *other = peers[i].net;

        if (i == config->rank) {
            continue;
        }
        if (!other) {
            peer_gone(net, i, "nobody at this address");
        } else if (other->peers && other->config.rank < config->n_ranks &&
                   peers[other->config.rank].net == other) {
            peers_prove(net, other);
        }
    }
    pthread_mutex_unlock(&hub.lock);
}

void hub_send(struct net *net, uint32_t to, struct local_item *item)
{
    pthread_mutex_lock(&hub.lock);
    if (net->peers[to].state != PEER_PROVEN) {
        item_finish(item, GEMS_E_PEER);
    } else {
        struct net *receiver = net->peers[to].net;

        net->counters.bytes_out += item->bytes;
        net->counters.messages_out++;
        if (hub.delay_max_us > 0 || receiver->delayed.first) {
            net_delay(receiver, item);
        } else {
            net_deliver(receiver, item);
        }
    }
    pthread_mutex_unlock(&hub.lock);
}

void hub_recv(struct net *net, uint32_t from, struct local_item *item)
{
    struct match_item *arrived;

    pthread_mutex_lock(&hub.lock);
    arrived = net_match_take(&net->arrived, from, item->match.tag);
    if (arrived) {
        pair_finish((struct local_item *)arrived, item);
    } else if (net->peers[from].state != PEER_PROVEN) {
        item_finish(item, GEMS_E_PEER);
    } else {
        net_match_push(&net->posted, &item->match);
    }
    pthread_mutex_unlock(&hub.lock);
}

struct local_item *hub_collect(struct net *net, int *ret_connect)
{
    struct local_item *first;
    uint64_t count;

    pthread_mutex_lock(&hub.lock);
    if (net->is_signalled) {
        net->is_signalled = false;
        (void)!read(net->event_fd, &count, sizeof count);
    }
    net_deliver_due(net);
    first = net->finished.first;
    net->finished = (struct local_list){ NULL, NULL };
    *ret_connect = 1;
    if (net->peers && !net->is_connect_told && net->connect_status <= 0) {
        net->is_connect_told = true;
        *ret_connect = net->connect_status;
    }
    pthread_mutex_unlock(&hub.lock);
    return first;
}

bool hub_has_work(struct net *net, int64_t *ret_due_ns)
{
    bool has_work;

    pthread_mutex_lock(&hub.lock);
    has_work = net->is_signalled || net->finished.first;
    *ret_due_ns = net->delayed.first ? net->delayed.first->due_ns : 0;
    pthread_mutex_unlock(&hub.lock);
    return has_work;
}

const char *hub_peer_error(struct net *net)
{
    const char *error;

    pthread_mutex_lock(&hub.lock);
    for (uint32_t i = 0; net->peers && i < net->config.n_ranks; i++) {
        if (net->peers[i].state == PEER_REFUSED) {
            net_note(net, i, "refused: another job, attempt, rank or secret");
        } else if (net->peers[i].state == PEER_WAITED_FOR && i != net->config.rank) {
            net_note(net, i, "has not said hello");
        }
    }
    error = net->error[0] ? net->error : "";
    pthread_mutex_unlock(&hub.lock);
    return error;
}

void hub_counters(struct net *net, struct net_counters *ret_counters)
{
    pthread_mutex_lock(&hub.lock);
    *ret_counters = net->counters;
    pthread_mutex_unlock(&hub.lock);
}
