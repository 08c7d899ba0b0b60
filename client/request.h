/* Requests about one job that are answered by Ok: cancel, pause, ... */
#ifndef GEMS_CLIENT_REQUEST_H
#define GEMS_CLIENT_REQUEST_H

#include "client/call.h"

/* Operand 0 is the job. Says what was done, in --json {"job":ID}. */
int request_job(const struct client *client, const struct args *args, enum msg_type type,
                const char *done, struct gems_error *err);

#endif
