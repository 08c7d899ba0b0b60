#include "scripted_gemsd.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static bool read_all(int fd, void *data, size_t n)
{
    uint8_t *at = data;

    while (n > 0) {
        ssize_t part = read(fd, at, n);

        if (part <= 0) {
            return false;
        }
        at += part;
        n -= (size_t)part;
    }
    return true;
}

static void put(uint8_t *p, uint32_t value, int n)
{
    for (int i = 0; i < n; i++) {
        p[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint32_t get(const uint8_t *p, int n)
{
    uint32_t value = 0;

    for (int i = 0; i < n; i++) {
        value |= (uint32_t)p[i] << (8 * i);
    }
    return value;
}

/* Takes one request; false at the end of the connection. */
static bool take_request(int fd, uint16_t *ret_type, uint32_t *ret_call)
{
    uint8_t header[RPC_HEADER_BYTES], *payload;
    size_t n;
    bool is_whole;

    if (!read_all(fd, header, sizeof header)) {
        return false;
    }
    n = get(header, 4);
    payload = malloc(n + 1);
    is_whole = payload && read_all(fd, payload, n);
    free(payload);
    *ret_type = (uint16_t)get(header + 4, 2);
    *ret_call = get(header + 8, 4);
    return is_whole;
}

static void send_frame(int fd, enum msg_type type, uint16_t flags, uint32_t call,
                       const void *payload, size_t n)
{
    uint8_t header[RPC_HEADER_BYTES];
    ssize_t written;

    put(header, (uint32_t)n, 4);
    put(header + 4, type, 2);
    put(header + 6, flags, 2);
    put(header + 8, call, 4);
    written = send(fd, header, sizeof header, MSG_NOSIGNAL);
    if (written == (ssize_t)sizeof header && n > 0) {
        written = send(fd, payload, n, MSG_NOSIGNAL);
    }
    (void)written; /* the client may have gone: that is its test */
}

static void send_message(int fd, enum msg_type type, uint16_t flags, uint32_t call,
                         const ProtobufCMessage *message)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(n + 1);

    if (bytes) {
        protobuf_c_message_pack(message, bytes);
        send_frame(fd, type, flags, call, bytes, n);
    }
    free(bytes);
}

static void serve(struct scripted_gemsd *gemsd, int fd, uint32_t connection)
{
    Gems__HelloReply hello = GEMS__HELLO_REPLY__INIT;
    uint16_t type;
    uint32_t call;

    hello.version = (char *)"test";
    hello.user = (char *)"tester";
    if (!take_request(fd, &type, &call) || type != MSG_HELLO) {
        return;
    }
    send_message(fd, MSG_HELLO_REPLY, RPC_REPLY | RPC_LAST, call, &hello.base);
    if (!take_request(fd, &type, &call)) {
        return;
    }
    gemsd->requests[connection] = type;
    for (const struct script_step *step = gemsd->steps[connection]; step->what != STEP_CLOSE;
         step++) {
        switch (step->what) {
        case STEP_SEND:
            send_message(fd, step->type, step->flags, call, step->message);
            break;
        case STEP_GARBAGE:
            send_frame(fd, step->type, RPC_REPLY, call, "\xff\xff\xff\xff", 4);
            break;
        case STEP_INTERRUPT:
            kill(getpid(), SIGINT);
            break;
        default:
            take_request(fd, &type, &call); /* waits until the client goes */
            break;
        }
    }
}

static void *run(void *arg)
{
    struct scripted_gemsd *gemsd = arg;

    for (uint32_t i = 0; i < gemsd->n_connections; i++) {
        int fd = accept(gemsd->fd, NULL, NULL);

        if (fd < 0) {
            break;
        }
        serve(gemsd, fd, i);
        close(fd);
    }
    return NULL;
}

void scripted_start(struct scripted_gemsd *gemsd)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    snprintf(gemsd->path, sizeof gemsd->path, "scripted-gemsd.%d", (int)getpid());
    snprintf(gemsd->connect, sizeof gemsd->connect, "unix:%s", gemsd->path);
    unlink(gemsd->path);
    strcpy(address.sun_path, gemsd->path);
    gemsd->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(gemsd->fd, 0);
    ck_assert_int_eq(bind(gemsd->fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(gemsd->fd, 8), 0);
    ck_assert_int_eq(pthread_create(&gemsd->thread, NULL, run, gemsd), 0);
}

void scripted_stop(struct scripted_gemsd *gemsd)
{
    shutdown(gemsd->fd, SHUT_RDWR);
    close(gemsd->fd);
    pthread_join(gemsd->thread, NULL);
    unlink(gemsd->path);
}
