#include "daemon/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bg.h"
#include "common/error.h"
#include "common/log.h"
#include "daemon/flow.h"
#include "daemon/handlers.h"
#include "daemon/launch.h"

enum { NODE_MAX_DEVICES = 256, NODE_MAX = 4096 };

struct cluster_node *nodes_find(struct daemon *daemon, const char *name)
{
    list_each(&daemon->nodes, link)
    {
        struct cluster_node *node = list_item(link, struct cluster_node, link);

        if (!strcmp(node->name, name)) {
            return node;
        }
    }
    return NULL;
}

struct device *nodes_device(struct cluster_node *node, const char *id)
{
    for (uint32_t i = 0; i < node->n_devices; i++) {
        if (!strcmp(node->devices[i].id, id)) {
            return &node->devices[i];
        }
    }
    return NULL;
}

bool node_is_usable(const struct cluster_node *node)
{
    return node->peer && node->state == NODE_ONLINE && !node->is_drained && node->n_strays == 0;
}

static bool has_jobs(const struct cluster_node *node)
{
    for (uint32_t i = 0; i < node->n_devices; i++) {
        if (node->devices[i].job) {
            return true;
        }
    }
    return false;
}

const char *node_state_name(const struct cluster_node *node)
{
    if (node->state == NODE_LOST) {
        return "lost";
    }
    if (node->state == NODE_SUSPECT) {
        return "suspect";
    }
    return !node->is_drained ? "online" : has_jobs(node) ? "draining" : "drained";
}

void nodes_reserve(struct daemon *daemon, const struct job *job)
{
    for (uint32_t i = 0; i < job->attempt->n_ranks; i++) {
        const struct rank *rank = &job->attempt->ranks[i];
        struct cluster_node *node = nodes_find(daemon, rank->place.node);
        struct device *device = node ? nodes_device(node, rank->place.device) : NULL;

        if (device && rank->state != RANK_GONE) {
            device->job = job->id;
        }
    }
}

void nodes_release(struct daemon *daemon, const struct job *job, const struct store_rank *place)
{
    struct cluster_node *node = nodes_find(daemon, place->node);
    struct device *device = node ? nodes_device(node, place->device) : NULL;

    if (device && device->job == job->id) {
        device->job = 0;
        daemon->is_placing = true;
    }
}

void nodes_release_all(struct daemon *daemon, const struct job *job)
{
    list_each(&daemon->nodes, link)
    {
        struct cluster_node *node = list_item(link, struct cluster_node, link);

        for (uint32_t i = 0; i < node->n_devices; i++) {
            if (node->devices[i].job == job->id) {
                node->devices[i].job = 0;
                daemon->is_placing = true;
            }
        }
    }
}

static struct cluster_node *node_create(struct daemon *daemon, const char *name)
{
    struct cluster_node *node = calloc(1, sizeof *node);

    if (node) {
        snprintf(node->name, sizeof node->name, "%s", name);
        node->state = NODE_LOST;
        list_push(&daemon->nodes, &node->link);
    }
    return node;
}

static void node_destroy(struct cluster_node *node)
{
    list_remove(&node->link);
    if (node->peer) {
        node->peer->node = NULL;
    }
    free(node->devices);
    free(node);
}

void nodes_destroy_all(struct daemon *daemon)
{
    list_each(&daemon->nodes, link)
    {
        node_destroy(list_item(link, struct cluster_node, link));
    }
}

int nodes_load(struct daemon *daemon, struct gems_error *err)
{
    struct store_node *rows;
    size_t n;
    int status = store_nodes(daemon->store, &rows, &n, err);

    for (size_t i = 0; status >= 0 && i < n; i++) {
        struct cluster_node *node = rows[i].is_drained ? node_create(daemon, rows[i].name) : NULL;

        if (node) {
            node->is_drained = true;
            snprintf(node->reason, sizeof node->reason, "%s", rows[i].reason);
        }
    }
    if (status >= 0) {
        free(rows);
    }
    return status;
}

/* ---- Register ---- */

