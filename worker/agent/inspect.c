#include "worker/agent/inspect.h"

#include <endian.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/error.h"
#include "common/fsutil.h"
#include "common/log.h"
#include "proto/codec.h"
#include "proto/messages.h"
#include "worker/agent/agent.h"

enum { DEADLINE_S = 90, AT_ONCE = 4, MAX_REPLY = RPC_LIMIT_WORKER - 64 };

struct inspect {
    struct list link;
    pid_t pid; /* its process group; reaped by main */
    int fd;
    struct event *event, *deadline;
    struct buf reply;
    bool is_late;
    inspect_fn *done;
    void *arg;
};

static void inspect_destroy(struct inspect *inspect)
{
    list_remove(&inspect->link);
    if (inspect->event) {
        event_free(inspect->event);
    }
    if (inspect->deadline) {
        event_free(inspect->deadline);
    }
    if (inspect->fd >= 0) {
        close(inspect->fd);
    }
    if (inspect->pid > 0) {
        kill(-inspect->pid, SIGKILL);
    }
    buf_fini(&inspect->reply);
    free(inspect);
}

/* The child has closed its output. */
static void inspect_finish(struct inspect *inspect)
{
    inspect_fn *done = inspect->done;
    void *arg = inspect->arg;
    struct buf reply = inspect->reply;
    struct gems_error err = { 0 };
    uint32_t length = 0;

    inspect->reply = (struct buf){ 0 };
    if (reply.n >= sizeof length) {
        memcpy(&length, reply.data, sizeof length);
        length = le32toh(length);
    }
    if (inspect->is_late) {
        gems_error_set(&err, GEMS_E_TIMEOUT, "gems-inspect: no answer within %d s", DEADLINE_S);
    } else if (reply.n < sizeof length || reply.n - sizeof length != length) {
        gems_error_set(&err, GEMS_E_INTERNAL, "gems-inspect: ended without an answer");
        gems_error_hint(&err,
                        "the log of gems-worker may say why; limits of memory and time end it");
    }
    inspect_destroy(inspect);
    if (err.status < 0) {
        done(arg, NULL, 0, &err);
    } else {
        done(arg, reply.data + sizeof length, length, NULL);
    }
    buf_fini(&reply);
}

static void on_reply(evutil_socket_t fd, short what, void *arg)
{
    struct inspect *inspect = arg;
    uint8_t data[16384];
    ssize_t n = read(fd, data, sizeof data);

    (void)what;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n > 0 && inspect->reply.n + (size_t)n <= MAX_REPLY &&
        buf_add(&inspect->reply, data, (size_t)n) == GEMS_OK) {
        return;
    }
    inspect_finish(inspect);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    struct inspect *inspect = arg;

    (void)fd;
    (void)what;
    inspect->is_late = true;
    inspect_finish(inspect);
}

static _Noreturn void become_inspect(const char *program, int in, int out, pid_t agent)
{
    char *const argv[] = { (char *)"gems-inspect", NULL };
    struct sigaction action = { .sa_handler = SIG_DFL };
    sigset_t none;
    int fd;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent) {
        _exit(127);
    }
    fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    (void)!write(fd, "1000", 4); /* the first to go; if not, it has limits */
    for (int i = 1; i < NSIG; i++) {
        sigaction(i, &action, NULL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0) {
        execv(program, argv);
    }
    dprintf(STDERR_FILENO, "gems-worker: %s: %s\n", program, strerror(errno));
    _exit(127);
}

/* An anonymous file as input: nothing to feed, nothing to block on. */
static int write_request(const uint8_t *request, size_t n, int *ret_fd, struct gems_error *err)
{
    uint32_t length = htole32((uint32_t)n);
    int fd = memfd_create("gems-inspect", MFD_CLOEXEC), status;

    if (fd < 0) {
        return gems_error_errno(err, errno, "gems-inspect: request");
    }
    status = fs_write_all(fd, &length, sizeof length);
    status = status < 0 ? status : fs_write_all(fd, request, n);
    if (status < 0 || lseek(fd, 0, SEEK_SET) < 0) {
        gems_error_errno(err, status < 0 ? -status : errno, "gems-inspect: request");
        close(fd);
        return err ? err->status : GEMS_E_IO;
    }
    *ret_fd = fd;
    return 0;
}

