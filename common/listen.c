#include "common/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/connect.h"
#include "common/error.h"
#include "common/list.h"

enum {
    LISTEN_BACKLOG = 128,
    LISTEN_BATCH = 16, /* accepted in one turn of the loop */
    LISTEN_PAUSE_MS = 200,
    LISTEN_MAX_HANDSHAKES = 64,
    LISTEN_HANDSHAKE_MS = 5000
};

struct listener {
    struct event_base *base;
    struct listen_handlers handlers;
    void *arg;
    int fd;
    struct event *readable, *resume;
    SSL_CTX *ctx; /* tcp */
    struct list handshakes;
    unsigned n_handshakes, max_handshakes, handshake_ms;
    bool is_short; /* of descriptors; said once */
    char path[ADDRESS_PATH_BYTES]; /* unix: to be removed, if still this file */
    dev_t dev;
    ino_t ino;
};

/* A TCP peer on its way in. */
struct handshake {
    struct list link;
    struct listener *listener;
    struct bufferevent *bev;
    struct event *deadline;
    struct listen_peer peer;
};

static void note(struct listener *listener, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void note(struct listener *listener, const char *format, ...)
{
    char text[256];
    va_list args;

    if (listener->handlers.note) {
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        listener->handlers.note(listener->arg, text);
    }
}

/* ---- handshakes ---- */

static void handshake_free(struct handshake *handshake)
{
    struct listener *listener = handshake->listener;

    list_remove(&handshake->link);
    if (handshake->deadline) {
        event_free(handshake->deadline);
    }
    if (handshake->bev) {
        bufferevent_free(handshake->bev);
    }
    free(handshake);
    if (listener->n_handshakes-- == listener->max_handshakes) {
        event_add(listener->readable, NULL);
    }
}

/* The common name of a certificate that the handshake has already approved. */
static void read_certificate(SSL *ssl, char ret_name[LISTEN_NAME_BYTES])
{
    X509 *certificate = SSL_get1_peer_certificate(ssl);
    X509_NAME *subject;
    int index;

    ret_name[0] = '\0';
    if (!certificate) {
        return;
    }
    subject = X509_get_subject_name(certificate);
    index = subject ? X509_NAME_get_index_by_NID(subject, NID_commonName, -1) : -1;
    if (index >= 0 && SSL_get_verify_result(ssl) == X509_V_OK) {
        ASN1_STRING *name = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, index));
        unsigned char *text = NULL;
        int n = ASN1_STRING_to_UTF8(&text, name);

        /* A NUL inside would let "root\0.example" pass for "root". */
        if (n > 0 && n < LISTEN_NAME_BYTES && strlen((char *)text) == (size_t)n) {
            memcpy(ret_name, text, (size_t)n + 1);
        }
        OPENSSL_free(text);
    }
    X509_free(certificate);
}

static void on_handshake(struct bufferevent *bev, short what, void *arg)
{
    struct handshake *handshake = arg;
    struct listener *listener = handshake->listener;

    if (what & BEV_EVENT_CONNECTED) {
        struct listen_peer peer = handshake->peer;

        read_certificate(bufferevent_openssl_get_ssl(bev), peer.certificate);
        bufferevent_setcb(bev, NULL, NULL, NULL, NULL);
        handshake->bev = NULL;
        handshake_free(handshake);
        listener->handlers.accepted(listener->arg, bev, &peer);
    } else {
        unsigned long code = bufferevent_get_openssl_error(bev);
        const char *reason = code ? ERR_reason_error_string(code) : NULL;

        note(listener, "peer %s: tls handshake failed: %s", handshake->peer.address,
             reason ? reason : "closed by the peer");
        handshake_free(handshake);
    }
}

static void on_handshake_deadline(evutil_socket_t fd, short what, void *arg)
{
    struct handshake *handshake = arg;

    (void)fd;
    (void)what;
    note(handshake->listener, "peer %s: tls handshake took too long", handshake->peer.address);
    handshake_free(handshake);
}