static int check_register(const Gems__Register *message, struct gems_error *err)
{
    if (!message->node[0] || strlen(message->node) >= STORE_NAME_BYTES ||
        strchr(message->node, '/')) {
        return gems_error_set(err, GEMS_E_INVALID, "register: bad node name \"%.80s\"",
                              message->node);
    }
    if (message->n_devices == 0 || message->n_devices > NODE_MAX_DEVICES) {
        return gems_error_set(err, GEMS_E_INVALID, "register: %zu devices, 1 to %d are possible",
                              message->n_devices, NODE_MAX_DEVICES);
    }
    for (size_t i = 0; i < message->n_devices; i++) {
        const Gems__DeviceInfo *device = message->devices[i];

        if (!device->id[0] || strlen(device->id) >= STORE_NAME_BYTES ||
            strlen(device->kind) >= 16) {
            return gems_error_set(err, GEMS_E_INVALID, "register: bad device id or kind");
        }
        for (size_t k = 0; k < i; k++) {
            if (!strcmp(message->devices[k]->id, device->id)) {
                return gems_error_set(err, GEMS_E_INVALID, "register: device %s is there twice",
                                      device->id);
            }
        }
    }
    return GEMS_OK;
}

static int take_devices(struct cluster_node *node, const Gems__Register *message,
                        struct gems_error *err)
{
    struct device *devices = calloc(message->n_devices, sizeof *devices);

    if (!devices) {
        return gems_error_set(err, GEMS_E_NOMEM, "register: no memory");
    }
    for (size_t i = 0; i < message->n_devices; i++) {
        const Gems__DeviceInfo *from = message->devices[i];

        snprintf(devices[i].id, sizeof devices[i].id, "%s", from->id);
        snprintf(devices[i].kind, sizeof devices[i].kind, "%s", from->kind);
        devices[i].memory_bytes = from->memory_bytes;
        devices[i].threads = from->threads;
    }
    free(node->devices);
    node->devices = devices;
    node->n_devices = (uint32_t)message->n_devices;
    return GEMS_OK;
}

static bool is_current(struct daemon *daemon, const struct cluster_node *node,
                       const Gems__RankRef *ref)
{
    struct job *job = jobs_find_attempt(daemon, ref->job, ref->attempt);

    return job && job_has_ranks(job->core.state) && ref->rank < job->attempt->n_ranks &&
           job->attempt->ranks[ref->rank].state != RANK_GONE &&
           !strcmp(job->attempt->ranks[ref->rank].place.node, node->name);
}

/* A new agent process of the same name replaces the old connection. */
static void replace_peer(struct cluster_node *node, struct peer *peer)
{
    if (node->peer && node->peer != peer) {
        log_info("node %s: registers again, the old connection is dropped", node->name);
        node->peer->node = NULL;
        peer_finish(node->peer);
    }
    node->peer = peer;
    peer->node = node;
}

static void send_register_reply(struct daemon *daemon, struct cluster_node *node, uint32_t call,
                                const Gems__Register *message)
{
    Gems__RegisterReply reply = GEMS__REGISTER_REPLY__INIT;

    reply.kill = calloc(message->n_running + 1, sizeof *reply.kill);
    for (size_t i = 0; reply.kill && i < message->n_running; i++) {
        if (!is_current(daemon, node, message->running[i])) {
            reply.kill[reply.n_kill++] = message->running[i];
        }
    }
    node->n_strays = (uint32_t)reply.n_kill;
    peer_reply(node->peer, call, MSG_REGISTER_REPLY, &reply.base);
    free(reply.kill);
}

/* Two agents of one name would end each other's ranks by turns. */
static int check_name_free(struct daemon *daemon, const struct cluster_node *node,
                           const struct peer *peer, const Gems__Register *message,
                           struct gems_error *err)
{
    int64_t silent_us = daemon_now_us(daemon) - node->seen_us;

    if (!node->peer || node->peer == peer || node->instance == message->instance ||
        silent_us >= (int64_t)daemon->settings->suspect_ms * 1000) {
        return GEMS_OK;
    }
    gems_error_set(err, GEMS_E_STATE, "register: another agent (%s) is node %s", node->peer->address,
                   node->name);
    gems_error_hint(err, "give each agent a --name of its own");
    return GEMS_E_STATE;
}

