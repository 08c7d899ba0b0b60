/* Messages over UCX: sending, posting, and what arrives.
 *
 * A small message comes with its bytes and is copied once, from UCX's buffer to
 * the receiver's. A large one comes as an announcement (rendezvous); its bytes
 * are pulled into the posted buffer. What comes before its receive stays in
 * UCX's descriptor, within a bound.
 */
#include <string.h>

#include "common/error.h"
#include "worker/net/ucx_internal.h"

/* From here on a message is announced first: UCX would put an eager one of many
 * fragments together in a buffer of its own. */
enum { RNDV_BYTES = 8192 };
enum { MAX_ARRIVED = 1 << 16, MAX_ARRIVED_BYTES = 256 << 20 };

static void item_finish(struct ucx_item *item, int status)
{
    struct net *net = item->net;

    item->is_finished = true;
    item->status = status;
    item->next = NULL;
    if (net->last_finished) {
        net->last_finished->next = item;
    } else {
        net->first_finished = item;
    }
    net->last_finished = item;
}

/* Before UCX gets it: when the peer has failed, UCX calls back at once. */
static void item_fly(struct ucx_item *item)
{
    item->is_in_flight = true;
    list_push(&item->net->peers[item->match.source].flights, &item->flight);
}

/* UCX is done with it, has called back or will not; false: the caller has been told already. */
static bool item_land(struct ucx_item *item)
{
    list_remove(&item->flight);
    item->is_in_flight = false;
    if (item->is_told) {
        pool_give(&item->net->pool, item);
        return false;
    }
    return !item->is_finished;
}

void ucx_item_told(struct ucx_item *item)
{
    item->is_told = true;
    if (!item->is_in_flight) {
        pool_give(&item->net->pool, item);
    }
}

static void recv_finish(struct ucx_item *item, int status)
{
    if (status == 0) {
        item->net->counters.messages_in++;
        item->net->counters.bytes_in += item->bytes;
    }
    item_finish(item, status);
}

/* ---- sending ---- */

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    struct ucx_item *item = arg;

    ucp_request_free(request);
    if (status != UCS_OK) {
        ucx_peer_fail(&item->net->peers[item->match.source], status);
    }
    if (item_land(item)) {
        item_finish(item, status == UCS_OK ? 0 : GEMS_E_PEER);
    }
}

/* For both directions: an item for a request of a peer that may be used. */
static int request_item(struct net *net, uint32_t peer, uint64_t tag, uint64_t bytes,
                        net_done_fn done, void *arg, struct ucx_item **ret_item,
                        struct gems_error *err)
{
    struct ucx_item *item;

    if (peer >= net->config.n_ranks || peer == net->config.rank ||
        !(net->peers[peer].is_proven || net->peers[peer].is_failed)) {
        return gems_error_set(err, GEMS_E_INVALID, "transport ucx: no connected peer %u", peer);
    }
    item = pool_take(&net->pool);
    if (!item) {
        return gems_error_set(err, GEMS_E_NOMEM, "transport ucx: too many requests");
    }
    *item = (struct ucx_item){ .match = { .source = peer, .tag = tag },
                               .net = net,
                               .bytes = bytes,
                               .done = done,
                               .arg = arg };
    *ret_item = item;
    return 0;
}

struct ucx_header ucx_header_to(const struct ucx_peer *peer, uint64_t tag, uint64_t bytes)
{
    const struct net_config *config = &peer->net->config;

    return (struct ucx_header){ .cookie = peer->cookie_out,
                                .job = config->job,
                                .attempt = config->attempt,
                                .source = config->rank,
                                .tag = tag,
                                .bytes = bytes };
}

