/* The back ends of this build. The only file that asks which libraries there
 * were at configure time. */
#include "config.h"

#include "worker/backend/backend.h"

#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "worker/backend/backends.h"

static const struct backend *const backends[] = {
    &backend_ref,
#ifdef HAVE_ONEDNN
    &backend_cpu,
#endif
};
enum { N_BACKENDS = sizeof backends / sizeof backends[0] };

const struct backend *backend_at(uint32_t i)
{
    return i < N_BACKENDS ? backends[i] : NULL;
}

const struct backend *backend_find(const char *name, struct gems_error *err)
{
    char known[128] = "";

    for (uint32_t i = 0; i < N_BACKENDS; i++) {
        size_t n = strlen(known);

        if (strcmp(backends[i]->name, name) == 0) {
            return backends[i];
        }
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", backends[i]->name);
    }
    gems_error_set(err, GEMS_E_UNSUPPORTED, "back end \"%.32s\": not in this build", name);
    gems_error_hint(err, "this build has: %s", known);
    return NULL;
}
