/* What a command of gems-client is: one const entry at the top of its file.
 *
 * main finds the entry, reads options by its table and calls run. --help is
 * written from the same entry, so that it cannot differ from what is taken.
 */
#ifndef GEMS_CLIENT_COMMAND_H
#define GEMS_CLIENT_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct args;
struct gems_error;

/* Exit codes that scripts rely on (INTERFACE.md); errors map to them by
 * command_exit. */
enum exit_code {
    EXIT_OK = 0,
    EXIT_FAILED = 1, /* the job failed, or anything without a code of its own */
    EXIT_USAGE = 2,
    EXIT_NOT_FOUND = 3,
    EXIT_DENIED = 4,
    EXIT_CONFLICT = 5,
    EXIT_UNREACHABLE = 6,
    EXIT_NO_FIT = 7,
    EXIT_TIMEOUT = 8,
    EXIT_INTERRUPTED = 130
};

/* Global options. Strings are borrowed from argv and environment. */
struct client {
    const char *connect; /* NULL: look for a local gemsd */
    bool is_json;
    const char *token_file, *tls_ca, *tls_cert, *tls_key;
};

struct option_entry {
    const char *name;  /* without the dashes; NULL ends the table */
    char letter;       /* 0: none */
    const char *value; /* NULL: a flag */
    const char *help;  /* NULL: of a later version; refused and not shown */
};

struct command {
    const char *name, *synopsis, *summary;
    const char *details; /* for --help: behaviour and examples; may be NULL */
    uint32_t min_operands, max_operands;
    const struct option_entry *options; /* may be NULL */
    /* An exit code, or a negative status with *err filled. */
    int (*run)(const struct client *client, const struct args *args, struct gems_error *err);
};

extern const struct command cmd_submit, cmd_status, cmd_list, cmd_watch, cmd_events, cmd_cancel,
    cmd_pause, cmd_resume, cmd_checkpoint, cmd_logs, cmd_checkpoints, cmd_fetch, cmd_plan,
    cmd_schedules, cmd_nodes, cmd_drain, cmd_undrain, cmd_version, cmd_trace;

int command_exit(int status);

#endif
