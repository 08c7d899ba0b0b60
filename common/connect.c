#include "common/connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/error.h"

enum {
    CONNECT_KEEPIDLE_S = 4,
    CONNECT_KEEPINTVL_S = 2,
    CONNECT_KEEPCNT = 3,
    CONNECT_USER_TIMEOUT_MS = 10000,
    CONNECT_RETRY_MS = 20
};

struct connector {
    struct event_base *base;
    struct address address;
    char text[ADDRESS_TEXT_BYTES];
    SSL_CTX *ctx; /* tcp */
    char server_name[ADDRESS_HOST_BYTES];
    struct addrinfo *found, *next; /* tcp */
    int fd;                        /* while it connects */
    struct event *step;            /* start, try again, or fd is writable */
    struct event *deadline;
    struct bufferevent *bev;       /* while it shakes hands */
    connect_fn *done;
    void *arg;
    struct gems_error err; /* of the last address tried */
};

void connect_tune(int fd)
{
    const struct {
        int level, name, value;
    } options[] = {
        { SOL_SOCKET, SO_KEEPALIVE, 1 },
        { IPPROTO_TCP, TCP_KEEPIDLE, CONNECT_KEEPIDLE_S },
        { IPPROTO_TCP, TCP_KEEPINTVL, CONNECT_KEEPINTVL_S },
        { IPPROTO_TCP, TCP_KEEPCNT, CONNECT_KEEPCNT },
        { IPPROTO_TCP, TCP_USER_TIMEOUT, CONNECT_USER_TIMEOUT_MS },
        { IPPROTO_TCP, TCP_NODELAY, 1 },
    };

    /* A kernel without one of them still gives a working connection; the
     * heartbeats above it see a silent peer too. */
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
    }
}

static void connector_free(struct connector *connector)
{
    if (connector->step) {
        event_free(connector->step);
    }
    if (connector->deadline) {
        event_free(connector->deadline);
    }
    if (connector->bev) {
        bufferevent_free(connector->bev);
    }
    if (connector->fd >= 0) {
        close(connector->fd);
    }
    if (connector->found) {
        freeaddrinfo(connector->found);
    }
    tls_destroy(connector->ctx);
    free(connector);
}

/* Calls done, last of all: it may start the next attempt. */
static void finish(struct connector *connector, struct bufferevent *bev)
{
    connect_fn *done = connector->done;
    void *arg = connector->arg;
    struct gems_error err = connector->err;

    connector_free(connector);
    done(arg, bev, bev ? NULL : &err);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    struct connector *connector = arg;

    (void)fd;
    (void)what;
    gems_error_set(&connector->err, GEMS_E_TIMEOUT, "connect %s: no answer in time", connector->text);
    finish(connector, NULL);
}

static void try_next(struct connector *connector);

static void describe_tls(struct connector *connector, struct bufferevent *bev)
{
    unsigned long code = bufferevent_get_openssl_error(bev);
    long verified = SSL_get_verify_result(bufferevent_openssl_get_ssl(bev));
    const char *reason = code ? ERR_reason_error_string(code) : NULL;

    if (verified != X509_V_OK) {
        gems_error_set(&connector->err, GEMS_E_DENIED, "connect %s: certificate of the server: %s",
                       connector->text, X509_verify_cert_error_string(verified));
    } else {
        gems_error_set(&connector->err, GEMS_E_PEER, "connect %s: tls: %s", connector->text,
                       reason ? reason : "closed during the handshake");
    }
}

static void on_handshake(struct bufferevent *bev, short what, void *arg)
{
    struct connector *connector = arg;

    if (what & BEV_EVENT_CONNECTED) {
        bufferevent_setcb(bev, NULL, NULL, NULL, NULL);
        connector->bev = NULL;
        finish(connector, bev);
        return;
    }
    describe_tls(connector, bev);
    bufferevent_free(bev);
    connector->bev = NULL;
    try_next(connector);
}

/* Whom the certificate must name. */
static int set_name(SSL *ssl, const char *name)
{
    struct in6_addr ip;

    if (inet_pton(AF_INET, name, &ip) == 1 || inet_pton(AF_INET6, name, &ip) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name);
    }
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

static struct bufferevent *tls_bufferevent(struct connector *connector)
{
    SSL *ssl = SSL_new(connector->ctx);
    struct bufferevent *bev = NULL;