static void start_handshake(struct listener *listener, int fd, const struct listen_peer *peer)
{
    struct timeval limit = { listener->handshake_ms / 1000, listener->handshake_ms % 1000 * 1000 };
    struct handshake *handshake = calloc(1, sizeof *handshake);
    SSL *ssl = handshake ? SSL_new(listener->ctx) : NULL;

    if (!ssl) {
        note(listener, "peer %s: no memory", peer->address);
        free(handshake);
        close(fd);
        return;
    }
    connect_tune(fd);
    handshake->listener = listener;
    handshake->peer = *peer;
    list_push(&listener->handshakes, &handshake->link);
    if (++listener->n_handshakes == listener->max_handshakes) {
        event_del(listener->readable); /* until one of them ends */
    }
    handshake->deadline = event_new(listener->base, -1, 0, on_handshake_deadline, handshake);
    handshake->bev = bufferevent_openssl_socket_new(listener->base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING,
                                                    BEV_OPT_CLOSE_ON_FREE);
    if (!handshake->bev || !handshake->deadline || event_add(handshake->deadline, &limit) < 0) {
        note(listener, "peer %s: no memory", peer->address);
        if (!handshake->bev) {
            close(fd);
        }
        handshake_free(handshake);
        return;
    }
    bufferevent_setcb(handshake->bev, NULL, NULL, on_handshake, handshake);
}

/* ---- accepting ---- */

static void accept_unix(struct listener *listener, int fd)
{
    struct listen_peer peer = { .is_unix = true };
    struct ucred cred;
    socklen_t n = sizeof cred;
    struct bufferevent *bev;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0) {
        note(listener, "peer without credentials refused: %s", strerror(errno));
        close(fd);
        return;
    }
    peer.uid = cred.uid;
    peer.gid = cred.gid;
    peer.pid = cred.pid;
    snprintf(peer.address, sizeof peer.address, "uid %u pid %d", (unsigned)cred.uid, (int)cred.pid);
    bev = bufferevent_socket_new(listener->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!bev) {
        note(listener, "peer %s: no memory", peer.address);
        close(fd);
        return;
    }
    listener->handlers.accepted(listener->arg, bev, &peer);
}

