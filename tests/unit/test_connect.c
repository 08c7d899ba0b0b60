/* Connections from both sides: unix with credentials, TCP with TLS 1.3, what
 * is refused and why, storms, and running out of descriptors. */
#include "common/connect.h"

#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fsutil.h"
#include "common/listen.h"
#include "common/rpc.h"
#include "tests/lib/loop.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/temp_dir.h"

enum { MAX_PEERS = 512 };

/* What the server saw. */
static struct {
    struct rpc_conn *conns[MAX_PEERS];
    int n_accepted, n_closed, n_notes;
    bool is_accepted, is_noted;
    struct listen_peer peer;
    char note[256], tls[16];
} server;

/* What the client saw. */
static struct {
    struct rpc_conn *conn;
    struct bufferevent *bev;
    bool is_done, is_replied, is_closed;
    size_t bytes;
    char tls[16];
    struct gems_error err;
} client;

static struct event_base *base;
static struct temp_dir certs, dir;
static char ca[160], server_pem[160], server_key[160];
static struct tls_settings server_tls, client_tls;

/* ---- server: echoes frames ---- */

static void server_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    (void)arg;
    rpc_send(conn, frame->type, RPC_REPLY, frame->call, frame->payload, frame->bytes);
}

static void server_closed(void *arg, struct rpc_conn *conn, const char *why)
{
    (void)why;
    server.n_closed++;
    *(struct rpc_conn **)arg = NULL;
    rpc_destroy(conn);
}

static void server_accepted(void *arg, struct bufferevent *bev, const struct listen_peer *peer)
{
    static const struct rpc_handlers handlers = { server_frame, server_closed, NULL };
    struct rpc_conn **slot = &server.conns[server.n_accepted++ % MAX_PEERS];

    (void)arg;
    server.peer = *peer;
    if (bufferevent_openssl_get_ssl(bev)) {
        snprintf(server.tls, sizeof server.tls, "%s", SSL_get_version(bufferevent_openssl_get_ssl(bev)));
    }
    *slot = rpc_create(bev, &handlers, slot, NULL);
    ck_assert_ptr_nonnull(*slot);
    rpc_set_limits(*slot, RPC_LIMIT_CLIENT, 4 * RPC_LIMIT_CLIENT);
    server.is_accepted = true;
}

static void server_note(void *arg, const char *text)
{
    (void)arg;
    snprintf(server.note, sizeof server.note, "%s", text);
    server.n_notes++;
    server.is_noted = true;
}

static const struct listen_handlers listen_handlers = { server_accepted, server_note };

/* ---- client ---- */

static void client_frame(void *arg, struct rpc_conn *conn, const struct rpc_frame *frame)
{
    (void)arg;
    (void)conn;
    client.bytes = frame->bytes;
    client.is_replied = true;
}

static void client_closed(void *arg, struct rpc_conn *conn, const char *why)
{
    (void)arg;
    (void)why;
    client.is_closed = true;
    client.conn = NULL;
    rpc_destroy(conn);
}

static void client_connected(void *arg, struct bufferevent *bev, const struct gems_error *err)
{
    static const struct rpc_handlers handlers = { client_frame, client_closed, NULL };

    (void)arg;
    client.is_done = true;
    if (!bev) {
        client.err = *err;
        return;
    }
    ck_assert_ptr_null(err);
    if (bufferevent_openssl_get_ssl(bev)) {
        snprintf(client.tls, sizeof client.tls, "%s", SSL_get_version(bufferevent_openssl_get_ssl(bev)));
    }
    client.conn = rpc_create(bev, &handlers, NULL, NULL);
    rpc_set_limits(client.conn, RPC_LIMIT_CLIENT, 4 * RPC_LIMIT_CLIENT);
}

/* ---- fixtures ---- */

static void make_certs(void)
{
    char command[512];

    temp_dir_create(&certs);
    snprintf(command, sizeof command, "%s/tests/lib/make-certs %s", TEST_SRCDIR, certs.path);
    ck_assert_int_eq(system(command), 0);
    snprintf(ca, sizeof ca, "%s/ca.pem", certs.path);
    snprintf(server_pem, sizeof server_pem, "%s/server.pem", certs.path);
    snprintf(server_key, sizeof server_key, "%s/server.key", certs.path);
}