    if (ssl && set_name(ssl, connector->server_name)) {
        /* It takes ssl, also when it fails. */
        bev = bufferevent_openssl_socket_new(connector->base, connector->fd, ssl,
                                             BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
    } else {
        SSL_free(ssl);
    }
    return bev;
}

static void on_connected(struct connector *connector)
{
    if (connector->address.is_unix) {
        struct bufferevent *bev =
            bufferevent_socket_new(connector->base, connector->fd, BEV_OPT_CLOSE_ON_FREE);

        if (bev) {
            connector->fd = -1;
        } else {
            gems_error_set(&connector->err, GEMS_E_NOMEM, "connect: no memory");
        }
        finish(connector, bev);
        return;
    }
    connect_tune(connector->fd);
    connector->bev = tls_bufferevent(connector);
    if (!connector->bev) {
        gems_error_set(&connector->err, GEMS_E_NOMEM, "connect %s: tls: no memory", connector->text);
        finish(connector, NULL);
        return;
    }
    connector->fd = -1;
    bufferevent_setcb(connector->bev, NULL, NULL, on_handshake, connector);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct connector *connector = arg;
    int failed = 0;
    socklen_t n = sizeof failed;

    (void)what;
    if (getsockopt((int)fd, SOL_SOCKET, SO_ERROR, &failed, &n) < 0) {
        failed = errno;
    }
    if (failed == 0) {
        on_connected(connector);
        return;
    }
    gems_error_errno(&connector->err, failed, "connect %s", connector->text);
    connector->err.status = GEMS_E_PEER;
    close(connector->fd);
    connector->fd = -1;
    try_next(connector);
}

static void on_step(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    try_next(arg);
}

static int retry_later(struct connector *connector)
{
    struct timeval soon = { 0, CONNECT_RETRY_MS * 1000 };

    return event_add(connector->step, &soon) < 0 ? ENOMEM : 0;
}

static int wait_writable(struct connector *connector)
{
    event_del(connector->step);
    event_assign(connector->step, connector->base, connector->fd, EV_WRITE, on_writable, connector);
    return event_add(connector->step, NULL) < 0 ? ENOMEM : 0;
}

/* Connects to one address. 0: connected or under way; else an errno. */
static int start_socket(struct connector *connector, int family, const struct sockaddr *address,
                        socklen_t n)
{
    int failed;

    connector->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connector->fd < 0) {
        return errno;
    }
    failed = connect(connector->fd, address, n) == 0 || errno == EINPROGRESS ? wait_writable(connector) :
                                                                              errno;
    if (failed) {
        close(connector->fd);
        connector->fd = -1;
    }
    return failed;
}

static void try_unix(struct connector *connector)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int failed;

    memcpy(address.sun_path, connector->address.path, sizeof address.sun_path);
    failed = start_socket(connector, AF_UNIX, (struct sockaddr *)&address, sizeof address);
    if (failed == EAGAIN) {
        failed = retry_later(connector); /* its backlog is full; the deadline bounds this */
    }
    if (failed) {
        gems_error_errno(&connector->err, failed, "connect %s", connector->text);
        connector->err.status = GEMS_E_PEER;
        finish(connector, NULL);
    }
}

static void try_next(struct connector *connector)
{
    event_del(connector->step);
    event_assign(connector->step, connector->base, -1, 0, on_step, connector);
    if (connector->address.is_unix) {
        try_unix(connector);
        return;
    }
    while (connector->next) {
        const struct addrinfo *to = connector->next;
        int failed = start_socket(connector, to->ai_family, to->ai_addr, to->ai_addrlen);

        connector->next = to->ai_next;
        if (failed == 0) {
            return;
        }
        gems_error_errno(&connector->err, failed, "connect %s", connector->text);
        connector->err.status = GEMS_E_PEER;
    }
    finish(connector, NULL);
}

static int resolve(struct connector *connector, struct gems_error *err)
{
    struct addrinfo wanted = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV };
    char port[8];
    int failed;

    snprintf(port, sizeof port, "%u", connector->address.port);
    failed = getaddrinfo(connector->address.host, port, &wanted, &connector->found);
    if (failed == EAI_ADDRFAMILY || failed == EAI_NONAME) {
        wanted.ai_flags = AI_NUMERICSERV; /* a machine with nothing but loopback */
        failed = getaddrinfo(connector->address.host, port, &wanted, &connector->found);
    }
    if (failed) {
        return gems_error_set(err, GEMS_E_PEER, "connect %s: %s", connector->text, gai_strerror(failed));
    }
    connector->next = connector->found;
    return GEMS_OK;
}

static int prepare_tcp(struct connector *connector, const struct tls_settings *tls,
                       struct gems_error *err)
{
    static const struct tls_settings nothing;
    const char *name = tls && tls->server_name && tls->server_name[0] ? tls->server_name :
                                                                         connector->address.host;

    if (strlen(name) >= sizeof connector->server_name) {
        return gems_error_set(err, GEMS_E_INVALID, "tls: server name is too long");
    }
    strcpy(connector->server_name, name);
    connector->ctx = tls_client_create(tls ? tls : &nothing, err);
    return connector->ctx ? resolve(connector, err) : GEMS_E_INVALID;
}

struct connector *connect_start(struct event_base *base, const struct address *address,
                                const struct tls_settings *tls, unsigned timeout_ms,
                                connect_fn *done, void *arg, struct gems_error *err)
{
    struct timeval limit = { timeout_ms / 1000, timeout_ms % 1000 * 1000 };
    struct connector *connector = calloc(1, sizeof *connector);

    if (!connector) {
        gems_error_set(err, GEMS_E_NOMEM, "connect: no memory");
        return NULL;
    }
    connector->fd = -1;
    connector->base = base;
    connector->address = *address;
    connector->done = done;
    connector->arg = arg;
    address_format(address, connector->text);
    if (!address->is_unix && prepare_tcp(connector, tls, err) < 0) {
        goto out;
    }
    connector->step = event_new(base, -1, 0, on_step, connector);
    connector->deadline = event_new(base, -1, 0, on_deadline, connector);
    if (!connector->step || !connector->deadline || event_add(connector->deadline, &limit) < 0) {
        gems_error_set(err, GEMS_E_NOMEM, "connect: no memory");
        goto out;
    }
    event_active(connector->step, EV_TIMEOUT, 0);
    return connector;
out:
    connector_free(connector);
    return NULL;
}

void connect_cancel(struct connector *connector)
{
    if (connector) {
        connector_free(connector);
    }
}
