#include "worker/agent/ranks.h"

#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"
#include "common/log.h"
#include "worker/agent/agent.h"
#include "worker/agent/launch.h"
#include "worker/agent/logs.h"
#include "worker/agent/roots.h"
#include "worker/agent/session.h"

enum { MAX_RANKS = 4096 };

struct rank {
    struct list link; /* agent->ranks */
    struct agent *agent;
    uint64_t job;
    uint32_t attempt, rank;
    char device[64], name[64]; /* name: "job 1 attempt 2 rank 3" */
    char cgroup[CGROUP_PATH_BYTES];
    pid_t pid; /* 0: ended */
    int lifeline_fd;
    int wait_status;
    uint64_t peak_bytes;
    bool is_oom, is_ours; /* is_ours: we sent the SIGKILL */
    struct event *output_event, *kill_timer;
    unsigned long oom_kills; /* of the system, when it started */
    struct rank_log log;
    size_t piece_bytes;           /* on their way to gemsd */
    uint32_t exit_call, log_call; /* unanswered; 0: none */
    bool is_exit_known;           /* gemsd has acknowledged */
};

static struct rank *rank_find(const struct agent *agent, uint64_t job, uint32_t attempt, uint32_t i)
{
    list_each(&agent->ranks, link)
    {
        struct rank *rank = list_item(link, struct rank, link);

        if (rank->job == job && rank->attempt == attempt && rank->rank == i) {
            return rank;
        }
    }
    return NULL;
}

static void rank_ref(const struct rank *rank, Gems__RankRef *ret_ref)
{
    gems__rank_ref__init(ret_ref);
    ret_ref->job = rank->job;
    ret_ref->attempt = rank->attempt;
    ret_ref->rank = rank->rank;
}

static void rank_destroy(struct rank *rank)
{
    list_remove(&rank->link);
    if (rank->output_event) {
        event_free(rank->output_event);
    }
    if (rank->kill_timer) {
        event_free(rank->kill_timer);
    }
    if (rank->lifeline_fd >= 0) {
        close(rank->lifeline_fd);
    }
    logs_close(&rank->log);
    free(rank);
}

/* ---- reports ---- */

static void rank_ship_log(struct rank *rank)
{
    static uint8_t piece[LOG_PIECE_BYTES];
    Gems__RankLog message = GEMS__RANK_LOG__INIT;
    Gems__RankRef ref;
    size_t n;

    if (rank->log_call != 0 || !session_is_online(rank->agent->session)) {
        return;
    }
    n = logs_piece(&rank->log, piece, sizeof piece);
    if (n > 0) {
        rank_ref(rank, &ref);
        message.ref = &ref;
        message.offset = rank->log.shipped;
        message.data = (ProtobufCBinaryData){ n, piece };
        rank->log_call = session_call(rank->agent->session, MSG_RANK_LOG, &message.base);
        rank->piece_bytes = n;
    }
}

static void rank_report_exit(struct rank *rank)
{
    char tail[LOG_TAIL_BYTES + 1];
    Gems__RankExit message = GEMS__RANK_EXIT__INIT;
    Gems__RankRef ref;

    if (rank->pid != 0 || rank->is_exit_known || rank->exit_call != 0) {
        return;
    }
    rank_ref(rank, &ref);
    logs_tail(&rank->log, tail);
    message.ref = &ref;
    message.signaled = WIFSIGNALED(rank->wait_status);
    message.code = message.signaled ? WTERMSIG(rank->wait_status) : WEXITSTATUS(rank->wait_status);
    message.peak_rss_bytes = rank->peak_bytes;
    message.tail = tail;
    message.oom = rank->is_oom;
    rank->exit_call = session_call(rank->agent->session, MSG_RANK_EXIT, &message.base);
}

static bool rank_read_output(struct rank *rank)
{
    bool is_open = logs_read(&rank->log);

    if (!is_open && rank->output_event) {
        event_free(rank->output_event);
        rank->output_event = NULL;
    }
    rank_ship_log(rank);
    return is_open;
}

/* Nothing left to do or to tell: forget it. */
static void rank_check_over(struct rank *rank)
{
    struct agent *agent = rank->agent;

    if (rank->pid == 0 && rank->is_exit_known && rank->log.pipe_fd < 0 &&
        rank->log.shipped == rank->log.bytes) {
        rank_destroy(rank);
        agent_check_stop(agent);
    }
}

bool ranks_answered(struct agent *agent, uint32_t call, bool is_ok)
{
    list_each(&agent->ranks, link)
    {
        struct rank *rank = list_item(link, struct rank, link);

        if (call == rank->exit_call) {
            /* A refusal means that gemsd has no such attempt: known as well. */
            rank->exit_call = 0;
            rank->is_exit_known = true;
            rank_check_over(rank);
            return true;
        }
        if (call == rank->log_call) {
            rank->log_call = 0;
            if (is_ok) {
                rank->log.shipped += rank->piece_bytes;
            } else {
                rank->log.shipped = rank->log.bytes; /* gemsd does not want it */
            }
            rank_ship_log(rank);
            rank_check_over(rank);
            return true;
        }
    }
    return false;
}

