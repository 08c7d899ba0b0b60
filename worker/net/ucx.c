/* Transport over UCX: context, worker, and the order in which things happen.
 *
 * UCX picks shared memory on one host and TCP (or better) between hosts; its
 * own variables (UCX_TLS, UCX_NET_DEVICES, ...) stay in force. What we need
 * for a dead peer to be noticed within seconds is set at the first open unless
 * the environment says otherwise. UCX takes over signals when it is loaded:
 * UCX_ERROR_SIGNALS, UCX_DEBUG_SIGNO and UCX_WARN_UNUSED_ENV_VARS are in the
 * environment at exec (see worker/agent/launch.c).
 */
#include "worker/net/ucx_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

enum { MAX_ITEMS = 1 << 20, ROUNDS_OF_PROGRESS = 64 };

static const struct {
    const char *name, *value;
} ucx_settings[] = {
    /* Without these, shared memory is not used with failure detection ... */
    { "UCX_POSIX_ERROR_HANDLING", "y" },
    { "UCX_SYSV_ERROR_HANDLING", "y" },
    /* ... and with them, a dead peer is seen at the next round. */
    { "UCX_KEEPALIVE_INTERVAL", "1s" },
    /* Then every byte of shared memory goes through the receiver's queue (64
     * elements of 8 KiB): one that takes a whole message saves the sender from
     * waiting for the receiver's turn on a busy core again and again. */
    { "UCX_POSIX_FIFO_SIZE", "1024" },
    { "UCX_SYSV_FIFO_SIZE", "1024" },
    { "UCX_TCP_KEEPIDLE", "3s" },
    { "UCX_TCP_KEEPINTVL", "1s" },
    { "UCX_TCP_KEEPCNT", "3" },
};

static int check(ucs_status_t status, const char *what, struct gems_error *err)
{
    if (status == UCS_OK) {
        return 0;
    }
    return gems_error_set(err, status == UCS_ERR_NO_MEMORY ? GEMS_E_NOMEM : GEMS_E_IO,
                          "transport ucx: %s: %s", what, ucs_status_string(status));
}

/* By the environment, because ucp_config_modify of 1.13 warns of settings that
 * belong to one transport. */
static void set_environment(void)
{
    for (size_t i = 0; i < sizeof ucx_settings / sizeof ucx_settings[0]; i++) {
        setenv(ucx_settings[i].name, ucx_settings[i].value, 0);
    }
}

static int open_worker(struct net *net, struct gems_error *err)
{
    const ucp_params_t context_params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .name = "gems",
    };
    /* Made by one thread, used by another, closed by the first. */
    const ucp_worker_params_t worker_params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
    };
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    ucp_config_t *config;
    int status;

    pthread_once(&once, set_environment);
    status = check(ucp_config_read(NULL, NULL, &config), "configuration", err);

    if (status < 0) {
        return status;
    }
    status = check(ucp_init(&context_params, config, &net->context), "context", err);
    ucp_config_release(config);
    if (status == 0) {
        status =
            check(ucp_worker_create(net->context, &worker_params, &net->worker), "worker", err);
    }
    if (status == 0) {
        status = check(ucp_worker_get_efd(net->worker, &net->fd), "event descriptor", err);
    }
    return status;
}

static int set_handler(struct net *net, unsigned id, ucp_am_recv_callback_t fn, uint32_t flags,
                       struct gems_error *err)
{
    const ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = id,
        .flags = flags,
        .cb = fn,
        .arg = net,
    };

    return check(ucp_worker_set_am_recv_handler(net->worker, &param), "message handler", err);
}

static void ucx_close(struct net *net)
{
    if (!net) {
        return;
    }
    net->is_closing = true;
    if (net->worker) {
        if (net->posted.buckets) {
            ucx_match_drop_all(net);
        }
        ucx_disconnect(net);
        ucp_worker_destroy(net->worker);
    }
    if (net->context) {
        ucp_cleanup(net->context);
    }
    net_match_fini(&net->posted);
    net_match_fini(&net->arrived);
    pool_fini(&net->pool);
    free(net->early);
    free(net->peers);
    explicit_bzero(&net->config, sizeof net->config);
    free(net);
}