static void format_peer(const struct sockaddr_storage *from, socklen_t n, struct listen_peer *peer)
{
    char host[64];
    char port[8];

    if (getnameinfo((const struct sockaddr *)from, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(peer->address, sizeof peer->address, "unknown");
    } else if (strncmp(host, "::ffff:", 7) == 0) {
        snprintf(peer->address, sizeof peer->address, "%s:%s", host + 7, port);
    } else {
        snprintf(peer->address, sizeof peer->address, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
    }
}

static bool is_shortage(int errno_value)
{
    return errno_value == EMFILE || errno_value == ENFILE || errno_value == ENOBUFS ||
           errno_value == ENOMEM;
}

/* The pending connection stays readable: without a pause the loop would spin. */
static void pause_accepting(struct listener *listener, int errno_value)
{
    struct timeval pause = { 0, LISTEN_PAUSE_MS * 1000 };

    if (!listener->is_short) {
        note(listener, "no new connections for now: %s", strerror(errno_value));
    }
    listener->is_short = true;
    if (event_add(listener->resume, &pause) == 0) {
        event_del(listener->readable);
    }
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct listener *listener = arg;

    (void)fd;
    (void)what;
    if (listener->n_handshakes < listener->max_handshakes) {
        event_add(listener->readable, NULL);
    }
}

static void on_readable(evutil_socket_t listen_fd, short what, void *arg)
{
    struct listener *listener = arg;

    (void)what;
    for (int i = 0; i < LISTEN_BATCH && listener->n_handshakes < listener->max_handshakes; i++) {
        struct sockaddr_storage from = { 0 };
        struct listen_peer peer = { .is_unix = false };
        socklen_t n = sizeof from;
        int fd = accept4((int)listen_fd, (struct sockaddr *)&from, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0) {
            if (is_shortage(errno)) {
                pause_accepting(listener, errno);
            }
            return; /* nobody there, or gone again */
        }
        listener->is_short = false;
        if (!listener->ctx) {
            accept_unix(listener, fd);
        } else {
            format_peer(&from, n, &peer);
            start_handshake(listener, fd, &peer);
        }
    }
}

/* ---- making and ending ---- */

static struct listener *listener_create(struct event_base *base, const struct listen_handlers *handlers,
                                        void *arg, struct gems_error *err)
{
    struct listener *listener = calloc(1, sizeof *listener);

    if (!listener) {
        gems_error_set(err, GEMS_E_NOMEM, "listener: no memory");
        return NULL;
    }
    listener->base = base;
    listener->handlers = *handlers;
    listener->arg = arg;
    listener->fd = -1;
    listener->max_handshakes = LISTEN_MAX_HANDSHAKES;
    listener->handshake_ms = LISTEN_HANDSHAKE_MS;
    list_init(&listener->handshakes);
    return listener;
}

static int start(struct listener *listener, struct gems_error *err)
{
    if (listen(listener->fd, LISTEN_BACKLOG) < 0) {
        return gems_error_errno(err, errno, "listen");
    }
    listener->readable =
        event_new(listener->base, listener->fd, EV_READ | EV_PERSIST, on_readable, listener);
    listener->resume = event_new(listener->base, -1, 0, on_resume, listener);
    if (!listener->readable || !listener->resume || event_add(listener->readable, NULL) < 0) {
        return gems_error_set(err, GEMS_E_NOMEM, "listener: no memory");
    }
    return GEMS_OK;
}

/* Removes the socket of a server that is gone. GEMS_E_STATE if it is not. */
static int clear_path(const struct sockaddr_un *address, struct gems_error *err)
{
    struct stat file;
    int failed = 0;
    int fd;

    if (lstat(address->sun_path, &file) < 0) {
        return GEMS_OK;
    }
    if (!S_ISSOCK(file.st_mode)) {
        return gems_error_set(err, GEMS_E_STATE, "%s: is there and is not a socket", address->sun_path);
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return gems_error_errno(err, errno, "%s: socket", address->sun_path);
    }
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) < 0) {
        failed = errno;
    }
    close(fd);
    if (failed != ECONNREFUSED) {
        return gems_error_set(err, GEMS_E_STATE, "%s: another server answers there", address->sun_path);
    }
    return unlink(address->sun_path) < 0 ? gems_error_errno(err, errno, "%s: remove", address->sun_path) :
                                           GEMS_OK;
}

static int bind_unix(struct listener *listener, const struct sockaddr_un *address, mode_t mode,
                     struct gems_error *err)
{
    struct stat file;

    listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener->fd < 0 ||
        bind(listener->fd, (const struct sockaddr *)address, sizeof *address) < 0 ||
        /* Nobody can connect before listen(), so the mode is never too wide. */
        chmod(address->sun_path, mode) < 0 || stat(address->sun_path, &file) < 0) {
        return gems_error_errno(err, errno, "listen unix:%s", address->sun_path);
    }
    strcpy(listener->path, address->sun_path);
    listener->dev = file.st_dev;
    listener->ino = file.st_ino;
    return GEMS_OK;
}

struct listener *listen_unix(struct event_base *base, const char *path, mode_t mode,
                             const struct listen_handlers *handlers, void *arg, struct gems_error *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct listener *listener;

    if (strlen(path) >= sizeof address.sun_path) {
        gems_error_set(err, GEMS_E_INVALID, "listen unix:%s: a socket path has at most %d bytes", path,
                       (int)sizeof address.sun_path - 1);
        return NULL;
    }
    strcpy(address.sun_path, path);
    listener = listener_create(base, handlers, arg, err);
    if (listener && (clear_path(&address, err) < 0 || bind_unix(listener, &address, mode, err) < 0 ||
                     start(listener, err) < 0)) {
        listen_destroy(listener);
        return NULL;
    }
    return listener;
}

