#include "client/args.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/units.h"

/* One table for reading and for --help; the order is that of set_global. */
static const struct option_entry globals[] = {
    { "connect", 0, "ADDRESS", "unix:PATH or tcp:HOST:PORT of gemsd" },
    { "json", 0, NULL, "machine-readable output" },
    { "token-file", 0, "FILE", "token for a tcp connection" },
    { "tls-ca", 0, "FILE", "certificates to believe, for tcp" },
    { "tls-cert", 0, "FILE", "own certificate, for tcp" },
    { "tls-key", 0, "FILE", "own private key, for tcp" },
    { "help", 'h', NULL, "this text" },
    { "version", 'V', NULL, "print the version" },
    { NULL, 0, NULL, NULL },
};

static void set_global(const struct option_entry *entry, const char *value, struct client *client,
                       struct args *args)
{
    switch (entry - globals) {
    case 0:
        client->connect = value;
        break;
    case 1:
        client->is_json = true;
        break;
    case 2:
        client->token_file = value;
        break;
    case 3:
        client->tls_ca = value;
        break;
    case 4:
        client->tls_cert = value;
        break;
    case 5:
        client->tls_key = value;
        break;
    case 6:
        args->is_help = true;
        break;
    default:
        args->is_version = true;
        break;
    }
}

/* Index in argv of the command's name; argc if there is none. */
static int find_command(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-' || argv[i][1] == '\0') {
            return i;
        }
        for (const struct option_entry *g = globals; g->name; g++) {
            if (g->value && strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, g->name) == 0) {
                i++;
            }
        }
    }
    return argc;
}

enum { MAX_OPTIONS = 32, FIRST_LONG = 256 };

/* getopt's tables, made of ours: globals first, then the command's. */
struct getopt_tables {
    struct option longs[MAX_OPTIONS + 1];
    const struct option_entry *entries[MAX_OPTIONS];
    char shorts[2 * MAX_OPTIONS + 2];
    int n;
};

static void add_table(struct getopt_tables *tables, const struct option_entry *entry)
{
    size_t n_shorts = strlen(tables->shorts);

    for (; entry && entry->name && tables->n < MAX_OPTIONS; entry++) {
        tables->entries[tables->n] = entry;
        tables->longs[tables->n] =
            (struct option){ entry->name, entry->value ? required_argument : no_argument, NULL,
                             FIRST_LONG + tables->n };
        tables->n++;
        if (entry->letter) {
            tables->shorts[n_shorts++] = entry->letter;
            if (entry->value) {
                tables->shorts[n_shorts++] = ':';
            }
        }
    }
    tables->shorts[n_shorts] = '\0';
}

static const struct option_entry *entry_of(const struct getopt_tables *tables, int c)
{
    if (c >= FIRST_LONG) {
        return tables->entries[c - FIRST_LONG];
    }
    for (int i = 0; i < tables->n; i++) {
        if (tables->entries[i]->letter == c) {
            return tables->entries[i];
        }
    }
    return NULL;
}

static int bad_option(int c, char **argv, const struct args *args, struct gems_error *err)
{
    const char *what = "unknown option";
    char option[64];

    if (optopt > 0 && optopt < FIRST_LONG) {
        snprintf(option, sizeof option, "-%c", optopt);
    } else {
        snprintf(option, sizeof option, "%s", argv[optind - 1]);
        option[strcspn(option, "=")] = '\0';
    }
    if (c == ':') {
        what = "needs a value";
    } else if (optopt >= FIRST_LONG) {
        what = "takes no value";
    }
    gems_error_set(err, GEMS_E_INVALID, "%s: %s", option, what);
    gems_error_hint(err, "gems-client %s%s--help", args->command ? args->command->name : "",
                    args->command ? " " : "");
    return GEMS_E_INVALID;
}

static int read_options(int argc, char **argv, struct client *client, struct args *args,
                        struct gems_error *err)
{
    struct getopt_tables tables = { .shorts = ":" };
    int c;

    add_table(&tables, globals);
    add_table(&tables, args->command ? args->command->options : NULL);
    opterr = 0;
    optind = 0; /* GNU: start anew */
    while ((c = getopt_long(argc, argv, tables.shorts, tables.longs, NULL)) != -1) {
        const struct option_entry *entry = c == '?' || c == ':' ? NULL : entry_of(&tables, c);

        if (!entry) {
            return bad_option(c, argv, args, err);
        }
        if (entry >= globals && entry < globals + sizeof globals / sizeof globals[0]) {
            set_global(entry, optarg, client, args);
            continue;
        }
        if (!entry->help) {
            return gems_error_set(err, GEMS_E_UNSUPPORTED, "--%s: not in this version",
                                  entry->name);
        }
        if (args->n_given == ARGS_MAX_GIVEN) {
            return gems_error_set(err, GEMS_E_INVALID, "more than %d options", ARGS_MAX_GIVEN);
        }
        args->given[args->n_given++] = (struct args_given){ entry, optarg ? optarg : "" };
    }
    args->operands = (const char **)argv + optind;
    args->n_operands = (uint32_t)(argc - optind);
    return GEMS_OK;
}

