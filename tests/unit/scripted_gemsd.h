/* A gemsd of a few lines for tests of the client: a thread that accepts
 * connections on a unix socket and answers as a script says. */
#ifndef GEMS_TESTS_SCRIPTED_GEMSD_H
#define GEMS_TESTS_SCRIPTED_GEMSD_H

#include <pthread.h>
#include <stdint.h>

#include "proto/gems.pb-c.h"
#include "proto/messages.h"

enum { SCRIPT_MAX = 16 };

/* What happens on one connection after hello, once a request has come. */
struct script_step {
    enum { STEP_SEND, STEP_CLOSE, STEP_SILENCE, STEP_GARBAGE, STEP_INTERRUPT } what;
    enum msg_type type;
    uint16_t flags;
    const ProtobufCMessage *message;
};

struct scripted_gemsd {
    char path[64];
    char connect[80];
    int fd;
    pthread_t thread;
    uint32_t n_connections;
    struct script_step steps[SCRIPT_MAX][SCRIPT_MAX]; /* by connection; ends with STEP_CLOSE */
    uint16_t requests[SCRIPT_MAX];                    /* type asked for on each */
};

/* Starts with the steps filled in; connections beyond n_connections are refused. */
void scripted_start(struct scripted_gemsd *gemsd);
void scripted_stop(struct scripted_gemsd *gemsd);

#endif
