/* Who a peer is: from the kernel, a certificate or a token. */
#ifndef GEMS_DAEMON_IDENTITY_H
#define GEMS_DAEMON_IDENTITY_H

#include "daemon/server.h"

/* Fills in role, user and rights of a peer from its Hello. GEMS_E_DENIED,
 * GEMS_E_INVALID (unknown role), GEMS_E_UNSUPPORTED (other protocol). */
int identity_check(struct peer *peer, const Gems__Hello *hello, struct gems_error *err);

/* The id of a user of this machine; false: nobody here has that name. Whoever
 * comes over TCP is the local user of the same name, as for the owner of a job. */
bool identity_uid(const char *user, uint32_t *ret_uid);

#endif
