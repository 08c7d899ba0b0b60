/* What gemsd can be told: configuration file, then command line. */
#ifndef GEMS_DAEMON_SETTINGS_H
#define GEMS_DAEMON_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/conf.h"

struct gems_error;

struct settings {
    char *state_dir, *socket, *listen, *tls_cert, *tls_key, *tls_ca, *tokens;
    int log_level;              /* index into error, warning, info, debug */
    struct conf_list operators; /* users who may act on all jobs and on nodes */
    struct conf_list workers;   /* users whose agents are let in on the unix socket */
    uint64_t ballast_bytes, log_bytes, reserve_bytes, checkpoint_queue_bytes;
    uint64_t max_peers, max_jobs;
    /* milliseconds */
    uint64_t suspect_ms, lost_ms; /* silence of an agent or a rank */
    uint64_t hang_ms;             /* no progress, at least this long and 10 steps */
    uint64_t start_ms;            /* from launch to the first instruction */
    uint64_t rejoin_ms;           /* after a rank's connection broke */
    uint64_t recover_ms;          /* after gemsd's start, for agents and ranks to come back */
    uint64_t stop_ms;             /* for a checkpoint before a stop */
    uint64_t kill_ms;             /* from TERM to KILL, and before KILL is repeated */
    uint64_t inspect_ms;
    uint64_t backoff_ms; /* unit of the wait before a retry; 1000 */
};

extern const struct conf_table settings_table;

/* Defaults; strings are owned by the struct (settings_fini). */
int settings_init(struct settings *settings, struct gems_error *err);
void settings_fini(struct settings *settings);
/* What must hold together: TLS files with listen, times in order. */
int settings_check(const struct settings *settings, struct gems_error *err);
/* Takes over from fresh what may change while gemsd runs. */
void settings_reload(struct settings *settings, struct settings *fresh);

#endif
