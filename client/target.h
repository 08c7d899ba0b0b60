/* Which gemsd to talk to, and with what credentials. */
#ifndef GEMS_CLIENT_TARGET_H
#define GEMS_CLIENT_TARGET_H

#include "client/command.h"
#include "common/address.h"
#include "common/tls.h"

struct target {
    struct address address;
    char text[ADDRESS_TEXT_BYTES]; /* for messages */
    struct tls_settings tls;       /* borrowed from struct client */
    char *token;                   /* owned; "" without one */
};

/* --connect or GEMS_CONNECT as given, else the first socket of a local gemsd
 * that answers. GEMS_E_INVALID: malformed; GEMS_E_PEER: none found. */
int target_find(const struct client *client, struct target *ret_target, struct gems_error *err);
void target_fini(struct target *target); /* also of a zeroed one */

#endif