void on_register(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__Register *message = (const Gems__Register *)base;
    struct daemon *daemon = peer->daemon;
    struct gems_error err;
    struct cluster_node *node;
    int status = check_register(message, &err);

    if (status >= 0 && !peer->is_listed_worker) {
        status =
            gems_error_set(&err, GEMS_E_DENIED, "register: %s may not bring nodes", peer->user);
        gems_error_hint(&err, "list the user under workers in the configuration of gemsd");
    }
    node = status < 0 ? NULL : nodes_find(daemon, message->node);
    if (status >= 0 && node && node->peer && strcmp(node->user, peer->user) != 0) {
        status = gems_error_set(&err, GEMS_E_DENIED, "register: node %s belongs to %s", node->name,
                                node->user);
    }
    if (status >= 0 && node) {
        status = check_name_free(daemon, node, peer, message, &err);
    }
    if (status >= 0 && !node) {
        node = list_count(&daemon->nodes) < NODE_MAX ? node_create(daemon, message->node) : NULL;
        status = node ? GEMS_OK : gems_error_set(&err, GEMS_E_NOMEM, "register: too many nodes");
    }
    if (status >= 0) {
        status = take_devices(node, message, &err);
    }
    if (status < 0) {
        log_warning("peer %s: %s", peer->address, err.text);
        peer_error(peer, call, &err);
        return;
    }
    replace_peer(node, peer);
    node->instance = message->instance;
    snprintf(node->user, sizeof node->user, "%s", peer->user);
    snprintf(node->version, sizeof node->version, "%s", message->version);
    snprintf(node->boot_id, sizeof node->boot_id, "%s", message->boot_id);
    snprintf(node->kind_cpu, sizeof node->kind_cpu, "%s", message->kind_cpu);
    node->state = NODE_ONLINE;
    node->seen_us = daemon_now_us(daemon);
    list_each(&daemon->jobs, link)
    {
        struct job *job = list_item(link, struct job, link);

        if (job->attempt) {
            nodes_reserve(daemon, job);
        }
    }
    send_register_reply(daemon, node, call, message);
    log_info("node %s: %u devices, %zu ranks running", node->name, node->n_devices,
             message->n_running);
    launch_node_back(daemon, node, message);
    daemon->is_placing = true;
}

void on_ping(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    (void)base;
    if (call) {
        peer_ok(peer, call);
    }
}

void nodes_peer_closed(struct cluster_node *node)
{
    struct daemon *daemon = node->peer->daemon;

    node->peer = NULL;
    node->seen_us = daemon_now_us(daemon);
    if (!daemon->is_closing) {
        log_warning("node %s: connection lost", node->name);
    }
}

/* ---- time ---- */

static bool has_living_rank(struct daemon *daemon, const struct cluster_node *node,
                            int64_t since_us)
{
    list_each(&daemon->jobs, link)
    {
        struct job *job = list_item(link, struct job, link);

        for (uint32_t i = 0; job->attempt && i < job->attempt->n_ranks; i++) {
            const struct rank *rank = &job->attempt->ranks[i];

            if (rank->peer && rank->seen_us >= since_us && !strcmp(rank->place.node, node->name)) {
                return true;
            }
        }
    }
    return false;
}

static void check_silence(struct daemon *daemon, struct cluster_node *node, int64_t now_us)
{
    int64_t lost_us = (int64_t)daemon->settings->lost_ms * 1000;
    int64_t silent_us = now_us - node->seen_us;

    if (node->state == NODE_LOST) {
        return;
    }
    if (silent_us < (int64_t)daemon->settings->suspect_ms * 1000) {
        if (node->peer && node->state == NODE_SUSPECT) {
            node->state = NODE_ONLINE;
            daemon->is_placing = true;
        }
        return;
    }
    if (node->state == NODE_ONLINE) {
        log_warning("node %s: silent, suspect", node->name);
        node->state = NODE_SUSPECT;
    }
    if (silent_us >= lost_us && !has_living_rank(daemon, node, now_us - lost_us)) {
        log_warning("node %s: lost", node->name);
        node->state = NODE_LOST;
        if (node->peer) {
            struct peer *peer = node->peer;

            node->peer = NULL;
            peer->node = NULL;
            peer_finish(peer);
        }
        launch_node_lost(daemon, node);
    }
}

