/* gems-worker: the agent of a node.
 *
 * SIGTERM and SIGINT end all ranks, tell gemsd, and end the agent with 0.
 * Exit code 2: the command line or the configuration is wrong. */
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/error.h"
#include "common/log.h"
#include "common/notify.h"
#include "config.h"
#include "worker/agent/agent.h"
#include "worker/agent/inspect.h"
#include "worker/agent/logs.h"
#include "worker/agent/ranks.h"
#include "worker/agent/session.h"

enum { EXIT_USAGE = 2, STOP_S = 2 };

void agent_check_stop(struct agent *agent)
{
    if (agent->is_stopping && (!ranks_any(agent) || !session_is_online(agent->session))) {
        event_base_loopexit(agent->base, NULL);
    }
}

/* ---- signals ---- */

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    struct agent *agent = arg;
    struct rusage usage;
    int wait_status;
    pid_t pid;

    (void)fd;
    (void)what;
    while ((pid = wait4(-1, &wait_status, WNOHANG, &usage)) > 0) {
        if (!ranks_reaped(agent, pid, wait_status, &usage)) {
            inspect_reaped(agent, pid);
        }
    }
}

static void on_stop(evutil_socket_t fd, short what, void *arg)
{
    struct agent *agent = arg;

    (void)fd;
    (void)what;
    if (agent->is_stopping) {
        return;
    }
    log_info("stopping: ranks are killed");
    notify_stopping();
    agent->is_stopping = true;
    ranks_kill_all(agent);
    event_base_loopexit(agent->base, &(struct timeval){ .tv_sec = STOP_S });
    agent_check_stop(agent);
}

/* ---- life ---- */

static void on_kind_known(struct agent *agent)
{
    session_start(agent->session);
}

/* Kernel and pipe keep the dead until somebody waits for them. */
static void reap_rest(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0) {
        continue;
    }
}

static int agent_run(struct agent *agent, struct gems_error *err)
{
    struct event *const events[] = { evsignal_new(agent->base, SIGCHLD, on_child, agent),
                                     evsignal_new(agent->base, SIGTERM, on_stop, agent),
                                     evsignal_new(agent->base, SIGINT, on_stop, agent) };
    int status = 0;

    /* What is in force when the events go: a second signal must not disturb the end. */
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    for (size_t i = 0; i < 3; i++) {
        if (!events[i] || event_add(events[i], NULL) < 0) {
            status = gems_error_set(err, GEMS_E_NOMEM, "no memory for signals");
        }
    }
    if (status == 0) {
        inspect_kind(agent, on_kind_known);
        event_base_dispatch(agent->base);
    }
    for (size_t i = 0; i < 3; i++) {
        if (events[i]) {
            event_free(events[i]);
        }
    }
    return status;
}

static int agent_init(struct agent *agent, struct gems_error *err)
{
    int status =
        devices_parse(&agent->settings.devices, agent->settings.memory_bytes, &agent->devices, err);

    if (status >= 0) {
        status = logs_prepare(agent->settings.state_dir, &agent->state_fd, err);
    }
    if (status < 0) {
        return status;
    }
    cgroup_prepare(agent->cgroup_base);
    agent->base = event_base_new();
    if (!agent->base) {
        return gems_error_set(err, GEMS_E_NOMEM, "no memory for the event loop");
    }
    agent->session = session_create(agent, err);
    return agent->session ? 0 : GEMS_E_NOMEM;
}

static void agent_fini(struct agent *agent)
{
    ranks_kill_all(agent);
    ranks_destroy_all(agent);
    inspect_stop_all(agent);
    session_destroy(agent->session);
    if (agent->base) {
        event_base_free(agent->base);
    }
    settings_fini(&agent->settings);
    reap_rest();
}

static int fail(const struct gems_error *err)
{
    fprintf(stderr, "gems-worker: %s\n", err->text);
    if (err->hint[0]) {
        fprintf(stderr, "%s\n", err->hint);
    }
    return err->status == GEMS_E_INVALID || err->status == GEMS_E_UNSUPPORTED ||
                   err->status == GEMS_E_NOTFOUND
               ? EXIT_USAGE
               : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    static struct agent agent;
    enum settings_action action;
    struct gems_error err = { 0 };
    int status;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    umask(027);
    list_init(&agent.ranks);
    list_init(&agent.inspects);
    status = settings_load(argc, argv, &agent.settings, &action, &err);
    if (status < 0) {
        return fail(&err);
    }
    if (action != SETTINGS_RUN) {
        if (action == SETTINGS_HELP) {
            settings_print_help();
        } else {
            printf("gems-worker %s\n", PACKAGE_VERSION);
        }
        settings_fini(&agent.settings);
        return EXIT_SUCCESS;
    }
    status = agent_init(&agent, &err);
    if (status >= 0) {
        status = agent_run(&agent, &err);
    }
    agent_fini(&agent);
    return status < 0 ? fail(&err) : EXIT_SUCCESS;
}