static int check_operands(const struct args *args, struct gems_error *err)
{
    const struct command *command = args->command;

    if (args->n_operands >= command->min_operands && args->n_operands <= command->max_operands) {
        return GEMS_OK;
    }
    if (args->n_operands > command->max_operands) {
        gems_error_set(err, GEMS_E_INVALID, "%s: '%.80s' is one operand too many", command->name,
                       args->operands[command->max_operands]);
    } else {
        gems_error_set(err, GEMS_E_INVALID, "%s: an operand is missing", command->name);
    }
    gems_error_hint(err, "usage: gems-client %s %s", command->name, command->synopsis);
    return GEMS_E_INVALID;
}

int args_parse(int argc, char **argv, const struct command *const *commands, struct client *client,
               struct args *ret_args, struct gems_error *err)
{
    int at = find_command(argc, argv), status;

    memset(ret_args, 0, sizeof *ret_args);
    if (at < argc) {
        for (; *commands && strcmp((*commands)->name, argv[at]) != 0; commands++) {
        }
        if (!*commands) {
            gems_error_set(err, GEMS_E_INVALID, "'%.80s' is not a command", argv[at]);
            gems_error_hint(err, "gems-client --help lists the commands");
            return GEMS_E_INVALID;
        }
        ret_args->command = *commands;
        memmove(argv + at, argv + at + 1, (size_t)(argc - at) * sizeof *argv); /* with the NULL */
        argc--;
    }
    status = read_options(argc, argv, client, ret_args, err);
    if (status < 0 || !ret_args->command || ret_args->is_help || ret_args->is_version) {
        return status;
    }
    return check_operands(ret_args, err);
}

const char *args_value(const struct args *args, const char *name)
{
    for (uint32_t i = args->n_given; i > 0; i--) {
        if (strcmp(args->given[i - 1].entry->name, name) == 0) {
            return args->given[i - 1].value;
        }
    }
    return NULL;
}

bool args_has(const struct args *args, const char *name)
{
    return args_value(args, name) != NULL;
}

uint32_t args_values(const struct args *args, const char *name, const char **ret_values,
                     uint32_t max)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < args->n_given && n < max; i++) {
        if (strcmp(args->given[i].entry->name, name) == 0) {
            ret_values[n++] = args->given[i].value;
        }
    }
    return n;
}

int args_job(const struct args *args, uint32_t i, uint64_t *ret_job, struct gems_error *err)
{
    uint64_t job;

    if (parse_u64(args->operands[i], &job, NULL) < 0 || job == 0 || job > INT64_MAX) {
        gems_error_set(err, GEMS_E_INVALID, "%s: '%.80s' is not the number of a job",
                       args->command->name, args->operands[i]);
        gems_error_hint(err, "gems-client list shows the jobs");
        return GEMS_E_INVALID;
    }
    *ret_job = job;
    return GEMS_OK;
}

int args_number(const struct args *args, const char *name, uint64_t min, uint64_t max,
                uint64_t *ret_value, struct gems_error *err)
{
    const char *text = args_value(args, name);
    uint64_t value;

    if (!text) {
        return GEMS_OK;
    }
    if (parse_u64(text, &value, NULL) < 0 || value < min || value > max) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "--%s: '%.40s' is not a whole number from %" PRIu64 " to %" PRIu64,
                              name, text, min, max);
    }
    *ret_value = value;
    return GEMS_OK;
}

static void print_options(const struct option_entry *entry)
{
    for (; entry && entry->name; entry++) {
        char left[64], letter[8] = "";

        if (!entry->help) {
            continue;
        }
        if (entry->letter) {
            snprintf(letter, sizeof letter, "-%c, ", entry->letter);
        }
        snprintf(left, sizeof left, "%s--%s%s%s", letter, entry->name, entry->value ? " " : "",
                 entry->value ? entry->value : "");
        printf("  %-28s %s\n", left, entry->help);
    }
}

void args_print_help(const struct command *command)
{
    printf("usage: gems-client [GLOBAL OPTION]... %s%s%s\n\n%s\n", command->name,
           command->synopsis[0] ? " " : "", command->synopsis, command->summary);
    if (command->details) {
        printf("\n%s", command->details);
    }
    if (command->options) {
        printf("\nOptions:\n");
        print_options(command->options);
    }
    printf("\nGlobal options:\n");
    print_options(globals);
}

void args_print_overview(const struct command *const *commands)
{
    printf("usage: gems-client [GLOBAL OPTION]... COMMAND [ARGUMENT]...\n\n"
           "Submits training jobs to gemsd, shows how they do, and fetches what they made.\n\n"
           "Commands:\n");
    for (; *commands; commands++) {
        if ((*commands)->summary) {
            printf("  %-12s %s\n", (*commands)->name, (*commands)->summary);
        }
    }
    printf("\nGlobal options (before or after COMMAND):\n");
    print_options(globals);
    printf(
        "\n'gems-client COMMAND --help' says more. Without --connect, $GEMS_CONNECT is used, then\n"
        "$XDG_RUNTIME_DIR/gems/gemsd.sock, then /run/gems/gemsd.sock.\n"
        "Exit: 0 ok, 1 job failed, 2 usage or bad job file, 3 not found, 4 not allowed,\n"
        "5 conflict with the state, 6 cannot reach gemsd, 7 does not fit, 8 timed out.\n");
}
