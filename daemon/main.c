/* gemsd: command line, configuration, signals, and the loop. */
#include <errno.h>
#include <event2/event.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fsutil.h"
#include "common/log.h"
#include "common/notify.h"
#include "config.h"
#include "daemon/daemon.h"
#include "daemon/tokens.h"

/* What the supervisor sees: a bad configuration is not cured by a restart. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_CONFIG = 42 };

struct options {
    const char *config;
    const char *values[16]; /* key and value of settings given on the command line */
    int n_values;
    const char *new_token;
};

struct program {
    struct event_base *base;
    const struct options *options;
    struct settings settings;
    struct daemon *daemon;
};

static const char usage[] =
    "usage: gemsd [OPTION]...\n"
    "\n"
    "Coordinates training jobs: takes them in, plans them, runs them on the nodes\n"
    "that register, keeps their checkpoints.\n"
    "\n"
    "  --config FILE        configuration (default " GEMS_SYSCONFDIR "/gemsd.conf if it is there)\n"
    "  --state-dir DIR      database, checkpoints, logs (default /var/lib/gems)\n"
    "  --socket PATH        unix socket for clients and agents of this machine\n"
    "  --listen HOST:PORT   also listen on TCP; needs --tls-cert and --tls-key\n"
    "  --tls-cert FILE      own certificate chain (PEM)\n"
    "  --tls-key FILE       its private key (PEM)\n"
    "  --tls-ca FILE        lets clients in by certificates that this authority signed\n"
    "  --tokens FILE        lets peers in by tokens\n"
    "  --new-token NAME ROLE  adds a token to the file of --tokens, prints it once, ends;\n"
    "                       ROLE: user, viewer, operator or worker\n"
    "  --log-level LEVEL    error, warning, info or debug\n"
    "  --version, --help\n";

static void say(const struct gems_error *err)
{
    fprintf(stderr, "gemsd: %s\n", err->text);
    if (err->hint[0]) {
        fprintf(stderr, "gemsd: hint: %s\n", err->hint);
    }
}

/* ---- settings ---- */

static int load_settings(const struct options *options, struct settings *settings,
                         struct gems_error *err)
{
    const char *path = options->config ? options->config : GEMS_SYSCONFDIR "/gemsd.conf";
    int status = settings_init(settings, err);

    if (status < 0) {
        return status;
    }
    if (options->config || access(path, F_OK) == 0) {
        status = conf_load(path, &settings_table, settings, err);
    }
    for (int i = 0; status >= 0 && i < options->n_values; i += 2) {
        status =
            conf_set(&settings_table, settings, options->values[i], options->values[i + 1], err);
    }
    if (status >= 0) {
        status = settings_check(settings, err);
    }
    if (status < 0) {
        settings_fini(settings);
    }
    return status;
}

static void apply_log_level(const struct settings *settings)
{
    static const enum log_level levels[] = { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO,
                                             LOG_LEVEL_DEBUG };

    log_set_level(levels[settings->log_level]);
}

/* ---- options ---- */

enum { OPT_CONFIG = 256, OPT_NEW_TOKEN, OPT_VERSION, OPT_HELP, OPT_SETTING };

static const struct option long_options[] = {
    { "config", required_argument, NULL, OPT_CONFIG },
    { "state-dir", required_argument, NULL, OPT_SETTING },
    { "socket", required_argument, NULL, OPT_SETTING },
    { "listen", required_argument, NULL, OPT_SETTING },
    { "tls-cert", required_argument, NULL, OPT_SETTING },
    { "tls-key", required_argument, NULL, OPT_SETTING },
    { "tls-ca", required_argument, NULL, OPT_SETTING },
    { "tokens", required_argument, NULL, OPT_SETTING },
    { "log-level", required_argument, NULL, OPT_SETTING },
    { "new-token", required_argument, NULL, OPT_NEW_TOKEN },
    { "version", no_argument, NULL, OPT_VERSION },
    { "help", no_argument, NULL, OPT_HELP },
    { NULL, 0, NULL, 0 },
};

static const char *const setting_keys[][2] = {
    { "state-dir", "state_dir" }, { "socket", "socket" },       { "listen", "listen" },
    { "tls-cert", "tls_cert" },   { "tls-key", "tls_key" },     { "tls-ca", "tls_ca" },
    { "tokens", "tokens" },       { "log-level", "log_level" },
};

static int take_setting(struct options *options, const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof setting_keys / sizeof setting_keys[0]; i++) {
        if (!strcmp(setting_keys[i][0], name) && options->n_values + 2 <= 16) {
            options->values[options->n_values++] = setting_keys[i][1];
            options->values[options->n_values++] = value;
            return 0;
        }
    }
    fprintf(stderr, "gemsd: --%s is given too often\n", name);
    return -1;
}

