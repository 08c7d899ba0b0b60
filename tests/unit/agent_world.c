#include "tests/unit/agent_world.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fsutil.h"

enum { WAIT_MS = 20000, MAX_OPTIONS = 16 };

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

static void write_script(struct agent_world *world, const char *body)
{
    FILE *file;

    snprintf(world->rank_program, sizeof world->rank_program, "%s/rank", world->dir);
    file = fopen(world->rank_program, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "#!/bin/sh\nDIR=%s\n%s\n", world->dir, body);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(world->rank_program, 0755), 0);
}

static void start_agent(struct agent_world *world, char *const *options)
{
    char state[128], connect[160];
    const char *argv[MAX_OPTIONS + 16] = { "gems-worker",
                                           "--state-dir",
                                           state,
                                           "--connect",
                                           connect,
                                           "--name",
                                           "node1",
                                           "--devices",
                                           "cpu:2:1",
                                           "--memory",
                                           "64MiB",
                                           "--rank-program",
                                           world->rank_program };
    size_t n = 13;

    snprintf(state, sizeof state, "%s/state", world->dir);
    snprintf(connect, sizeof connect, "unix:%s", world->socket);
    for (size_t i = 0; options && options[i]; i++) {
        argv[n++] = options[i];
    }
    world->agent = fork();
    ck_assert_int_ge(world->agent, 0);
    if (world->agent == 0) {
        close(world->listen_fd);
        execv("./gems-worker", (char *const *)(uintptr_t)argv);
        _exit(126);
    }
}

void agent_world_start(struct agent_world *world, const char *rank_script, char *const *options)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    *world = (struct agent_world){ .fd = -1, .dir = "agent-test.XXXXXX" };
    ck_assert_ptr_nonnull(mkdtemp(world->dir));
    snprintf(world->socket, sizeof world->socket, "%s/gemsd.sock", world->dir);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", world->socket);
    world->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(world->listen_fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(world->listen_fd, 4), 0);
    write_script(world, rank_script);
    start_agent(world, options);
}

void agent_world_kill_agent(struct agent_world *world)
{
    kill(world->agent, SIGKILL);
    ck_assert_int_eq(waitpid(world->agent, NULL, 0), world->agent);
    world->agent = 0;
}

void agent_world_stop(struct agent_world *world)
{
    int wait_status;

    if (world->agent > 0) {
        kill(world->agent, SIGTERM);
        ck_assert_int_eq(waitpid(world->agent, &wait_status, 0), world->agent);
        ck_assert_msg(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0,
                      "the agent ended with %#x", (unsigned)wait_status);
    }
    agent_world_disconnect(world);
    close(world->listen_fd);
    ck_assert_int_eq(fs_remove_tree(".", world->dir, NULL), 0);
}

/* ---- frames ---- */

static void wait_readable(int fd)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
    int n;

    do {
        n = poll(&poll_fd, 1, WAIT_MS);
    } while (n < 0 && errno == EINTR);
    ck_assert_msg(n == 1, "nothing from the agent in %d ms", WAIT_MS);
}

static void read_all(int fd, void *data, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t part;

        wait_readable(fd);
        part = read(fd, (char *)data + done, n - done);
        ck_assert_msg(part > 0, "the agent has closed the connection");
        done += (size_t)part;
    }
}