int ucx_send(struct net *net, uint32_t to, uint64_t tag, const void *buffer, uint64_t bytes,
             net_done_fn done, void *arg, struct gems_error *err)
{
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = bytes < RNDV_BYTES ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV,
        .cb = { .send = on_sent },
    };
    struct ucx_item *item;
    struct ucx_peer *peer;
    ucs_status_ptr_t request;
    int status = request_item(net, to, tag, bytes, done, arg, &item, err);

    if (status < 0) {
        return status;
    }
    peer = &net->peers[to];
    if (peer->is_failed || peer->is_failing) {
        item_finish(item, GEMS_E_PEER);
        return 0;
    }
    item->header = ucx_header_to(peer, tag, bytes);
    param.user_data = item;
    item_fly(item);
    request = ucp_am_send_nbx(peer->ep, UCX_AM_MESSAGE, &item->header, sizeof item->header, buffer,
                              bytes, &param);
    if (UCS_PTR_IS_ERR(request)) {
        ucx_peer_fail(peer, UCS_PTR_STATUS(request));
        item_land(item);
        item_finish(item, GEMS_E_PEER);
        return 0;
    }
    net->counters.messages_out++;
    net->counters.bytes_out += bytes;
    if (!request) {
        item_land(item);
        item_finish(item, 0);
    }
    return 0;
}

/* ---- receiving ---- */

static void on_pulled(void *request, ucs_status_t status, size_t bytes, void *arg)
{
    struct ucx_item *item = arg;

    (void)bytes;
    ucp_request_free(request);
    if (status != UCS_OK) {
        ucx_peer_fail(&item->net->peers[item->match.source], status);
    }
    if (item_land(item)) {
        recv_finish(item, status == UCS_OK ? 0 : GEMS_E_PEER);
    }
}

/* Pulls an announced message into the receive's buffer. */
static void recv_pull(struct ucx_item *item, void *data)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb = { .recv_am = on_pulled },
        .user_data = item,
    };
    ucs_status_ptr_t request;

    item_fly(item);
    request = ucp_am_recv_data_nbx(item->net->worker, data, item->buffer, item->bytes, &param);
    if (UCS_PTR_IS_ERR(request)) {
        ucx_peer_fail(&item->net->peers[item->match.source], UCS_PTR_STATUS(request));
        item_land(item);
        recv_finish(item, GEMS_E_PEER);
    } else if (!request) {
        item_land(item);
        recv_finish(item, 0);
    }
}

static bool is_expected_length(struct ucx_item *recv, uint64_t bytes)
{
    struct net *net = recv->net;

    if (bytes == recv->bytes) {
        return true;
    }
    ucx_note(net, recv->match.source, "message %016llx has %llu bytes, expected %llu",
             (unsigned long long)recv->match.tag, (unsigned long long)bytes,
             (unsigned long long)recv->bytes);
    net->counters.dropped++;
    item_finish(recv, GEMS_E_PEER);
    return false;
}

struct ucx_peer *ucx_message_source(struct net *net, const struct ucx_header *h, size_t bytes)
{
    struct ucx_peer *peer;

    if (h->source >= net->config.n_ranks || h->source == net->config.rank) {
        return NULL;
    }
    peer = &net->peers[h->source];
    if (!peer->has_nonce || peer->is_failed || h->cookie != peer->cookie_in ||
        h->job != net->config.job || h->attempt != net->config.attempt || h->bytes != bytes) {
        return NULL;
    }
    return peer;
}

static ucs_status_t message_keep(struct net *net, const struct ucx_header *h, void *data,
                                 bool is_rndv)
{
    struct ucx_item *item = NULL;

    if (net->arrived.n_items < MAX_ARRIVED &&
        (is_rndv || net->arrived_bytes + h->bytes <= MAX_ARRIVED_BYTES)) {
        item = pool_take(&net->pool);
    }
    if (!item) {
        ucx_note(net, h->source, "sends what nobody receives: %u messages", net->arrived.n_items);
        net->counters.dropped++;
        ucx_peer_fail(&net->peers[h->source], UCS_ERR_EXCEEDS_LIMIT);
        return UCS_OK;
    }
    *item = (struct ucx_item){ .match = { .source = h->source, .tag = h->tag },
                               .net = net,
                               .bytes = h->bytes,
                               .data = h->bytes > 0 ? data : NULL,
                               .is_rndv = is_rndv };
    net->arrived_bytes += is_rndv ? 0 : h->bytes;
    net_match_push(&net->arrived, &item->match);
    return item->data ? UCS_INPROGRESS : UCS_OK;
}

