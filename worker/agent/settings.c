#include "worker/agent/settings.h"

#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/error.h"
#include "common/fsutil.h"
#include "common/log.h"

enum { TOKEN_MAX = 4096 };

static const char *const log_levels[] = { "error", "warning", "info", "debug", NULL };
static const enum log_level log_level_values[] = { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING,
                                                   LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

#define KEY(name_, kind_)                                                                          \
    {                                                                                              \
        .section = "", .name = #name_, .kind = kind_, .offset = offsetof(struct settings, name_)   \
    }

static const struct conf_key keys[] = {
    KEY(connect, CONF_STRING),
    KEY(name, CONF_STRING),
    KEY(devices, CONF_LIST),
    KEY(data_roots, CONF_LIST),
    KEY(state_dir, CONF_STRING),
    KEY(token_file, CONF_STRING),
    KEY(tls_ca, CONF_STRING),
    KEY(tls_cert, CONF_STRING),
    KEY(tls_key, CONF_STRING),
    KEY(rank_program, CONF_STRING),
    KEY(inspect_program, CONF_STRING),
    { .section = "",
      .name = "memory",
      .kind = CONF_SIZE,
      .offset = offsetof(struct settings, memory_bytes),
      .min = 1 << 20 },
    { .section = "",
      .name = "rank_log",
      .kind = CONF_SIZE,
      .offset = offsetof(struct settings, rank_log_bytes),
      .min = 4096 },
    { .section = "",
      .name = "log_level",
      .kind = CONF_CHOICE,
      .offset = offsetof(struct settings, log_level),
      .choices = log_levels },
};

static const struct conf_table table = { keys, sizeof keys / sizeof keys[0] };

enum { OPTION_CONFIG = 256, OPTION_HELP, OPTION_VERSION, OPTION_KEY };

static const char *const option_names[] = {
    "connect", "name",     "devices", "data-roots",   "memory",          "state-dir", "token-file",
    "tls-ca",  "tls-cert", "tls-key", "rank-program", "inspect-program", "rank-log",  "log-level",
};
enum { N_OPTIONS = sizeof option_names / sizeof option_names[0] };

void settings_print_help(void)
{
    printf("usage: gems-worker [option]...\n"
           "Brings the devices of this node to gemsd and runs ranks on them.\n\n"
           "  --config FILE        configuration; options override it\n"
           "  --connect ADDRESS    unix:PATH or tcp:HOST:PORT (unix:/run/gems/gemsd.sock)\n"
           "  --name NODE          default: name of the host\n"
           "  --devices LIST       cpu:N[:THREADS], several with commas (cpu:1)\n"
           "  --memory SIZE        limit of each device; default: available memory / devices\n"
           "  --data-roots LIST    folders under which jobs may name data sets; without it any,\n"
           "                       if the submitter is the user that gems-worker runs as\n"
           "  --state-dir DIR      logs of ranks (/var/lib/gems-worker)\n"
           "  --token-file FILE    token of a worker, for TCP\n"
           "  --tls-ca FILE        who signs gemsd's certificate, for TCP\n"
           "  --tls-cert FILE, --tls-key FILE   own certificate, instead of a token\n"
           "  --rank-log SIZE      kept of what one rank prints (64MiB)\n"
           "  --rank-program FILE, --inspect-program FILE\n"
           "  --log-level LEVEL    error, warning, info, debug\n"
           "  --help, --version\n");
}

static void fill_options(struct option *options)
{
    size_t n = 0;

    options[n++] = (struct option){ "config", required_argument, NULL, OPTION_CONFIG };
    options[n++] = (struct option){ "help", no_argument, NULL, OPTION_HELP };
    options[n++] = (struct option){ "version", no_argument, NULL, OPTION_VERSION };
    for (int i = 0; i < N_OPTIONS; i++) {
        options[n++] = (struct option){ option_names[i], required_argument, NULL, OPTION_KEY + i };
    }
    options[n] = (struct option){ 0 };
}

/* "tls-ca" on the command line is tls_ca in the file. */
static int set_option(struct settings *settings, int i, const char *value, struct gems_error *err)
{
    char key[64];

    snprintf(key, sizeof key, "%s", option_names[i]);
    for (char *at = key; *at; at++) {
        *at = *at == '-' ? '_' : *at;
    }
    return conf_set(&table, settings, key, value, err);
}

static int read_arguments(int argc, char **argv, struct settings *settings,
                          enum settings_action *ret_action, struct gems_error *err)
{
    struct option options[N_OPTIONS + 4];
    int status = 0, option;

    fill_options(options);
    /* Two rounds: the file's values, then those of the command line. */
    for (int round = 0; round < 2 && status >= 0; round++) {
        optind = 1;
        opterr = 0;
        while (status >= 0 && (option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
            if (option == '?' || option == ':') {
                return gems_error_set(err, GEMS_E_INVALID, "%s: %s", argv[optind - 1],
                                      option == '?' ? "no such option" : "needs a value");
            }
            if (option == OPTION_HELP || option == OPTION_VERSION) {
                *ret_action = option == OPTION_HELP ? SETTINGS_HELP : SETTINGS_VERSION;
            } else if (option == OPTION_CONFIG && round == 0) {
                status = conf_load(optarg, &table, settings, err);
            } else if (option >= OPTION_KEY && round == 1) {
                status = set_option(settings, option - OPTION_KEY, optarg, err);
            }
        }
    }
    if (status >= 0 && optind < argc) {
        status = gems_error_set(err, GEMS_E_INVALID, "%s: not an option", argv[optind]);
    }
    return status;
}

static int set_default(char **value, const char *text, struct gems_error *err)
{
    if (!*value) {
        *value = strdup(text);
    }
    return *value ? 0 : gems_error_set(err, GEMS_E_NOMEM, "settings: no memory");
}

/* Beside this program (a build tree), else where they are installed. */
static int find_program(char **value, const char *name, struct gems_error *err)
{
    char self[PATH_MAX - 64], path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (*value) {
        return 0;
    }
    if (n > 0) {
        self[n] = '\0';
        snprintf(path, sizeof path, "%s/%s", dirname(self), name);
        if (access(path, X_OK) == 0) {
            return set_default(value, path, err);
        }
    }
    return set_default(value,
                       strcmp(name, "gems-rank") == 0 ? GEMS_LIBEXECDIR "/gems-rank"
                                                      : GEMS_LIBEXECDIR "/gems-inspect",
                       err);
}

static int set_defaults(struct settings *settings, struct gems_error *err)
{
    const char *state = getenv("STATE_DIRECTORY");
    char host[256] = "";
    int status;

    gethostname(host, sizeof host - 1);
    status = set_default(&settings->connect, "unix:/run/gems/gemsd.sock", err);
    if (status >= 0) {
        status = set_default(&settings->name, host, err);
    }
    if (status >= 0) {
        status = set_default(&settings->state_dir, state ? state : "/var/lib/gems-worker", err);
    }
    if (status >= 0) {
        status = find_program(&settings->rank_program, "gems-rank", err);
    }
    if (status >= 0) {
        status = find_program(&settings->inspect_program, "gems-inspect", err);
    }
    if (status >= 0 && settings->devices.n == 0) {
        status = conf_set(&table, settings, "devices", "cpu:1", err);
    }
    return status;
}

static int read_token(struct settings *settings, struct gems_error *err)
{
    struct buf buf = { 0 };
    int status;

    if (!settings->token_file) {
        return 0;
    }
    status = fs_read_secret(settings->token_file, TOKEN_MAX, &buf, err);
    if (status < 0) {
        return status;
    }
    settings->token = buf_take(&buf);
    if (!settings->token) {
        return gems_error_set(err, GEMS_E_NOMEM, "settings: no memory");
    }
    settings->token[strcspn(settings->token, " \t\r\n")] = '\0';
    if (settings->token[0] == '\0') {
        return gems_error_set(err, GEMS_E_INVALID, "%s: no token in it", settings->token_file);
    }
    return 0;
}

static int check(struct settings *settings, struct gems_error *err)
{
    int status = address_parse(settings->connect, &settings->address, err);

    if (status < 0) {
        return status;
    }
    if (!settings->name[0] || strlen(settings->name) > 63 || strchr(settings->name, '/')) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "name \"%.80s\": 1 to 63 characters without a slash", settings->name);
    }
    for (size_t i = 0; i < settings->data_roots.n; i++) {
        if (settings->data_roots.items[i][0] != '/') {
            return gems_error_set(err, GEMS_E_INVALID, "data_roots: \"%.200s\" is no absolute path",
                                  settings->data_roots.items[i]);
        }
    }
    if (!settings->address.is_unix && !settings->tls_ca) {
        gems_error_set(err, GEMS_E_INVALID, "%s: TCP needs --tls-ca", settings->connect);
        gems_error_hint(err, "and --token-file, or --tls-cert with --tls-key");
        return GEMS_E_INVALID;
    }
    return read_token(settings, err);
}

int settings_load(int argc, char **argv, struct settings *ret_settings,
                  enum settings_action *ret_action, struct gems_error *err)
{
    struct settings settings = { .rank_log_bytes = 64 << 20, .log_level = 2 };
    enum settings_action action = SETTINGS_RUN;
    int status = read_arguments(argc, argv, &settings, &action, err);

    if (status >= 0 && action == SETTINGS_RUN) {
        status = set_defaults(&settings, err);
        if (status >= 0) {
            status = check(&settings, err);
        }
    }
    if (status < 0) {
        settings_fini(&settings);
        return status;
    }
    log_set_level(log_level_values[settings.log_level]);
    *ret_settings = settings;
    *ret_action = action;
    return 0;
}

void settings_fini(struct settings *settings)
{
    conf_fini(&table, settings);
    if (settings->token) {
        explicit_bzero(settings->token, strlen(settings->token));
        free(settings->token);
        settings->token = NULL;
    }
}

struct tls_settings settings_tls(const struct settings *settings)
{
    return (struct tls_settings){ .ca = settings->tls_ca,
                                  .certificate = settings->tls_cert,
                                  .key = settings->tls_key };
}