static void put(uint8_t *at, uint32_t value, int n)
{
    for (int i = 0; i < n; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint32_t get(const uint8_t *at, int n)
{
    uint32_t value = 0;

    for (int i = 0; i < n; i++) {
        value |= (uint32_t)at[i] << (8 * i);
    }
    return value;
}

static void send_frame(struct agent_world *world, enum msg_type type, uint16_t flags, uint32_t call,
                       const ProtobufCMessage *message)
{
    size_t n = message ? protobuf_c_message_get_packed_size(message) : 0;
    uint8_t *bytes = malloc(RPC_HEADER_BYTES + n);

    put(bytes, (uint32_t)n, 4);
    put(bytes + 4, type, 2);
    put(bytes + 6, flags, 2);
    put(bytes + 8, call, 4);
    if (message) {
        protobuf_c_message_pack(message, bytes + RPC_HEADER_BYTES);
    }
    ck_assert_int_eq(fs_write_all(world->fd, bytes, RPC_HEADER_BYTES + n), 0);
    free(bytes);
}

uint32_t agent_world_send(struct agent_world *world, enum msg_type type,
                          const ProtobufCMessage *message)
{
    send_frame(world, type, 0, ++world->last_call, message);
    return world->last_call;
}

void agent_world_reply(struct agent_world *world, uint32_t call, enum msg_type type,
                       const ProtobufCMessage *message)
{
    send_frame(world, type, RPC_REPLY | RPC_LAST, call, message);
}

static struct agent_frame next_frame(struct agent_world *world)
{
    struct agent_frame frame;
    struct rpc_frame raw = { 0 };
    struct gems_error err = { .text = "" };
    uint8_t header[RPC_HEADER_BYTES], *payload;

    for (;;) {
        read_all(world->fd, header, sizeof header);
        raw.bytes = get(header, 4);
        raw.type = (uint16_t)get(header + 4, 2);
        raw.flags = (uint16_t)get(header + 6, 2);
        raw.call = get(header + 8, 4);
        payload = malloc(raw.bytes + 1);
        read_all(world->fd, payload, raw.bytes);
        raw.payload = payload;
        frame = (struct agent_frame){ (enum msg_type)raw.type, raw.flags, raw.call, NULL };
        ck_assert_msg(msg_decode(&raw, &frame.message, &err) == 0, "%s", err.text);
        free(payload);
        if (frame.type != MSG_PING) {
            return frame;
        }
        agent_world_reply(world, frame.call, MSG_OK, NULL);
        frame_free(&frame);
    }
}

void frame_free(struct agent_frame *frame)
{
    msg_free(frame->message);
    frame->message = NULL;
}

struct agent_frame agent_world_expect(struct agent_world *world, enum msg_type type, char *log,
                                      size_t log_room)
{
    for (;;) {
        struct agent_frame frame = next_frame(world);
        const Gems__RankLog *piece = (const Gems__RankLog *)frame.message;

        if (frame.type == type) {
            return frame;
        }
        ck_assert_msg(frame.type == MSG_RANK_LOG, "%s instead of %s",
                      msg_name((uint16_t)frame.type), msg_name((uint16_t)type));
        if (log) {
            ck_assert_uint_le(piece->offset + piece->data.len, log_room);
            memcpy(log + piece->offset, piece->data.data, piece->data.len);
        }
        agent_world_reply(world, frame.call, MSG_OK, NULL);
        frame_free(&frame);
    }
}

/* ---- connections ---- */

struct agent_frame agent_world_accept(struct agent_world *world)
{
    Gems__HelloReply reply = GEMS__HELLO_REPLY__INIT;
    struct agent_frame frame;

    wait_readable(world->listen_fd);
    world->fd = accept4(world->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(world->fd, 0);
    frame = agent_world_expect(world, MSG_HELLO, NULL, 0);
    ck_assert_str_eq(((Gems__Hello *)frame.message)->role, "worker");
    ck_assert_uint_eq(((Gems__Hello *)frame.message)->protocol, PROTO_VERSION);
    reply.version = (char *)(uintptr_t) "test";
    reply.user = (char *)(uintptr_t) "tester";
    agent_world_reply(world, frame.call, MSG_HELLO_REPLY, &reply.base);
    frame_free(&frame);
    return agent_world_expect(world, MSG_REGISTER, NULL, 0);
}

void agent_world_register(struct agent_world *world)
{
    Gems__RegisterReply reply = GEMS__REGISTER_REPLY__INIT;
    struct agent_frame frame = agent_world_accept(world);

    agent_world_reply(world, frame.call, MSG_REGISTER_REPLY, &reply.base);
    frame_free(&frame);
}

void agent_world_disconnect(struct agent_world *world)
{
    if (world->fd >= 0) {
        close(world->fd);
        world->fd = -1;
    }
}

/* ---- orders ---- */

enum msg_type agent_world_launch(struct agent_world *world, uint64_t job, uint32_t attempt,
                                 const char *device)
{
    uint8_t secret[32] = "SECRETsecretSECRETsecretSECRET!";
    Gems__Launch launch = GEMS__LAUNCH__INIT;
    Gems__RankRef ref = GEMS__RANK_REF__INIT;
    char *paths[] = { (char *)(uintptr_t)world->launch_data };
    struct agent_frame frame;
    enum msg_type answer;
    uint32_t call;

    ref.job = job;
    ref.attempt = attempt;
    launch.ref = &ref;
    launch.n_ranks = 2;
    launch.device = (char *)(uintptr_t)device;
    launch.backend = (char *)(uintptr_t) "cpu";
    launch.threads = 3;
    launch.memory_bytes = 12345;
    launch.rank_token = (char *)(uintptr_t) "TOKENtoken";
    launch.secret = (ProtobufCBinaryData){ sizeof secret, secret };
    launch.data = paths;
    launch.n_data = world->launch_data != NULL;
    call = agent_world_send(world, MSG_LAUNCH, &launch.base);
    do {
        frame = next_frame(world);
        if (frame.type == MSG_RANK_LOG) { /* of a rank that is there already */
            agent_world_reply(world, frame.call, MSG_OK, NULL);
        }
        answer = frame.type;
        if (answer == MSG_ERROR) {
            world->launch_status = ((Gems__Error *)frame.message)->status;
        }
        ck_assert(answer == MSG_RANK_LOG || frame.call == call);
        frame_free(&frame);
    } while (answer == MSG_RANK_LOG);
    return answer;
}

void agent_world_kill(struct agent_world *world, uint64_t job, uint32_t attempt, uint32_t grace_ms)
{
    Gems__Kill order = GEMS__KILL__INIT;
    Gems__RankRef ref = GEMS__RANK_REF__INIT;

    ref.job = job;
    ref.attempt = attempt;
    order.ref = &ref;
    order.grace_ms = grace_ms;
    send_frame(world, MSG_KILL, 0, 0, &order.base);
}

long agent_world_number(struct agent_world *world, const char *name)
{
    char path[160], line[32];

    snprintf(path, sizeof path, "%s/%s", world->dir, name);
    for (int i = 0; i < WAIT_MS / 20; i++) {
        FILE *file = fopen(path, "r");
        bool is_whole = file && fgets(line, sizeof line, file) && strchr(line, '\n');

        if (file) {
            fclose(file);
        }
        if (is_whole) {
            return strtol(line, NULL, 10);
        }
        pause_ms(20);
    }
    ck_abort_msg("%s does not come", path);
    return 0;
}

static bool is_gone(pid_t pid)
{
    char path[64], line[256], state = 'Z';
    FILE *file;

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    file = fopen(path, "r");
    if (file) {
        if (fgets(line, sizeof line, file) && strrchr(line, ')')) {
            sscanf(strrchr(line, ')') + 1, " %c", &state);
        }
        fclose(file);
    }
    return state == 'Z' || state == 'X';
}

void agent_world_wait_gone(pid_t pid)
{
    for (int i = 0; i < 150 && !is_gone(pid); i++) {
        pause_ms(20);
    }
    ck_assert_msg(is_gone(pid), "process %ld still lives", (long)pid);
}