/* -1: go on; else the exit code. */
static int parse(int argc, char **argv, struct options *options)
{
    int choice, index = 0;

    while ((choice = getopt_long(argc, argv, "", long_options, &index)) != -1) {
        switch (choice) {
        case OPT_CONFIG:
            options->config = optarg;
            break;
        case OPT_NEW_TOKEN:
            options->new_token = optarg;
            break;
        case OPT_SETTING:
            if (take_setting(options, long_options[index].name, optarg) < 0) {
                return EXIT_USAGE;
            }
            break;
        case OPT_VERSION:
            puts("gemsd (gems) " PACKAGE_VERSION);
            return EXIT_OK;
        case OPT_HELP:
            fputs(usage, stdout);
            return EXIT_OK;
        default:
            fputs("gemsd: try --help\n", stderr);
            return EXIT_USAGE;
        }
    }
    if (optind != argc - (options->new_token ? 1 : 0)) {
        fprintf(stderr, "gemsd: %s\n",
                options->new_token ? "--new-token needs NAME and ROLE"
                                   : "takes no arguments but options");
        return EXIT_USAGE;
    }
    return -1;
}

static int new_token(const struct settings *settings, const char *name, const char *role_name)
{
    int role = token_role_from_name(role_name);
    char token[TOKEN_BYTES];
    struct gems_error err;

    if (role < 0) {
        fprintf(stderr,
                "gemsd: --new-token: role \"%s\" is none of user, viewer, operator, worker\n",
                role_name);
        return EXIT_USAGE;
    }
    if (!settings->tokens || !settings->tokens[0]) {
        fputs("gemsd: --new-token: --tokens FILE must say where its hash is kept\n", stderr);
        return EXIT_USAGE;
    }
    if (tokens_add(settings->tokens, name, (enum token_role)role, token, &err) < 0) {
        say(&err);
        return EXIT_FAILED;
    }
    puts(token);
    return EXIT_OK;
}

/* ---- signals ---- */

static void on_stop(evutil_socket_t number, short what, void *arg)
{
    struct program *program = arg;

    (void)what;
    log_info("gemsd stops: %s; jobs go on", strsignal((int)number));
    notify_stopping();
    event_base_loopbreak(program->base);
}

static void on_reload(evutil_socket_t number, short what, void *arg)
{
    struct program *program = arg;
    struct settings fresh;
    struct gems_error err;

    (void)number;
    (void)what;
    notify_reloading();
    if (load_settings(program->options, &fresh, &err) < 0) {
        log_error("configuration is not reloaded, the old one stays: %s", err.text);
    } else {
        settings_reload(&program->settings, &fresh);
        settings_fini(&fresh);
        apply_log_level(&program->settings);
        log_info("configuration is reloaded");
    }
    notify_ready();
}

static void on_watchdog(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
    notify_watchdog();
}

/* ---- the loop ---- */

static struct event *add_signal(struct program *program, int number, event_callback_fn fn)
{
    struct event *event = evsignal_new(program->base, number, fn, program);

    if (event) {
        evsignal_add(event, NULL);
    }
    return event;
}

static void make_socket_dir(const char *path)
{
    char dir[512];
    char *slash;

    snprintf(dir, sizeof dir, "%s", path);
    slash = strrchr(dir, '/');
    if (slash && slash != dir) {
        *slash = '\0';
        fs_mkdirs(dir, 0755, NULL);
    }
}

static int run(struct program *program)
{
    struct event *events[4] = { add_signal(program, SIGTERM, on_stop),
                                add_signal(program, SIGINT, on_stop),
                                add_signal(program, SIGHUP, on_reload), NULL };
    uint64_t watchdog_us = notify_watchdog_us();
    struct gems_error err;
    int status;

    if (watchdog_us > 0) {
        struct timeval every = { (time_t)(watchdog_us / 2 / 1000000),
                                 (suseconds_t)(watchdog_us / 2 % 1000000) };

        events[3] = event_new(program->base, -1, EV_PERSIST, on_watchdog, NULL);
        if (events[3]) {
            event_add(events[3], &every);
        }
    }
    make_socket_dir(program->settings.socket);
    status =
        daemon_create(program->base, &clock_system, &program->settings, &program->daemon, &err);
    if (status < 0) {
        say(&err);
    } else {
        log_info("gemsd " PACKAGE_VERSION " is ready on %s", program->settings.socket);
        notify_ready();
        event_base_dispatch(program->base);
        daemon_destroy(program->daemon);
    }
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (events[i]) {
            event_free(events[i]);
        }
    }
    return status < 0 ? EXIT_FAILED : EXIT_OK;
}

/* A connection and an open file each need one; the limit of old is for select(). */
static void raise_files(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int main(int argc, char **argv)
{
    struct options options = { 0 };
    struct program program = { .options = &options };
    struct gems_error err;
    int code = parse(argc, argv, &options);

    if (code >= 0) {
        return code;
    }
    if (load_settings(&options, &program.settings, &err) < 0) {
        say(&err);
        return EXIT_CONFIG;
    }
    apply_log_level(&program.settings);
    if (options.new_token) {
        code = new_token(&program.settings, options.new_token, argv[optind]);
        settings_fini(&program.settings);
        return code;
    }
    umask(0027);
    raise_files();
    signal(SIGPIPE, SIG_IGN);
    program.base = event_base_new();
    if (!program.base) {
        fputs("gemsd: no event loop\n", stderr);
        settings_fini(&program.settings);
        return EXIT_FAILED;
    }
    code = run(&program);
    event_base_free(program.base);
    settings_fini(&program.settings);
    return code;
}