static void on_output(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    if (!rank_read_output(arg)) {
        rank_check_over(arg);
    }
}

void ranks_online(struct agent *agent)
{
    list_each(&agent->ranks, link)
    {
        struct rank *rank = list_item(link, struct rank, link);

        rank_report_exit(rank);
        rank_ship_log(rank);
    }
}

void ranks_offline(struct agent *agent)
{
    list_each(&agent->ranks, link)
    {
        struct rank *rank = list_item(link, struct rank, link);

        rank->exit_call = rank->log_call = 0;
    }
}

size_t ranks_count(const struct agent *agent)
{
    return list_count(&agent->ranks);
}

void ranks_refs(const struct agent *agent, Gems__RankRef *refs)
{
    size_t n = 0;

    list_each(&agent->ranks, link)
    {
        rank_ref(list_item(link, struct rank, link), &refs[n++]);
    }
}

bool ranks_any(const struct agent *agent)
{
    list_each(&agent->ranks, link)
    {
        struct rank *rank = list_item(link, struct rank, link);

        if (rank->pid != 0 || !rank->is_exit_known) {
            return true;
        }
    }
    return false;
}

/* ---- ending ---- */

static void rank_kill_now(struct rank *rank)
{
    if (rank->pid != 0) {
        rank->is_ours = true;
        cgroup_kill(rank->cgroup);
        kill(-rank->pid, SIGKILL);
        kill(rank->pid, SIGKILL);
    }
}

static void on_kill_timer(evutil_socket_t fd, short what, void *arg)
{
    struct rank *rank = arg;

    (void)fd;
    (void)what;
    if (rank->pid != 0) {
        log_warning("%s: does not end by itself, killed", rank->name);
        rank_kill_now(rank);
    }
}

void ranks_kill(struct agent *agent, const Gems__RankRef *ref, uint32_t grace_ms)
{
    struct rank *rank = rank_find(agent, ref->job, ref->attempt, ref->rank);
    struct timeval grace = { .tv_sec = grace_ms / 1000, .tv_usec = grace_ms % 1000 * 1000 };

    if (!rank || rank->pid == 0) {
        return;
    }
    if (grace_ms == 0) {
        rank_kill_now(rank);
    } else if (!evtimer_pending(rank->kill_timer, NULL)) {
        kill(rank->pid, SIGTERM);
        evtimer_add(rank->kill_timer, &grace);
    }
}

void ranks_kill_all(struct agent *agent)
{
    list_each(&agent->ranks, link)
    {
        rank_kill_now(list_item(link, struct rank, link));
    }
}

/* Processes that the kernel has ended for memory since boot. */
static unsigned long oom_kills(void)
{
    FILE *file = fopen("/proc/vmstat", "re");
    char line[128];
    unsigned long n = 0;

    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "oom_kill %lu", &n) == 1) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return n;
}

static void log_exit(const struct rank *rank)
{
    if (WIFSIGNALED(rank->wait_status)) {
        log_info("%s: ended by signal %d%s", rank->name, WTERMSIG(rank->wait_status),
                 rank->is_oom ? " (out of memory)" : "");
    } else {
        log_info("%s: ended with status %d", rank->name, WEXITSTATUS(rank->wait_status));
    }
}

/* What it printed last; a process that it left behind and that holds the pipe
 * has been killed, so the end comes, but maybe not yet. */
static void rank_drain_output(struct rank *rank)
{
    uint64_t before;

    do {
        before = rank->log.tail_bytes;
    } while (rank->log.pipe_fd >= 0 && rank_read_output(rank) && rank->log.tail_bytes > before);
}

bool ranks_reaped(struct agent *agent, pid_t pid, int wait_status, const struct rusage *usage)
{
    list_each(&agent->ranks, link)
    {
        struct rank *rank = list_item(link, struct rank, link);

        if (rank->pid != pid) {
            continue;
        }
        /* Whatever it started goes with it. */
        cgroup_kill(rank->cgroup);
        kill(-pid, SIGKILL);
        rank->pid = 0;
        rank->wait_status = wait_status;
        rank->peak_bytes = (uint64_t)usage->ru_maxrss * 1024;
        rank->is_oom = cgroup_had_oom(rank->cgroup) ||
                       (!rank->is_ours && WIFSIGNALED(wait_status) &&
                        WTERMSIG(wait_status) == SIGKILL && rank->oom_kills != oom_kills());
        cgroup_remove(rank->cgroup);
        evtimer_del(rank->kill_timer);
        close(rank->lifeline_fd);
        rank->lifeline_fd = -1;
        rank_drain_output(rank);
        log_exit(rank);
        rank_report_exit(rank);
        rank_check_over(rank);
        agent_check_stop(agent);
        return true;
    }
    return false;
}