static void check_deadline(struct daemon *daemon, struct cluster_node *node, int64_t now_us)
{
    if (!node->deadline_us || now_us < node->deadline_us) {
        return;
    }
    node->deadline_us = 0;
    list_each(&daemon->jobs, link)
    {
        struct job *job = list_item(link, struct job, link);
        bool is_there = false;

        for (uint32_t i = 0; job->attempt && i < job->attempt->n_ranks; i++) {
            is_there |= !strcmp(job->attempt->ranks[i].place.node, node->name);
        }
        if (is_there && (job->core.state == JOB_STARTING || job->core.state == JOB_RUNNING)) {
            flow_post(daemon, job, ON_MOVE, "gemsd", "node %s is drained: %s", node->name,
                      node->reason);
        }
    }
}

void nodes_tick(struct daemon *daemon)
{
    int64_t now_us = daemon_now_us(daemon);

    list_each(&daemon->nodes, link)
    {
        struct cluster_node *node = list_item(link, struct cluster_node, link);

        check_silence(daemon, node, now_us);
        check_deadline(daemon, node, now_us);
    }
}

void nodes_forgive(struct daemon *daemon, int64_t gap_us)
{
    list_each(&daemon->nodes, link)
    {
        list_item(link, struct cluster_node, link)->seen_us += gap_us;
    }
}

/* ---- drain ---- */

struct drain {
    struct daemon *daemon;
    uint64_t peer;
    uint32_t call;
    struct store_node row;
    uint32_t deadline_s;
    int result;
    struct gems_error err;
};

static void drain_work(void *arg)
{
    struct drain *drain = arg;

    drain->result = store_node_put(drain->daemon->store, &drain->row, &drain->err);
}

static void drain_done(void *arg, bool is_run)
{
    struct drain *drain = arg;
    struct daemon *daemon = drain->daemon;
    struct peer *peer = is_run ? server_peer(daemon->server, drain->peer) : NULL;
    struct cluster_node *node = is_run ? nodes_find(daemon, drain->row.name) : NULL;

    if (node && drain->result >= 0) {
        node->is_drained = drain->row.is_drained;
        memcpy(node->reason, drain->row.reason, sizeof node->reason);
        node->deadline_us = node->is_drained && drain->deadline_s
                                ? daemon_now_us(daemon) + (int64_t)drain->deadline_s * 1000000
                                : 0;
        daemon->is_placing = true;
        log_info("node %s: %s by an operator", node->name,
                 node->is_drained ? "drained" : "undrained");
    }
    if (peer && drain->result < 0) {
        peer_error(peer, drain->call, &drain->err);
    } else if (peer) {
        peer_ok(peer, drain->call);
    }
    free(drain);
}

void on_drain(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    const Gems__DrainRequest *message = (const Gems__DrainRequest *)base;
    struct cluster_node *node = nodes_find(peer->daemon, message->node);
    struct gems_error err;
    struct drain *drain;
    int status = GEMS_OK;

    if (!peer->is_operator) {
        status = gems_error_set(&err, GEMS_E_DENIED, "node %.80s: only operators drain nodes",
                                message->node);
    } else if (!node) {
        status = gems_error_set(&err, GEMS_E_NOTFOUND, "node %.80s: no such node", message->node);
    }
    drain = status < 0 ? NULL : calloc(1, sizeof *drain);
    if (status >= 0 && !drain) {
        status = gems_error_set(&err, GEMS_E_NOMEM, "drain: no memory");
    }
    if (status >= 0) {
        drain->daemon = peer->daemon;
        drain->peer = peer->id;
        drain->call = call;
        drain->deadline_s = message->deadline_s;
        drain->row.is_drained = !message->undrain;
        snprintf(drain->row.name, sizeof drain->row.name, "%s", node->name);
        snprintf(drain->row.reason, sizeof drain->row.reason, "%s",
                 message->undrain ? "" : message->reason);
        gems_text_line(drain->row.reason);
        status = bg_submit(peer->daemon->store_bg, drain_work, drain_done, drain, &err);
    }
    if (status < 0) {
        free(drain);
        peer_error(peer, call, &err);
    }
}
