/* Options and configuration file of gems-worker, and where its programs are. */
#ifndef GEMS_WORKER_AGENT_SETTINGS_H
#define GEMS_WORKER_AGENT_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/address.h"
#include "common/conf.h"
#include "common/tls.h"

struct gems_error;

struct settings {
    char *connect, *name, *state_dir, *token_file;
    char *tls_ca, *tls_cert, *tls_key;
    char *rank_program, *inspect_program;
    struct conf_list devices;
    struct conf_list data_roots; /* absolute; empty: see roots.h */
    uint64_t memory_bytes;       /* of a device; 0: its share of what is available */
    uint64_t rank_log_bytes;     /* kept of what one rank prints */
    int log_level;               /* index into the names below */

    struct address address; /* connect, parsed */
    char *token;            /* content of token_file; NULL: none */
};

enum settings_action { SETTINGS_RUN, SETTINGS_HELP, SETTINGS_VERSION };

/* Configuration file first, then options; then checks and defaults. */
int settings_load(int argc, char **argv, struct settings *ret_settings,
                  enum settings_action *ret_action, struct gems_error *err);
void settings_fini(struct settings *settings);
void settings_print_help(void);
struct tls_settings settings_tls(const struct settings *settings);

#endif
