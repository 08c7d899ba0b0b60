#include "daemon/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"

static const char *const log_levels[] = { "error", "warning", "info", "debug", NULL };

#define KEY(section, name, kind, member, ...)                                                      \
    {                                                                                              \
        section, name, kind, offsetof(struct settings, member), __VA_ARGS__                        \
    }

/* An agent says something every second: below two of them, one that is well would be suspect. */
enum { MIN_MS = 10, MIN_SUSPECT_MS = 2000, MAX_MS = 24 * 3600 * 1000 };

static const struct conf_key keys[] = {
    KEY("", "state_dir", CONF_STRING, state_dir, 0, 0, NULL),
    KEY("", "socket", CONF_STRING, socket, 0, 0, NULL),
    KEY("", "listen", CONF_STRING, listen, 0, 0, NULL),
    KEY("", "tls_cert", CONF_STRING, tls_cert, 0, 0, NULL),
    KEY("", "tls_key", CONF_STRING, tls_key, 0, 0, NULL),
    KEY("", "tls_ca", CONF_STRING, tls_ca, 0, 0, NULL),
    KEY("", "tokens", CONF_STRING, tokens, 0, 0, NULL),
    KEY("", "log_level", CONF_CHOICE, log_level, 0, 0, log_levels),
    KEY("", "operators", CONF_LIST, operators, 0, 0, NULL),
    KEY("", "workers", CONF_LIST, workers, 0, 0, NULL),
    KEY("limits", "ballast", CONF_SIZE, ballast_bytes, 0, 1ull << 30, NULL),
    KEY("limits", "rank_log", CONF_SIZE, log_bytes, 1 << 16, 1ull << 40, NULL),
    KEY("limits", "disk_reserve", CONF_SIZE, reserve_bytes, 0, 1ull << 50, NULL),
    KEY("limits", "checkpoint_queue", CONF_SIZE, checkpoint_queue_bytes, 1 << 20, 1ull << 40, NULL),
    KEY("limits", "peers", CONF_UINT, max_peers, 8, 1 << 20, NULL),
    KEY("limits", "jobs", CONF_UINT, max_jobs, 1, 1 << 20, NULL),
    KEY("times", "suspect", CONF_DURATION, suspect_ms, MIN_SUSPECT_MS, MAX_MS, NULL),
    KEY("times", "lost", CONF_DURATION, lost_ms, MIN_MS, MAX_MS, NULL),
    KEY("times", "hang", CONF_DURATION, hang_ms, MIN_MS, MAX_MS, NULL),
    KEY("times", "start", CONF_DURATION, start_ms, MIN_MS, MAX_MS, NULL),
    KEY("times", "rejoin", CONF_DURATION, rejoin_ms, MIN_MS, MAX_MS, NULL),
    KEY("times", "recover", CONF_DURATION, recover_ms, MIN_MS, MAX_MS, NULL),
    KEY("times", "stop", CONF_DURATION, stop_ms, MIN_MS, MAX_MS, NULL),
    KEY("times", "kill", CONF_DURATION, kill_ms, MIN_MS, MAX_MS, NULL),
    KEY("times", "inspect", CONF_DURATION, inspect_ms, MIN_MS, MAX_MS, NULL),
    KEY("times", "backoff", CONF_DURATION, backoff_ms, 1, MAX_MS, NULL),
};

const struct conf_table settings_table = { keys, sizeof keys / sizeof keys[0] };

int settings_init(struct settings *settings, struct gems_error *err)
{
    bool is_root = geteuid() == 0;
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char path[512];

    memset(settings, 0, sizeof *settings);
    settings->log_level = 2;
    settings->ballast_bytes = 16 << 20;
    settings->log_bytes = 64 << 20;
    settings->reserve_bytes = 256 << 20;
    settings->checkpoint_queue_bytes = 256 << 20;
    settings->max_peers = 4096;
    settings->max_jobs = 20000;
    settings->suspect_ms = 3000;
    settings->lost_ms = 10000;
    settings->hang_ms = 30000;
    settings->start_ms = 120000;
    settings->rejoin_ms = 10000;
    settings->recover_ms = 20000;
    settings->stop_ms = 60000;
    settings->kill_ms = 5000;
    settings->inspect_ms = 60000;
    settings->backoff_ms = 1000;
    if (!is_root && runtime) {
        snprintf(path, sizeof path, "%s/gems/gemsd.sock", runtime);
    } else {
        snprintf(path, sizeof path, "/run/gems/gemsd.sock");
    }
    settings->socket = strdup(path);
    settings->state_dir = strdup("/var/lib/gems");
    if (!settings->socket || !settings->state_dir) {
        settings_fini(settings);
        return gems_error_set(err, GEMS_E_NOMEM, "settings: no memory");
    }
    return GEMS_OK;
}

void settings_fini(struct settings *settings)
{
    conf_fini(&settings_table, settings);
}

static bool is_given(const char *text)
{
    return text && text[0];
}

int settings_check(const struct settings *settings, struct gems_error *err)
{
    if (!is_given(settings->state_dir) || !is_given(settings->socket)) {
        return gems_error_set(err, GEMS_E_INVALID, "--state-dir and --socket must not be empty");
    }
    if (is_given(settings->listen) &&
        (!is_given(settings->tls_cert) || !is_given(settings->tls_key))) {
        gems_error_set(err, GEMS_E_INVALID, "--listen %s: refused without TLS", settings->listen);
        gems_error_hint(err, "give --tls-cert and --tls-key (PEM files)");
        return GEMS_E_INVALID;
    }
    if (is_given(settings->listen) && !is_given(settings->tokens) && !is_given(settings->tls_ca)) {
        gems_error_set(err, GEMS_E_INVALID, "--listen %s: nobody could be let in",
                       settings->listen);
        gems_error_hint(err, "give --tokens FILE or --tls-ca FILE for client certificates");
        return GEMS_E_INVALID;
    }
    if (settings->suspect_ms > settings->lost_ms) {
        return gems_error_set(err, GEMS_E_INVALID, "times.suspect is above times.lost");
    }
    return GEMS_OK;
}

static void swap_list(struct conf_list *a, struct conf_list *b)
{
    struct conf_list keep = *a;

    *a = *b;
    *b = keep;
}

void settings_reload(struct settings *settings, struct settings *fresh)
{
    settings->log_level = fresh->log_level;
    swap_list(&settings->operators, &fresh->operators);
    swap_list(&settings->workers, &fresh->workers);
    settings->log_bytes = fresh->log_bytes;
    settings->reserve_bytes = fresh->reserve_bytes;
    settings->max_peers = fresh->max_peers;
    settings->max_jobs = fresh->max_jobs;
    settings->suspect_ms = fresh->suspect_ms;
    settings->lost_ms = fresh->lost_ms;
    settings->hang_ms = fresh->hang_ms;
    settings->start_ms = fresh->start_ms;
    settings->rejoin_ms = fresh->rejoin_ms;
    settings->stop_ms = fresh->stop_ms;
    settings->kill_ms = fresh->kill_ms;
    settings->inspect_ms = fresh->inspect_ms;
    settings->backoff_ms = fresh->backoff_ms;
}
