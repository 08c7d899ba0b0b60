/* A rank must die with its agent and must not tell its secret. So
 * - PR_SET_PDEATHSIG is set and the parent looked at again after it, and the
 *   rank holds the reading end of a pipe whose other end only the agent has;
 * - secret and address of gemsd travel in an anonymous file that the rank
 *   inherits, never in arguments, environment or log;
 * - what UCX and OpenMP read when they are loaded is in the environment.
 */
#include "worker/agent/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fsutil.h"
#include "proto/codec.h"
#include "worker/agent/cgroup.h"

/* All descriptors of a launch, so that one place closes them. */
struct launch_fds {
    int info, lifeline[2], output[2], failure[2];
};

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static void close_fds(struct launch_fds *fds)
{
    int *const all[] = { &fds->info,      &fds->lifeline[0], &fds->lifeline[1], &fds->output[0],
                         &fds->output[1], &fds->failure[0],  &fds->failure[1] };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        close_fd(all[i]);
    }
}

static int open_fds(struct launch_fds *fds, struct gems_error *err)
{
    fds->info = memfd_create("gems-launch", MFD_CLOEXEC);
    if (fds->info < 0 || pipe2(fds->lifeline, O_CLOEXEC) < 0 || pipe2(fds->output, O_CLOEXEC) < 0 ||
        pipe2(fds->failure, O_CLOEXEC) < 0) {
        return gems_error_errno(err, errno, "launch: descriptors");
    }
    fcntl(fds->output[0], F_SETFL, O_NONBLOCK);
    return 0;
}

static char *or_empty(char *text)
{
    static char empty[] = "";

    return text ? text : empty;
}

static int write_info(const struct settings *settings, const Gems__Launch *launch,
                      const struct launch_fds *fds, struct gems_error *err)
{
    Gems__LaunchInfo info = GEMS__LAUNCH_INFO__INIT;
    uint8_t *bytes = NULL;
    size_t n = 0;
    int status;

    info.ref = launch->ref;
    info.n_ranks = launch->n_ranks;
    info.device = launch->device;
    info.backend = launch->backend;
    info.threads = launch->threads;
    info.memory_bytes = launch->memory_bytes;
    info.rank_token = launch->rank_token;
    info.secret = launch->secret;
    info.connect = settings->connect;
    info.tls_ca = or_empty(settings->tls_ca);
    info.tls_cert = or_empty(settings->tls_cert);
    info.tls_key = or_empty(settings->tls_key);
    info.lifeline_fd = (uint32_t)fds->lifeline[0];
    info.node = settings->name;
    status = proto_pack(&info.base, &bytes, &n, err);
    if (status < 0) {
        return status;
    }
    status = fs_write_all(fds->info, bytes, n);
    explicit_bzero(bytes, n);
    free(bytes);
    if (status < 0 || lseek(fds->info, 0, SEEK_SET) < 0) {
        return gems_error_errno(err, status < 0 ? -status : errno, "launch: message to the rank");
    }
    return 0;
}

static void set_number(const char *name, unsigned long number)
{
    char text[24];

    snprintf(text, sizeof text, "%lu", number);
    setenv(name, text, 1);
}

static void set_environment(const Gems__Launch *launch, const struct launch_fds *fds)
{
    set_number("GEMS_LAUNCH_FD", (unsigned long)fds->info);
    set_number("OMP_NUM_THREADS", launch->threads);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    /* Read when libucs is loaded: leave our signals alone. */
    setenv("UCX_ERROR_SIGNALS", "", 1);
    setenv("UCX_DEBUG_SIGNO", "0", 1);
    setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
    /* Those of the agent's own unit. */
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_PID");
}

static void prefer_for_oom(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    /* The agent and gemsd should survive it; not being able to is no error. */
    if (fd >= 0) {
        (void)!write(fd, "500", 3);
        close(fd);
    }
}

/* In the child. Signals are blocked until here and back to default. */
static _Noreturn void become_rank(const char *program, const Gems__Launch *launch,
                                  const char *cgroup, const struct launch_fds *fds, pid_t agent)
{
    char *const argv[] = { (char *)"gems-rank", NULL };
    struct sigaction action = { .sa_handler = SIG_DFL };
    sigset_t none;
    int error, null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent) {
        _exit(127);
    }
    cgroup_enter(cgroup);
    prefer_for_oom();
    for (int i = 1; i < NSIG; i++) {
        sigaction(i, &action, NULL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    set_environment(launch, fds);
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(fds->output[1], STDOUT_FILENO) >= 0 &&
        dup2(fds->output[1], STDERR_FILENO) >= 0 && fcntl(fds->info, F_SETFD, 0) >= 0 &&
        fcntl(fds->lifeline[0], F_SETFD, 0) >= 0) {
        execv(program, argv);
    }
    error = errno;
    (void)!write(fds->failure[1], &error, sizeof error);
    _exit(127);
}

/* The failure pipe closes with exec; an errno in it says that there was none. */
static int wait_for_exec(struct launch_fds *fds)
{
    int error = 0;
    ssize_t n;

    close_fd(&fds->failure[1]);
    do {
        n = read(fds->failure[0], &error, sizeof error);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof error ? error : 0;
}

static pid_t fork_rank(const char *program, const Gems__Launch *launch, const char *cgroup,
                       const struct launch_fds *fds)
{
    pid_t agent = getpid(), pid;
    sigset_t all, before;

    /* No handler of the agent may run in the child. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0) {
        become_rank(program, launch, cgroup, fds, agent);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}

int launch_rank(const struct settings *settings, const Gems__Launch *launch, const char *cgroup,
                struct launched *ret_launched, struct gems_error *err)
{
    struct launch_fds fds = { -1, { -1, -1 }, { -1, -1 }, { -1, -1 } };
    int status = open_fds(&fds, err), error;
    pid_t pid = -1;

    if (status == 0) {
        status = write_info(settings, launch, &fds, err);
    }
    if (status == 0) {
        pid = fork_rank(settings->rank_program, launch, cgroup, &fds);
        if (pid < 0) {
            status = gems_error_errno(err, errno, "launch: fork");
        }
    }
    if (status == 0) {
        error = wait_for_exec(&fds);
        if (error) {
            /* GEMS_E_DENIED would be taken for the job's data. */
            status = gems_error_set(err, GEMS_E_INTERNAL, "launch: %s: %s", settings->rank_program,
                                    strerror(error));
        }
    }
    if (status == 0) {
        *ret_launched = (struct launched){ pid, fds.output[0], fds.lifeline[1] };
        fds.output[0] = fds.lifeline[1] = -1;
    }
    /* A child that could not exec is reaped with all unknown children. */
    close_fds(&fds);
    return status;
}
