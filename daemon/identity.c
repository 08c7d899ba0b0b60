#include "daemon/identity.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/hash.h"
#include "common/log.h"
#include "daemon/jobs.h"
#include "daemon/tokens.h"

static bool is_listed(const struct conf_list *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++) {
        if (!strcmp(names->items[i], name)) {
            return true;
        }
    }
    return false;
}

static void name_of_uid(uid_t uid, char *ret_name, size_t n)
{
    struct passwd entry, *found = NULL;
    char room[4096];

    if (getpwuid_r(uid, &entry, room, sizeof room, &found) == 0 && found) {
        snprintf(ret_name, n, "%s", found->pw_name);
    } else {
        snprintf(ret_name, n, "uid-%u", (unsigned)uid);
    }
}

bool identity_uid(const char *user, uint32_t *ret_uid)
{
    struct passwd entry, *found = NULL;
    char room[4096], name[64];
    unsigned uid;

    if (getpwnam_r(user, &entry, room, sizeof room, &found) == 0 && found) {
        *ret_uid = (uint32_t)found->pw_uid;
        return true;
    }
    /* Only for an id without a name: "uid-0" from elsewhere is not root. */
    if (sscanf(user, "uid-%u", &uid) != 1) {
        return false;
    }
    name_of_uid((uid_t)uid, name, sizeof name);
    *ret_uid = uid;
    return strcmp(name, user) == 0;
}

static void by_kernel(struct peer *peer)
{
    const struct settings *settings = peer->daemon->settings;
    bool is_ours = peer->who.uid == 0 || peer->who.uid == geteuid();

    name_of_uid(peer->who.uid, peer->user, sizeof peer->user);
    peer->is_operator = is_ours || is_listed(&settings->operators, peer->user);
    peer->is_listed_worker = is_ours || is_listed(&settings->workers, peer->user);
}

static void by_certificate(struct peer *peer)
{
    const struct settings *settings = peer->daemon->settings;

    snprintf(peer->user, sizeof peer->user, "%.63s", peer->who.certificate);
    peer->is_operator = is_listed(&settings->operators, peer->user);
    peer->is_listed_worker = is_listed(&settings->workers, peer->user);
}

static int by_token(struct peer *peer, const char *token, struct gems_error *err)
{
    const char *path = peer->daemon->settings->tokens;
    enum token_role role;
    int status;

    if (!token[0]) {
        gems_error_set(err, GEMS_E_DENIED, "a token or a client certificate is needed over TCP");
        gems_error_hint(err, "gemsd --new-token NAME ROLE makes a token");
        return GEMS_E_DENIED;
    }
    if (!path || !path[0]) {
        return gems_error_set(err, GEMS_E_DENIED, "this gemsd takes no tokens");
    }
    status = tokens_find(path, token, &role, peer->user, err);
    if (status < 0 && status != GEMS_E_DENIED) {
        log_error("tokens: nobody comes in by a token: %s", err->text);
        return gems_error_set(err, GEMS_E_DENIED, "unknown token"); /* no word about our files */
    }
    if (status < 0) {
        return status;
    }
    peer->is_operator = role == TOKEN_OPERATOR;
    peer->is_listed_worker = role == TOKEN_WORKER;
    peer->is_viewer = role == TOKEN_VIEWER;
    return GEMS_OK;
}

/* A rank proves itself by the token of its attempt, here and again in Join. */
static int by_rank_token(struct peer *peer, const char *token, struct gems_error *err)
{
    bool is_found = false;

    list_each(&peer->daemon->jobs, link)
    {
        struct job *job = list_item(link, struct job, link);

        if (job->attempt && strlen(token) == 64) {
            is_found |= hash_equal(job->attempt->token, token, 64);
        }
    }
    snprintf(peer->user, sizeof peer->user, "rank");
    return is_found ? GEMS_OK
                    : gems_error_set(err, GEMS_E_DENIED,
                                     "the attempt of this rank is over, or never was");
}

static int read_role(const char *name, enum role *ret_role, struct gems_error *err)
{
    static const char *const names[] = {
        [ROLE_CLIENT] = "client", [ROLE_WORKER] = "worker", [ROLE_RANK] = "rank"
    };

    for (int i = ROLE_CLIENT; i <= ROLE_RANK; i++) {
        if (!strcmp(name, names[i])) {
            *ret_role = (enum role)i;
            return GEMS_OK;
        }
    }
    return gems_error_set(err, GEMS_E_INVALID, "hello: unknown role \"%.32s\"", name);
}

int identity_check(struct peer *peer, const Gems__Hello *hello, struct gems_error *err)
{
    enum role role = ROLE_NONE;
    int status;

    if (hello->protocol != PROTO_VERSION) {
        gems_error_set(err, GEMS_E_UNSUPPORTED,
                       "hello: protocol %u of gems %.32s, this gemsd speaks %d", hello->protocol,
                       hello->version, PROTO_VERSION);
        gems_error_hint(err, "use the same gems version on all machines");
        return GEMS_E_UNSUPPORTED;
    }
    status = read_role(hello->role, &role, err);
    if (status < 0) {
        return status;
    }
    if (role == ROLE_RANK) {
        status = by_rank_token(peer, hello->token, err);
    } else if (peer->who.is_unix) {
        by_kernel(peer);
    } else if (peer->who.certificate[0]) {
        by_certificate(peer);
    } else {
        status = by_token(peer, hello->token, err);
    }
    if (status < 0) {
        return status;
    }
    if (role == ROLE_WORKER && !peer->is_listed_worker) {
        gems_error_set(err, GEMS_E_DENIED, "%s may not bring nodes", peer->user);
        gems_error_hint(
            err,
            "list the user under workers in the configuration of gemsd, or use a worker's token");
        return GEMS_E_DENIED;
    }
    if (role == ROLE_CLIENT && peer->is_listed_worker && !peer->who.is_unix && !peer->is_operator) {
        return gems_error_set(err, GEMS_E_DENIED, "%s is a worker and no client", peer->user);
    }
    peer->role = role;
    return GEMS_OK;
}