void ranks_destroy_all(struct agent *agent)
{
    list_each(&agent->ranks, link)
    {
        rank_destroy(list_item(link, struct rank, link));
    }
}

/* ---- starting ---- */

static int check_launch(const struct agent *agent, const Gems__Launch *launch,
                        struct gems_error *err)
{
    const Gems__RankRef *ref = launch->ref;

    if (!ref || ref->rank >= launch->n_ranks || launch->secret.len != 32) {
        return gems_error_set(err, GEMS_E_INVALID, "launch: no such rank, or no secret");
    }
    if (!devices_find(&agent->devices, launch->device)) {
        return gems_error_set(err, GEMS_E_NOTFOUND, "launch: no device %.60s here", launch->device);
    }
    if (agent->is_stopping || ranks_count(agent) >= MAX_RANKS) {
        return gems_error_set(err, GEMS_E_STATE, "launch: the agent stops or has too many ranks");
    }
    list_each(&agent->ranks, link)
    {
        const struct rank *rank = list_item(link, struct rank, link);

        if (rank->job == ref->job && rank->attempt > ref->attempt) {
            return gems_error_set(err, GEMS_E_STATE,
                                  "launch: attempt %u of job %" PRIu64
                                  " is over, attempt %u was here",
                                  ref->attempt, ref->job, rank->attempt);
        }
        if (rank->pid != 0 && strcmp(rank->device, launch->device) == 0) {
            return gems_error_set(err, GEMS_E_STATE, "launch: device %s has %s", rank->device,
                                  rank->name);
        }
    }
    return 0;
}

static int check_data(const struct agent *agent, const Gems__Launch *launch, struct gems_error *err)
{
    struct submitter who = { launch->has_uid, launch->uid };
    int status = 0;

    for (size_t i = 0; status == 0 && i < launch->n_data; i++) {
        status = roots_check(&agent->settings.data_roots, &who, launch->data[i], err);
    }
    return status;
}

static int rank_start(struct rank *rank, const Gems__Launch *launch, struct gems_error *err)
{
    struct agent *agent = rank->agent;
    struct launched launched;
    char file[64];
    int status;

    snprintf(file, sizeof file, "%" PRIu64 "-%u-%u", rank->job, rank->attempt, rank->rank);
    cgroup_create(agent->cgroup_base, file, rank->cgroup);
    rank->oom_kills = oom_kills();
    status = launch_rank(&agent->settings, launch, rank->cgroup, &launched, err);
    if (status < 0) {
        cgroup_remove(rank->cgroup);
        return status;
    }
    rank->pid = launched.pid;
    rank->lifeline_fd = launched.lifeline_fd;
    status = logs_open(&rank->log, agent->settings.state_dir, file, launched.output_fd,
                       agent->settings.rank_log_bytes, err);
    rank->output_event =
        event_new(agent->base, launched.output_fd, EV_READ | EV_PERSIST, on_output, rank);
    rank->kill_timer = evtimer_new(agent->base, on_kill_timer, rank);
    if (status >= 0 &&
        (!rank->output_event || !rank->kill_timer || event_add(rank->output_event, NULL) < 0)) {
        status = gems_error_set(err, GEMS_E_NOMEM, "launch: no memory");
    }
    if (status < 0) {
        rank_kill_now(rank); /* reaped as a child that nobody knows */
    }
    return status;
}

int ranks_launch(struct agent *agent, const Gems__Launch *launch, struct gems_error *err)
{
    const Gems__RankRef *ref = launch->ref;
    struct rank *rank;
    int status;

    if (ref && rank_find(agent, ref->job, ref->attempt, ref->rank)) {
        return 0;
    }
    status = check_launch(agent, launch, err);
    status = status < 0 ? status : check_data(agent, launch, err);
    if (status < 0) {
        return status;
    }
    rank = calloc(1, sizeof *rank);
    if (!rank) {
        return gems_error_set(err, GEMS_E_NOMEM, "launch: no memory");
    }
    rank->agent = agent;
    rank->job = ref->job;
    rank->attempt = ref->attempt;
    rank->rank = ref->rank;
    rank->lifeline_fd = rank->log.pipe_fd = rank->log.file_fd = -1;
    snprintf(rank->device, sizeof rank->device, "%s", launch->device);
    snprintf(rank->name, sizeof rank->name, "job %" PRIu64 " attempt %u rank %u", rank->job,
             rank->attempt, rank->rank);
    list_push(&agent->ranks, &rank->link);
    status = rank_start(rank, launch, err);
    if (status < 0) {
        rank_destroy(rank);
        return status;
    }
    log_info("%s: started on %s, process %ld", rank->name, rank->device, (long)rank->pid);
    return 0;
}