static int bind_found(struct listener *listener, const struct addrinfo *to)
{
    int one = 1;
    int zero = 0;
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return errno;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (to->ai_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    }
    if (bind(fd, to->ai_addr, to->ai_addrlen) < 0) {
        int failed = errno;

        close(fd);
        return failed;
    }
    listener->fd = fd;
    return 0;
}

/* All interfaces: one v6 socket takes v4 too where the machine has v6. */
static int bind_tcp(struct listener *listener, const struct address *address, struct gems_error *err)
{
    struct addrinfo wanted = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    bool is_any = !address->host[0] || strcmp(address->host, "*") == 0;
    char text[ADDRESS_TEXT_BYTES];
    struct addrinfo *found = NULL;
    char port[8];
    int failed;

    address_format(address, text);
    snprintf(port, sizeof port, "%u", address->port);
    failed = getaddrinfo(is_any ? NULL : address->host, port, &wanted, &found);
    if (failed) {
        return gems_error_set(err, GEMS_E_INVALID, "listen %s: %s", text, gai_strerror(failed));
    }
    failed = EAFNOSUPPORT;
    for (int family = is_any ? AF_INET6 : AF_UNSPEC; listener->fd < 0;) {
        for (const struct addrinfo *to = found; to && listener->fd < 0; to = to->ai_next) {
            if (family == AF_UNSPEC || to->ai_family == family) {
                failed = bind_found(listener, to);
            }
        }
        if (family == AF_UNSPEC) {
            break;
        }
        family = AF_UNSPEC;
    }
    freeaddrinfo(found);
    return listener->fd < 0 ? gems_error_errno(err, failed, "listen %s", text) : GEMS_OK;
}

struct listener *listen_tcp(struct event_base *base, const struct address *address,
                            const struct tls_settings *tls, const struct listen_handlers *handlers,
                            void *arg, struct gems_error *err)
{
    struct listener *listener = listener_create(base, handlers, arg, err);

    if (!listener) {
        return NULL;
    }
    listener->ctx = tls_server_create(tls, err);
    if (!listener->ctx || bind_tcp(listener, address, err) < 0 || start(listener, err) < 0) {
        listen_destroy(listener);
        return NULL;
    }
    return listener;
}

uint16_t listen_port(const struct listener *listener)
{
    struct sockaddr_storage own = { 0 };
    socklen_t n = sizeof own;

    getsockname(listener->fd, (struct sockaddr *)&own, &n);
    if (own.ss_family == AF_INET) {
        return ntohs(((struct sockaddr_in *)&own)->sin_port);
    }
    return own.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&own)->sin6_port) : 0;
}

void listen_set_limits(struct listener *listener, unsigned max_handshakes, unsigned handshake_ms)
{
    listener->max_handshakes = max_handshakes;
    listener->handshake_ms = handshake_ms;
}

static void remove_path(const struct listener *listener)
{
    struct stat file;

    if (listener->path[0] && lstat(listener->path, &file) == 0 && file.st_dev == listener->dev &&
        file.st_ino == listener->ino) {
        unlink(listener->path);
    }
}

void listen_destroy(struct listener *listener)
{
    struct list *link;

    if (!listener) {
        return;
    }
    while ((link = list_first(&listener->handshakes))) {
        handshake_free(list_item(link, struct handshake, link));
    }
    if (listener->readable) {
        event_free(listener->readable);
    }
    if (listener->resume) {
        event_free(listener->resume);
    }
    if (listener->fd >= 0) {
        close(listener->fd);
    }
    remove_path(listener);
    tls_destroy(listener->ctx);
    free(listener);
}
