/* Endpoints of the transport over UCX: how peers are reached and lost. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/error.h"
#include "worker/net/ucx_internal.h"

enum { MAX_RANKS = 4096, FLUSH_US = 1000 * 1000 };

void ucx_note(struct net *net, uint32_t rank, const char *format, ...)
{
    va_list args;
    int n;

    if (net->error[0] != '\0') {
        return;
    }
    n = snprintf(net->error, sizeof net->error, "rank %u: ", rank);
    va_start(args, format);
    vsnprintf(net->error + n, sizeof net->error - (size_t)n, format, args);
    va_end(args);
}

void ucx_connect_end(struct net *net, int status)
{
    if (net->connect_done && net->connect_status > 0) {
        net->connect_status = status;
        explicit_bzero(net->config.secret, sizeof net->config.secret);
    }
}

void ucx_peer_fail(struct ucx_peer *peer, ucs_status_t reason)
{
    if (!peer->is_failing && !peer->is_failed) {
        peer->is_failing = true;
        peer->reason = reason;
        peer->net->has_failing_peer = true;
    }
}

static void on_endpoint_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    ucx_peer_fail(arg, status);
}

static void close_endpoint(struct ucx_peer *peer)
{
    const ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                        .flags = UCP_EP_CLOSE_FLAG_FORCE };
    ucs_status_ptr_t request;

    if (!peer->ep) {
        return;
    }
    request = ucp_ep_close_nbx(peer->ep, &param);
    peer->ep = NULL;
    if (UCS_PTR_IS_PTR(request)) {
        /* It ends by itself; nobody waits for it. */
        ucp_request_free(request);
    }
}

int ucx_handle_failures(struct net *net)
{
    int n = 0;

    if (!net->has_failing_peer) {
        return 0;
    }
    net->has_failing_peer = false;
    for (uint32_t i = 0; i < net->config.n_ranks; i++) {
        struct ucx_peer *peer = &net->peers[i];

        if (peer->is_failing) {
            if (peer->reason == UCS_ERR_NOT_CONNECTED) {
                ucx_note(net, i, "closed");
            } else {
                ucx_note(net, i, "connection lost: %s", ucs_status_string(peer->reason));
            }
            peer->is_failing = false;
            peer->is_failed = true;
            ucx_match_drop_peer(net, i);
            close_endpoint(peer);
            ucx_connect_end(net, GEMS_E_PEER);
            n++;
        }
    }
    return n;
}

static ucs_status_t open_endpoint(struct ucx_peer *peer, const uint8_t *address)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = { .cb = on_endpoint_error, .arg = peer },
    };

    return ucp_ep_create(peer->net->worker, &params, &peer->ep);
}

static int open_endpoints(struct net *net, const uint8_t *const *addresses, const size_t *bytes,
                          struct gems_error *err)
{
    for (uint32_t i = 0; i < net->config.n_ranks; i++) {
        struct ucx_peer *peer = &net->peers[i];
        ucs_status_t status;

        peer->net = net;
        peer->rank = i;
        list_init(&peer->flights);
        if (i == net->config.rank) {
            continue;
        }
        if (bytes[i] == 0 || bytes[i] > NET_MAX_ADDRESS) {
            return gems_error_set(err, GEMS_E_INVALID, "transport ucx: rank %u has no address", i);
        }
        status = open_endpoint(peer, addresses[i]);
        if (status != UCS_OK) {
            peer->ep = NULL;
            gems_error_set(err, GEMS_E_PEER, "transport ucx: rank %u cannot be reached: %s", i,
                           ucs_status_string(status));
            gems_error_hint(err, "UCX_NET_DEVICES and UCX_TLS must allow a network that all "
                                 "nodes share");
            return GEMS_E_PEER;
        }
    }
    return 0;
}

