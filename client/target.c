#include "client/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/error.h"
#include "common/fsutil.h"

enum { MAX_TOKEN_BYTES = 1024 };

/* Does somebody listen there? A socket file alone may be left from a kill. */
static bool is_answering(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_up;

    if (fd < 0) {
        return false;
    }
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    is_up = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return is_up;
}

static int find_local(struct address *ret_address, struct gems_error *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char own[ADDRESS_PATH_BYTES] = "";
    const char *const places[] = { own, "/run/gems/gemsd.sock" };

    if (runtime && runtime[0] == '/') {
        int n = snprintf(own, sizeof own, "%s/gems/gemsd.sock", runtime);

        if (n >= (int)sizeof own) {
            own[0] = '\0';
        }
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (places[i][0] && is_answering(places[i])) {
            *ret_address = (struct address){ .is_unix = true };
            snprintf(ret_address->path, sizeof ret_address->path, "%s", places[i]);
            return GEMS_OK;
        }
    }
    gems_error_set(err, GEMS_E_PEER, "gemsd: no answer at %s%s%s", own, own[0] ? " or " : "",
                   places[1]);
    gems_error_hint(err,
                    "--connect unix:PATH or tcp:HOST:PORT, or GEMS_CONNECT, names one elsewhere");
    return GEMS_E_PEER;
}

static int read_token(const char *file, char **ret_token, struct gems_error *err)
{
    struct buf buf = { 0 };
    int status = fs_read_secret(file, MAX_TOKEN_BYTES, &buf, err);
    char *token;

    if (status < 0) {
        buf_fini(&buf);
        return status;
    }
    token = buf_take(&buf);
    if (!token) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: out of memory", file);
    }
    token[strcspn(token, "\r\n")] = '\0';
    if (token[0] == '\0') {
        free(token);
        return gems_error_set(err, GEMS_E_INVALID, "%s: the token is empty", file);
    }
    *ret_token = token;
    return GEMS_OK;
}

int target_find(const struct client *client, struct target *ret_target, struct gems_error *err)
{
    struct target target = { 0 };
    int status = client->connect ? address_parse(client->connect, &target.address, err)
                                 : find_local(&target.address, err);

    if (status < 0) {
        return status;
    }
    address_format(&target.address, target.text);
    target.tls = (struct tls_settings){ .ca = client->tls_ca,
                                        .certificate = client->tls_cert,
                                        .key = client->tls_key };
    status = client->token_file ? read_token(client->token_file, &target.token, err) : GEMS_OK;
    if (status == GEMS_OK && !target.token && !(target.token = strdup(""))) {
        status = gems_error_set(err, GEMS_E_NOMEM, "connection: out of memory");
    }
    if (status == GEMS_OK) {
        *ret_target = target;
    }
    return status;
}

void target_fini(struct target *target)
{
    free(target->token);
    target->token = NULL;
}