static int ucx_open(struct net **ret_net, struct gems_error *err)
{
    struct net *net = calloc(1, sizeof *net);
    int status;

    if (!net) {
        return gems_error_set(err, GEMS_E_NOMEM, "transport ucx: no memory");
    }
    pool_init(&net->pool, sizeof(struct ucx_item), MAX_ITEMS);
    status = open_worker(net, err);
    if (status == 0) {
        status = net_match_init(&net->posted, err);
    }
    if (status == 0) {
        status = net_match_init(&net->arrived, err);
    }
    /* Peers send as soon as they know the address: handlers come first. */
    if (status == 0) {
        status = set_handler(net, UCX_AM_HELLO, ucx_on_hello, UCP_AM_FLAG_WHOLE_MSG, err);
    }
    if (status == 0) {
        status = set_handler(net, UCX_AM_MESSAGE, ucx_on_message,
                             UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA, err);
    }
    if (status == 0) {
        status = set_handler(net, UCX_AM_BYE, ucx_on_bye, UCP_AM_FLAG_WHOLE_MSG, err);
    }
    if (status < 0) {
        ucx_close(net);
        return status;
    }
    *ret_net = net;
    return 0;
}

static int ucx_address(struct net *net, uint8_t *ret_address, size_t *inout_bytes,
                       struct gems_error *err)
{
    ucp_worker_attr_t attr = { .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS };
    int status = check(ucp_worker_query(net->worker, &attr), "address", err);

    if (status < 0) {
        return status;
    }
    if (attr.address_length > *inout_bytes || attr.address_length > NET_MAX_ADDRESS) {
        status = gems_error_set(err, GEMS_E_UNSUPPORTED,
                                "transport ucx: an address of %zu bytes is too long",
                                attr.address_length);
        gems_error_hint(err, "UCX_NET_DEVICES names fewer network devices");
    } else {
        memcpy(ret_address, attr.address, attr.address_length);
        *inout_bytes = attr.address_length;
    }
    ucp_worker_release_address(net->worker, attr.address);
    return status;
}

static char version_text[UCX_VERSION_BYTES];

static void write_version(void)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    snprintf(version_text, sizeof version_text, "ucx %u.%u.%u", major, minor, release);
}

static const char *ucx_version(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, write_version);
    return version_text;
}

static int run_finished(struct net *net)
{
    int n = 0;

    while (net->first_finished) {
        struct ucx_item *item = net->first_finished;
        net_done_fn done = item->done;
        void *arg = item->arg;
        int status = item->status;

        net->first_finished = item->next;
        if (!item->next) {
            net->last_finished = NULL;
        }
        ucx_item_told(item);
        done(arg, status);
        n++;
    }
    return n;
}

static int tell_connect(struct net *net)
{
    net_done_fn done = net->connect_done;

    if (!done || net->connect_status > 0) {
        return 0;
    }
    net->connect_done = NULL;
    done(net->connect_arg, net->connect_status);
    return 1;
}

static int ucx_progress(struct net *net)
{
    int total = 0;

    for (int round = 0; round < ROUNDS_OF_PROGRESS; round++) {
        int n = (int)ucp_worker_progress(net->worker);

        n += ucx_handle_failures(net);
        n += tell_connect(net);
        n += run_finished(net);
        if (n == 0) {
            break;
        }
        total += n;
    }
    return total;
}

static int ucx_fd(struct net *net)
{
    return net->fd;
}

static int ucx_arm(struct net *net)
{
    if (net->first_finished || net->has_failing_peer ||
        (net->connect_done && net->connect_status <= 0)) {
        return 1;
    }
    return ucp_worker_arm(net->worker) == UCS_ERR_BUSY;
}

static void ucx_counters(struct net *net, struct net_counters *ret_counters)
{
    *ret_counters = net->counters;
}

const struct net_ops net_ucx = {
    .name = "ucx",
    .open = ucx_open,
    .close = ucx_close,
    .address = ucx_address,
    .version = ucx_version,
    .connect = ucx_connect,
    .send = ucx_send,
    .recv = ucx_recv,
    .progress = ucx_progress,
    .fd = ucx_fd,
    .arm = ucx_arm,
    .peer_error = ucx_peer_error,
    .counters = ucx_counters,
};