static int inspect_fork(struct inspect *inspect, const char *program, const uint8_t *request,
                        size_t n, struct gems_error *err)
{
    int in = -1, out[2] = { -1, -1 };
    int status = write_request(request, n, &in, err);
    pid_t agent = getpid();
    sigset_t all, before;

    if (status < 0) {
        return status;
    }
    if (pipe2(out, O_CLOEXEC) < 0) {
        status = gems_error_errno(err, errno, "gems-inspect: pipe");
        close(in);
        return status;
    }
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    inspect->pid = fork();
    if (inspect->pid == 0) {
        become_inspect(program, in, out[1], agent);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (inspect->pid < 0) {
        status = gems_error_errno(err, errno, "gems-inspect: fork");
    } else {
        setpgid(inspect->pid, inspect->pid); /* either side may come first */
    }
    close(in);
    close(out[1]);
    inspect->fd = out[0];
    return status;
}

int inspect_start(struct agent *agent, const uint8_t *request, size_t n, inspect_fn *done,
                  void *arg, struct gems_error *err)
{
    struct inspect *inspect;
    int status;

    if (list_count(&agent->inspects) >= AT_ONCE) {
        return gems_error_set(err, GEMS_E_STATE, "gems-inspect: %d questions at once", AT_ONCE);
    }
    inspect = calloc(1, sizeof *inspect);
    if (!inspect) {
        return gems_error_set(err, GEMS_E_NOMEM, "gems-inspect: no memory");
    }
    inspect->fd = -1;
    inspect->done = done;
    inspect->arg = arg;
    list_push(&agent->inspects, &inspect->link);
    status = inspect_fork(inspect, agent->settings.inspect_program, request, n, err);
    if (status == 0) {
        inspect->event =
            event_new(agent->base, inspect->fd, EV_READ | EV_PERSIST, on_reply, inspect);
        inspect->deadline = evtimer_new(agent->base, on_deadline, inspect);
        if (!inspect->event || !inspect->deadline || event_add(inspect->event, NULL) < 0 ||
            evtimer_add(inspect->deadline, &(struct timeval){ .tv_sec = DEADLINE_S }) < 0) {
            status = gems_error_set(err, GEMS_E_NOMEM, "gems-inspect: no memory");
        }
    }
    if (status < 0) {
        inspect_destroy(inspect);
    }
    return status;
}

bool inspect_reaped(struct agent *agent, pid_t pid)
{
    list_each(&agent->inspects, link)
    {
        struct inspect *inspect = list_item(link, struct inspect, link);

        if (inspect->pid == pid) {
            inspect->pid = 0;
            return true;
        }
    }
    return false;
}

void inspect_stop_all(struct agent *agent)
{
    list_each(&agent->inspects, link)
    {
        inspect_destroy(list_item(link, struct inspect, link));
    }
}

/* ---- the kind of the devices ---- */

static void take_kind(struct agent *agent, const uint8_t *bytes, size_t n, struct gems_error *err)
{
    const struct rpc_frame frame = { .type = MSG_INSPECT_REPLY, .payload = bytes, .bytes = n };
    ProtobufCMessage *message;
    const Gems__InspectReply *reply;

    if (msg_decode(&frame, &message, err) < 0) {
        return;
    }
    reply = (const Gems__InspectReply *)message;
    if (reply->error && reply->error->status < 0) {
        gems_error_set(err, GEMS_E_DEVICE, "%s", reply->error->text);
    } else {
        snprintf(agent->kind_cpu, sizeof agent->kind_cpu, "%s", reply->kind);
    }
    msg_free(message);
}

static void on_kind(void *arg, const uint8_t *reply, size_t n, const struct gems_error *why)
{
    struct agent *agent = arg;
    struct gems_error err = { 0 };

    if (why) {
        err = *why;
    } else {
        take_kind(agent, reply, n, &err);
    }
    if (err.status < 0) {
        log_warning("kind of the devices is not known: %s", err.text);
    }
    agent->kind_ready(agent);
}

/* The smallest job there is; only the kind in the answer counts. */
static int pack_kind_request(const struct agent *agent, uint8_t **ret_bytes, size_t *ret_n,
                             struct gems_error *err)
{
    Gems__InspectRequest request = GEMS__INSPECT_REQUEST__INIT;
    struct job_spec spec;
    int status;

    spec_init(&spec);
    snprintf(spec.name, sizeof spec.name, "kind");
    snprintf(spec.model.zoo, sizeof spec.model.zoo, "mlp");
    spec.model.hidden[0] = 4;
    spec.model.n_hidden = 1;
    spec.model.classes = 2;
    spec.model.channels = spec.data.channels = 1;
    spec.model.height = spec.model.width = spec.data.height = spec.data.width = 4;
    spec.data.format = DATA_SYNTHETIC;
    spec.data.samples = 2;
    spec.train.steps = 1;
    spec.train.batch = 2;
    spec.train.lr = 0.1;
    request.spec = spec_to_proto(&spec);
    request.backend = (char *)(uintptr_t)agent->devices.items[0].kind;
    request.threads = agent->devices.items[0].threads;
    if (!request.spec) {
        return gems_error_set(err, GEMS_E_NOMEM, "no memory");
    }
    status = proto_pack(&request.base, ret_bytes, ret_n, err);
    msg_free(&request.spec->base);
    return status;
}

void inspect_kind(struct agent *agent, void (*ready)(struct agent *agent))
{
    struct gems_error err = { 0 };
    uint8_t *bytes = NULL;
    size_t n = 0;
    int status = pack_kind_request(agent, &bytes, &n, &err);

    agent->kind_ready = ready;
    if (status >= 0) {
        status = inspect_start(agent, bytes, n, on_kind, agent, &err);
    }
    free(bytes);
    if (status < 0) {
        log_warning("kind of the devices is not known: %s", err.text);
        ready(agent);
    }
}
