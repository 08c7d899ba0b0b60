/* The tables that registry.c lists. */
#ifndef GEMS_WORKER_BACKEND_BACKENDS_H
#define GEMS_WORKER_BACKEND_BACKENDS_H

#include "worker/backend/backend.h"

extern const struct backend backend_ref;
extern const struct backend backend_cpu; /* with oneDNN only */

#endif
