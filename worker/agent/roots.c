#include "worker/agent/roots.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"

static bool is_under(const char *path, const char *root)
{
    size_t n = strlen(root);

    /* "/" is the only root that ends with its slash. */
    return strncmp(path, root, n) == 0 && (path[n] == '\0' || path[n] == '/' || root[n - 1] == '/');
}

/* A path that is not there may still name files, such as the prefix of an idx
 * pair: the part of it that is there counts. False: there is no such part, or
 * what follows it could lead out of it again. */
static bool resolve(const char *path, char ret_real[PATH_MAX])
{
    char part[PATH_MAX];
    char *slash;

    if (path[0] != '/' || strlen(path) >= sizeof part) {
        return false;
    }
    strcpy(part, path);
    while (!realpath(part, ret_real)) {
        slash = strrchr(part, '/');
        if (errno != ENOENT || strcmp(slash, "/..") == 0) {
            return false;
        }
        slash[slash == part] = '\0';
    }
    return true;
}

static bool is_allowed(const struct conf_list *roots, const char *path)
{
    char real[PATH_MAX], root[PATH_MAX];

    if (!resolve(path, real)) {
        return false;
    }
    for (size_t i = 0; i < roots->n; i++) {
        if (realpath(roots->items[i], root) && is_under(real, root)) {
            return true;
        }
    }
    return false;
}

static int deny_stranger(const struct submitter *who, const char *path, struct gems_error *err)
{
    char name[32] = "nobody of this node";

    if (who->has_uid) {
        snprintf(name, sizeof name, "uid %u", who->uid);
    }
    gems_error_set(
        err, GEMS_E_DENIED,
        "data %.300s: submitted by %s, and gems-worker runs as uid %u without data_roots", path,
        name, (unsigned)geteuid());
    gems_error_hint(err, "set data_roots in gems-worker.conf");
    return GEMS_E_DENIED;
}

int roots_check(const struct conf_list *roots, const struct submitter *who, const char *path,
                struct gems_error *err)
{
    char list[160] = "";
    size_t n = 0;

    if (roots->n == 0) {
        return who->has_uid && who->uid == geteuid() ? 0 : deny_stranger(who, path, err);
    }
    if (is_allowed(roots, path)) {
        return 0;
    }
    for (size_t i = 0; i < roots->n && n < sizeof list; i++) {
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", roots->items[i]);
    }
    gems_error_set(err, GEMS_E_DENIED, "data %.300s: not under the data_roots of this node: %s",
                   path, list);
    gems_error_hint(err, "move the data there, or set data_roots in gems-worker.conf");
    return GEMS_E_DENIED;
}