int ucx_connect(struct net *net, const struct net_config *config, const uint8_t *const *addresses,
                const size_t *bytes, net_done_fn done, void *arg, struct gems_error *err)
{
    int status;

    if (net->peers) {
        return gems_error_set(err, GEMS_E_STATE, "transport ucx: connected already");
    }
    if (config->n_ranks == 0 || config->n_ranks > MAX_RANKS || config->rank >= config->n_ranks) {
        return gems_error_set(err, GEMS_E_INVALID, "transport ucx: rank %u of %u", config->rank,
                              config->n_ranks);
    }
    net->peers = calloc(config->n_ranks, sizeof *net->peers);
    if (!net->peers) {
        return gems_error_set(err, GEMS_E_NOMEM, "transport ucx: no memory for %u peers",
                              config->n_ranks);
    }
    net->config = *config;
    net->n_unproven = config->n_ranks - 1;
    status = open_endpoints(net, addresses, bytes, err);
    if (status < 0) {
        return status;
    }
    net->connect_done = done;
    net->connect_arg = arg;
    net->connect_status = 1;
    if (net->n_unproven == 0) {
        ucx_connect_end(net, 0);
    }
    return ucx_hello_start(net, err);
}

ucs_status_t ucx_on_bye(void *arg, const void *header, size_t header_bytes, void *data,
                        size_t bytes, const ucp_am_recv_param_t *param)
{
    struct net *net = arg;
    struct ucx_peer *peer = NULL;
    struct ucx_header h;

    (void)data;
    (void)param;
    if (header_bytes == sizeof h) {
        memcpy(&h, header, sizeof h);
        peer = ucx_message_source(net, &h, bytes);
    }
    if (peer) {
        ucx_peer_fail(peer, UCS_ERR_NOT_CONNECTED);
    } else {
        net->counters.dropped++;
    }
    return UCS_OK;
}

static void wait_until(struct ucx_peer *peer, ucs_status_ptr_t request, int64_t deadline_us)
{
    if (!UCS_PTR_IS_PTR(request)) {
        return;
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS && !peer->is_failing &&
           clock_monotonic_us(&clock_system) < deadline_us) {
        ucp_worker_progress(peer->net->worker);
    }
    ucp_request_free(request);
}

void ucx_disconnect(struct net *net)
{
    const ucp_request_param_t flush = { .op_attr_mask = 0 };
    const ucp_request_param_t eager = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                        .flags = UCP_AM_SEND_FLAG_EAGER };
    int64_t deadline_us = clock_monotonic_us(&clock_system) + FLUSH_US;

    for (uint32_t i = 0; net->peers && i < net->config.n_ranks; i++) {
        struct ucx_peer *peer = &net->peers[i];

        if (peer->ep && peer->is_proven && !peer->is_failing) {
            peer->bye = ucx_header_to(peer, 0, 0);
            wait_until(peer,
                       ucp_am_send_nbx(peer->ep, UCX_AM_BYE, &peer->bye, sizeof peer->bye, NULL, 0,
                                       &eager),
                       deadline_us);
        }
    }
    for (uint32_t i = 0; net->peers && i < net->config.n_ranks; i++) {
        struct ucx_peer *peer = &net->peers[i];

        if (peer->ep && !peer->is_failing) {
            wait_until(peer, ucp_ep_flush_nbx(peer->ep, &flush), deadline_us);
        }
    }
    for (uint32_t i = 0; net->peers && i < net->config.n_ranks; i++) {
        close_endpoint(&net->peers[i]);
    }
    for (int i = 0; i < 1000 && ucp_worker_progress(net->worker) > 0; i++) {
        continue;
    }
}

const char *ucx_peer_error(struct net *net)
{
    for (uint32_t i = 0; i < net->config.n_ranks && net->connect_status > 0; i++) {
        if (i != net->config.rank && !net->peers[i].is_proven) {
            ucx_note(net, i,
                     "has not proved that it belongs to this attempt (%llu messages "
                     "refused)",
                     (unsigned long long)net->counters.dropped);
        }
    }
    return net->error;
}