static void drop_certs(void)
{
    temp_dir_destroy(&certs);
}

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    memset(&server, 0, sizeof server);
    memset(&client, 0, sizeof client);
    server_tls = (struct tls_settings){ .certificate = server_pem, .key = server_key };
    client_tls = (struct tls_settings){ .ca = ca };
    base = event_base_new();
    temp_dir_create(&dir);
}

static void teardown(void)
{
    rpc_destroy(client.conn);
    for (int i = 0; i < MAX_PEERS; i++) {
        rpc_destroy(server.conns[i]);
    }
    temp_dir_destroy(&dir);
    event_base_free(base);
}

static struct listener *start_tcp(struct address *ret_address)
{
    struct gems_error err = { 0 };
    struct listener *listener;

    ck_assert_int_eq(address_parse("tcp:127.0.0.1:0", ret_address, &err), 0);
    listener = listen_tcp(base, ret_address, &server_tls, &listen_handlers, NULL, &err);
    ck_assert_msg(listener != NULL, "%s", err.text);
    ret_address->port = listen_port(listener);
    ck_assert_uint_ne(ret_address->port, 0);
    return listener;
}

static struct connector *start_client(const struct address *address, unsigned timeout_ms)
{
    struct gems_error err = { 0 };
    struct connector *connector =
        connect_start(base, address, &client_tls, timeout_ms, client_connected, NULL, &err);

    ck_assert_msg(connector != NULL, "%s", err.text);
    ck_assert(!client.is_done); /* never from inside connect_start */
    return connector;
}

static struct address unix_address(const char *path)
{
    struct address address = { .is_unix = true };

    snprintf(address.path, sizeof address.path, "%s", path);
    return address;
}

static int raw_tcp(uint16_t port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static int count_fds(void)
{
    DIR *open_fds = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(open_fds)) {
        n++;
    }
    closedir(open_fds);
    return n;
}

/* ---- addresses ---- */

START_TEST(addresses_are_read_and_written)
{
    static const char *const good[] = { "unix:/run/gems/gemsd.sock", "unix:rel", "tcp:host:1",
                                        "tcp:127.0.0.1:65535", "tcp:[::1]:80", "tcp:*:7000" };
    static const char *const bad[] = { "", "unix:", "tcp:host", "tcp::1", "tcp:host:", "tcp:host:65536",
                                       "tcp:::1:80", "host:80", "tcp:host:-1", "tcp:[]:1" };
    struct address address;
    char text[ADDRESS_TEXT_BYTES];

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ck_assert_int_eq(address_parse(good[i], &address, NULL), GEMS_OK);
        ck_assert_str_eq(address_format(&address, text), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct gems_error err = { 0 };

        ck_assert_msg(address_parse(bad[i], &address, &err) == GEMS_E_INVALID, "%s", bad[i]);
        ck_assert_str_eq(err.hint, "unix:PATH or tcp:HOST:PORT");
    }
}
END_TEST

START_TEST(long_socket_path_is_refused)
{
    char text[200] = "unix:/";
    struct address address;

    memset(text + 6, 'a', 102 + _i);
    ck_assert_int_eq(address_parse(text, &address, NULL), _i <= 4 ? GEMS_OK : GEMS_E_INVALID);
}
END_TEST

/* ---- unix ---- */

START_TEST(unix_peer_is_known_by_the_kernel)
{
    const char *path = temp_dir_file(&dir, "s");
    struct address address = unix_address(path);
    struct listener *listener = listen_unix(base, path, 0640, &listen_handlers, NULL, NULL);
    struct stat file;

    ck_assert_ptr_nonnull(listener);
    ck_assert_int_eq(stat(path, &file), 0);
    ck_assert_uint_eq(file.st_mode & 07777, 0640);
    start_client(&address, 1000);
    ck_assert(loop_until(base, &server.is_accepted));
    ck_assert(server.peer.is_unix);
    ck_assert_uint_eq(server.peer.uid, getuid());
    ck_assert_uint_eq(server.peer.gid, getgid());
    ck_assert_int_eq(server.peer.pid, getpid());
    ck_assert(loop_until(base, &client.is_done));
    rpc_send(client.conn, 1, 0, 1, "abc", 3);
    ck_assert(loop_until(base, &client.is_replied));
    ck_assert_uint_eq(client.bytes, 3);
    listen_destroy(listener);
    ck_assert_int_lt(stat(path, &file), 0);
}
END_TEST