ucs_status_t ucx_on_message(void *arg, const void *header, size_t header_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param)
{
    struct net *net = arg;
    bool is_rndv = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    struct ucx_item *recv;
    struct ucx_header h;

    if (net->is_closing || header_bytes != sizeof h) {
        net->counters.dropped++;
        return UCS_OK;
    }
    memcpy(&h, header, sizeof h);
    if (!ucx_message_source(net, &h, bytes)) {
        net->counters.dropped++;
        return UCS_OK;
    }
    recv = (struct ucx_item *)net_match_take(&net->posted, h.source, h.tag);
    if (!recv) {
        return message_keep(net, &h, data, is_rndv);
    }
    if (!is_expected_length(recv, bytes)) {
        return UCS_OK;
    }
    if (is_rndv) {
        recv_pull(recv, data);
        return UCS_OK;
    }
    if (bytes > 0) {
        memcpy(recv->buffer, data, bytes);
    }
    recv_finish(recv, 0);
    return UCS_OK;
}

/* Takes an item out of net->arrived and gives its descriptor back, unless pulled. */
static void arrived_release(struct ucx_item *item, bool is_pulled)
{
    struct net *net = item->net;

    if (item->data && !is_pulled) {
        ucp_am_data_release(net->worker, item->data);
    }
    net->arrived_bytes -= item->is_rndv ? 0 : item->bytes;
    pool_give(&net->pool, item);
}

static void recv_arrived(struct ucx_item *recv, struct ucx_item *arrived)
{
    bool is_pulled = false;

    if (is_expected_length(recv, arrived->bytes)) {
        if (arrived->is_rndv) {
            is_pulled = true;
            recv_pull(recv, arrived->data);
        } else {
            if (arrived->data) {
                memcpy(recv->buffer, arrived->data, arrived->bytes);
            }
            recv_finish(recv, 0);
        }
    }
    arrived_release(arrived, is_pulled);
}

int ucx_recv(struct net *net, uint32_t from, uint64_t tag, void *buffer, uint64_t bytes,
             net_done_fn done, void *arg, struct gems_error *err)
{
    struct ucx_item *recv, *arrived;
    int status = request_item(net, from, tag, bytes, done, arg, &recv, err);

    if (status < 0) {
        return status;
    }
    recv->buffer = buffer;
    arrived = (struct ucx_item *)net_match_take(&net->arrived, from, tag);
    if (arrived) {
        recv_arrived(recv, arrived);
    } else if (net->peers[from].is_failed) {
        item_finish(recv, GEMS_E_PEER);
    } else {
        net_match_push(&net->posted, &recv->match);
    }
    return 0;
}

/* ---- ends ---- */

/* What came whole before the peer failed can still be received. */
void ucx_match_drop_peer(struct net *net, uint32_t rank)
{
    struct ucx_item *kept_first = NULL, **kept_last = &kept_first, *item, *next;

    while ((item = (struct ucx_item *)match_take_source(&net->posted, rank))) {
        item_finish(item, GEMS_E_PEER);
    }
    list_each(&net->peers[rank].flights, link)
    {
        item = list_item(link, struct ucx_item, flight);
        if (!item->is_finished) {
            item_finish(item, GEMS_E_PEER);
        }
    }
    while ((item = (struct ucx_item *)match_take_source(&net->arrived, rank))) {
        if (item->is_rndv) {
            arrived_release(item, false);
        } else {
            item->next = NULL;
            *kept_last = item;
            kept_last = &item->next;
        }
    }
    for (item = kept_first; item; item = next) {
        next = item->next;
        net_match_push(&net->arrived, &item->match);
    }
}

void ucx_match_drop_all(struct net *net)
{
    struct ucx_item *item;

    for (uint32_t i = 0; i < net->config.n_ranks; i++) {
        while ((item = (struct ucx_item *)match_take_source(&net->arrived, i))) {
            arrived_release(item, false);
        }
    }
}