START_TEST(dead_socket_file_is_replaced_and_a_live_one_is_not)
{
    const char *path = temp_dir_file(&dir, "s");
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct gems_error err = { 0 };
    struct listener *listener;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    listener = listen_unix(base, path, 0600, &listen_handlers, NULL, &err);
    ck_assert_msg(listener != NULL, "%s", err.text);
    ck_assert_ptr_null(listen_unix(base, path, 0600, &listen_handlers, NULL, &err));
    ck_assert_int_eq(err.status, GEMS_E_STATE);
    ck_assert_ptr_nonnull(strstr(err.text, "another server answers"));
    ck_assert_int_eq(access(path, F_OK), 0);
    listen_destroy(listener);
}
END_TEST

START_TEST(file_that_is_no_socket_stays)
{
    const char *path = temp_dir_file(&dir, "s");
    struct gems_error err = { 0 };

    ck_assert_int_eq(fs_write_atomic(path, "data", 4, 0600, NULL), GEMS_OK);
    ck_assert_ptr_null(listen_unix(base, path, 0600, &listen_handlers, NULL, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "not a socket"));
    ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(socket_of_a_successor_is_not_removed)
{
    const char *path = temp_dir_file(&dir, "s");
    struct listener *old = listen_unix(base, path, 0600, &listen_handlers, NULL, NULL);
    struct listener *new;

    ck_assert_int_eq(unlink(path), 0);
    new = listen_unix(base, path, 0600, &listen_handlers, NULL, NULL);
    listen_destroy(old);
    ck_assert_int_eq(access(path, F_OK), 0);
    listen_destroy(new);
    ck_assert_int_lt(access(path, F_OK), 0);
}
END_TEST

START_TEST(nobody_there_is_an_error_with_the_address)
{
    struct address address = unix_address(temp_dir_file(&dir, "none"));

    if (_i == 1) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in own = { .sin_family = AF_INET };
        socklen_t n = sizeof own;

        own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
        getsockname(fd, (struct sockaddr *)&own, &n);
        close(fd); /* a port on which nobody listens */
        ck_assert_int_eq(address_parse("tcp:127.0.0.1:1", &address, NULL), 0);
        address.port = ntohs(own.sin_port);
    }
    start_client(&address, 1000);
    ck_assert(loop_until(base, &client.is_done));
    ck_assert_int_eq(client.err.status, GEMS_E_PEER);
    ck_assert_ptr_nonnull(strstr(client.err.text, _i ? "Connection refused" : "No such file"));
    ck_assert_ptr_nonnull(strstr(client.err.text, _i ? "tcp:127.0.0.1:" : "unix:/"));
}
END_TEST

/* ---- TCP ---- */

START_TEST(tcp_listener_needs_certificate_and_key)
{
    static const struct tls_settings none;
    struct address address;
    struct gems_error err = { 0 };

    ck_assert_int_eq(address_parse("tcp:127.0.0.1:0", &address, NULL), 0);
    ck_assert_ptr_null(listen_tcp(base, &address, &none, &listen_handlers, NULL, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "needs a certificate and a key"));
    server_tls.key = NULL;
    ck_assert_ptr_null(listen_tcp(base, &address, &server_tls, &listen_handlers, NULL, &err));
    server_tls.key = temp_dir_file(&certs, "client.key");
    ck_assert_ptr_null(listen_tcp(base, &address, &server_tls, &listen_handlers, NULL, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "client.key"));
    server_tls.certificate = "/nonexistent.pem";
    ck_assert_ptr_null(listen_tcp(base, &address, &server_tls, &listen_handlers, NULL, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent.pem"));
}
END_TEST

START_TEST(port_in_use_is_named)
{
    struct address address;
    struct listener *listener = start_tcp(&address);
    struct gems_error err = { 0 };
    char text[ADDRESS_TEXT_BYTES];

    ck_assert_ptr_null(listen_tcp(base, &address, &server_tls, &listen_handlers, NULL, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "Address already in use"));
    ck_assert_ptr_nonnull(strstr(err.text, address_format(&address, text)));
    listen_destroy(listener);
}
END_TEST

START_TEST(frames_cross_tls_1_3)
{
    static uint8_t payload[RPC_LIMIT_CLIENT];
    struct address address;
    struct listener *listener = start_tcp(&address);

    start_client(&address, 5000);
    ck_assert(loop_until(base, &client.is_done));
    ck_assert_msg(client.conn != NULL, "%s", client.err.text);
    ck_assert_str_eq(client.tls, "TLSv1.3");
    rpc_send(client.conn, 7, 0, 1, payload, sizeof payload);
    ck_assert(loop_until(base, &client.is_replied));
    ck_assert_uint_eq(client.bytes, sizeof payload);
    ck_assert_str_eq(server.tls, "TLSv1.3");
    ck_assert_str_eq(server.peer.certificate, "");
    ck_assert(!server.peer.is_unix);
    ck_assert_ptr_nonnull(strstr(server.peer.address, "127.0.0.1:"));
    /* An end with unread input must not look like an error on either side. */
    rpc_finish(client.conn);
    ck_assert(loop_until(base, &client.is_closed));
    listen_destroy(listener);
}
END_TEST

START_TEST(client_certificate_gives_its_name)
{
    struct address address;
    struct listener *listener;
    char pem[160];
    char key[160];

    snprintf(pem, sizeof pem, "%s", temp_dir_file(&certs, "client.pem"));
    snprintf(key, sizeof key, "%s", temp_dir_file(&certs, "client.key"));
    server_tls.ca = ca;
    client_tls.certificate = pem;
    client_tls.key = key;
    listener = start_tcp(&address);
    start_client(&address, 5000);
    ck_assert(loop_until(base, &server.is_accepted));
    ck_assert_str_eq(server.peer.certificate, "node-1");
    ck_assert(loop_until(base, &client.is_done));
    listen_destroy(listener);
}
END_TEST

START_TEST(certificate_of_a_stranger_is_refused)
{
    struct address address;
    struct listener *listener;
    char pem[160];
    char key[160];

    snprintf(pem, sizeof pem, "%s", temp_dir_file(&certs, "stranger.pem"));
    snprintf(key, sizeof key, "%s", temp_dir_file(&certs, "stranger.key"));
    server_tls.ca = ca;
    client_tls.certificate = pem;
    client_tls.key = key;
    listener = start_tcp(&address);
    start_client(&address, 5000);
    ck_assert(loop_until(base, &server.is_noted));
    ck_assert_ptr_nonnull(strstr(server.note, "certificate verify failed"));
    ck_assert_int_eq(server.n_accepted, 0);
    ck_assert(loop_until(base, &client.is_done));
    ck_assert(!client.conn || loop_until(base, &client.is_closed));
    listen_destroy(listener);
}
END_TEST

START_TEST(server_must_be_signed_and_named)
{
    struct address address;
    struct listener *listener = start_tcp(&address);
    char other[160];

    snprintf(other, sizeof other, "%s", temp_dir_file(&certs, "other-ca.pem"));
    if (_i == 0) {
        client_tls.ca = other;
    } else {
        client_tls.server_name = "gemsd.example";
    }
    start_client(&address, 5000);
    ck_assert(loop_until(base, &client.is_done));
    ck_assert_ptr_null(client.conn);
    ck_assert_int_eq(client.err.status, GEMS_E_DENIED);
    ck_assert_ptr_nonnull(strstr(client.err.text, _i ? "hostname mismatch" : "certificate of the server"));
    ck_assert(loop_until(base, &server.is_noted));
    ck_assert_int_eq(server.n_accepted, 0);
    listen_destroy(listener);
}
END_TEST

START_TEST(host_name_is_looked_up_and_checked)
{
    struct address address;
    struct listener *listener = start_tcp(&address);

    strcpy(address.host, "localhost");
    start_client(&address, 5000);
    ck_assert(loop_until(base, &client.is_done));
    ck_assert_msg(client.conn != NULL, "%s", client.err.text);
    listen_destroy(listener);
}
END_TEST

START_TEST(client_without_authority_does_not_start)
{
    struct address address;
    struct gems_error err = { 0 };

    ck_assert_int_eq(address_parse("tcp:127.0.0.1:1", &address, NULL), 0);
    ck_assert_ptr_null(connect_start(base, &address, NULL, 1000, client_connected, NULL, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "authority"));
    client_tls.certificate = server_pem;
    ck_assert_ptr_null(connect_start(base, &address, &client_tls, 1000, client_connected, NULL, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "belong together"));
}
END_TEST

START_TEST(plain_text_is_refused)
{
    struct address address;
    struct listener *listener = start_tcp(&address);
    int fd = raw_tcp(address.port);

    ck_assert_int_eq(write(fd, "GET / HTTP/1.0\r\n\r\n", 18), 18);
    ck_assert(loop_until(base, &server.is_noted));
    ck_assert_ptr_nonnull(strstr(server.note, "tls handshake failed"));
    ck_assert_int_eq(server.n_accepted, 0);
    close(fd);
    listen_destroy(listener);
}
END_TEST

static void on_old_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    *(short *)arg = what;
    client.is_done = true;
}

START_TEST(tls_1_2_is_refused)
{
    struct address address;
    struct listener *listener = start_tcp(&address);
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    struct bufferevent *bev;
    short what = 0;
    int fd;

    SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION);
    fd = raw_tcp(address.port);
    evutil_make_socket_nonblocking(fd);
    bev = bufferevent_openssl_socket_new(base, fd, SSL_new(ctx), BUFFEREVENT_SSL_CONNECTING,
                                         BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(bev, NULL, NULL, on_old_event, &what);
    ck_assert(loop_until(base, &client.is_done));
    ck_assert(!(what & BEV_EVENT_CONNECTED));
    ck_assert(loop_until(base, &server.is_noted));
    ck_assert_ptr_nonnull(strstr(server.note, "unsupported protocol"));
    bufferevent_free(bev);
    SSL_CTX_free(ctx);
    listen_destroy(listener);
}
END_TEST

START_TEST(silent_handshakes_end_and_make_room)
{
    struct address address;
    struct listener *listener = start_tcp(&address);
    int fds[3];

    listen_set_limits(listener, 2, 100);
    for (int i = 0; i < 3; i++) {
        fds[i] = raw_tcp(address.port);
    }
    start_client(&address, 10000);
    ck_assert(loop_until(base, &client.is_done));
    ck_assert_msg(client.conn != NULL, "%s", client.err.text);
    ck_assert_int_ge(server.n_notes, 2);
    ck_assert_ptr_nonnull(strstr(server.note, "took too long"));
    for (int i = 0; i < 3; i++) {
        close(fds[i]);
    }
    listen_destroy(listener);
}
END_TEST

START_TEST(server_that_never_answers_times_out)
{
    struct sockaddr_in own = { .sin_family = AF_INET };
    struct address address;
    socklen_t n = sizeof own;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    ck_assert_int_eq(listen(fd, 5), 0);
    getsockname(fd, (struct sockaddr *)&own, &n);
    ck_assert_int_eq(address_parse("tcp:127.0.0.1:1", &address, NULL), 0);
    address.port = ntohs(own.sin_port);
    start_client(&address, 100);
    ck_assert(loop_until(base, &client.is_done));
    ck_assert_int_eq(client.err.status, GEMS_E_TIMEOUT);
    close(fd);
}
END_TEST

/* A storm: clients that give up at every stage. Under the address sanitizer
 * this is the proof that nothing is used after its end. */
START_TEST(storm_of_connections_leaves_nothing_behind)
{
    struct address address;
    struct listener *listener = start_tcp(&address);
    int before;

    loop_for_ms(base, 1);
    before = count_fds();
    for (int i = 0; i < 200; i++) {
        struct connector *connector;

        client.is_done = false;
        connector = start_client(&address, 5000);
        for (int turns = i % 12; turns > 0 && !client.is_done; turns--) {
            event_base_loop(base, EVLOOP_ONCE);
        }
        if (!client.is_done) {
            connect_cancel(connector);
        } else if (client.conn) {
            if (i % 3 == 0) {
                rpc_send(client.conn, 1, 0, 1, "x", 1);
            }
            rpc_destroy(client.conn);
            client.conn = NULL;
        }
    }
    for (int i = 0; i < 100 && server.n_closed < server.n_accepted; i++) {
        loop_for_ms(base, 20);
    }
    loop_for_ms(base, 100);
    ck_assert_int_gt(server.n_accepted, 10);
    ck_assert_int_eq(server.n_closed, server.n_accepted);
    ck_assert_int_eq(count_fds(), before);
    listen_destroy(listener);
}
END_TEST

START_TEST(running_out_of_descriptors_is_survived)
{
    const char *path = temp_dir_file(&dir, "s");
    struct address address = unix_address(path);
    struct listener *listener = listen_unix(base, path, 0600, &listen_handlers, NULL, NULL);
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    struct rlimit before;
    struct rlimit low;
    int fds[4];

    loop_for_ms(base, 1);
    snprintf(to.sun_path, sizeof to.sun_path, "%s", address.path);
    for (int i = 0; i < 4; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&to, sizeof to), 0);
    }
    getrlimit(RLIMIT_NOFILE, &before);
    low = before;
    low.rlim_cur = (rlim_t)fds[3] + 1; /* all taken */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    loop_for_ms(base, 500);
    ck_assert_int_eq(server.n_accepted, 0);
    ck_assert_int_eq(server.n_notes, 1); /* said once, in two rounds or more */
    ck_assert_ptr_nonnull(strstr(server.note, "Too many open files"));
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    loop_for_ms(base, 500);
    ck_assert_int_eq(server.n_accepted, 4);
    for (int i = 0; i < 4; i++) {
        close(fds[i]);
    }
    listen_destroy(listener);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("connect");
    TCase *tcase = tcase_create("connections");

    tcase_add_unchecked_fixture(tcase, make_certs, drop_certs);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, addresses_are_read_and_written);
    tcase_add_loop_test(tcase, long_socket_path_is_refused, 0, 8);
    tcase_add_test(tcase, unix_peer_is_known_by_the_kernel);
    tcase_add_test(tcase, dead_socket_file_is_replaced_and_a_live_one_is_not);
    tcase_add_test(tcase, file_that_is_no_socket_stays);
    tcase_add_test(tcase, socket_of_a_successor_is_not_removed);
    tcase_add_loop_test(tcase, nobody_there_is_an_error_with_the_address, 0, 2);
    tcase_add_test(tcase, tcp_listener_needs_certificate_and_key);
    tcase_add_test(tcase, port_in_use_is_named);
    tcase_add_test(tcase, frames_cross_tls_1_3);
    tcase_add_test(tcase, client_certificate_gives_its_name);
    tcase_add_test(tcase, certificate_of_a_stranger_is_refused);
    tcase_add_loop_test(tcase, server_must_be_signed_and_named, 0, 2);
    tcase_add_test(tcase, host_name_is_looked_up_and_checked);
    tcase_add_test(tcase, client_without_authority_does_not_start);
    tcase_add_test(tcase, plain_text_is_refused);
    tcase_add_test(tcase, tls_1_2_is_refused);
    tcase_add_test(tcase, silent_handshakes_end_and_make_room);
    tcase_add_test(tcase, server_that_never_answers_times_out);
    tcase_add_test(tcase, storm_of_connections_leaves_nothing_behind);
    tcase_add_test(tcase, running_out_of_descriptors_is_survived);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
