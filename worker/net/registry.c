#include "config.h"

#include <string.h>

#include "common/error.h"
#include "worker/net/net.h"

static const struct net_ops *const nets[] = {
    &net_local,
#ifdef HAVE_UCX
    &net_ucx,
#endif
};

enum { N_NETS = sizeof nets / sizeof nets[0] };

const struct net_ops *net_find(const char *name, struct gems_error *err)
{
    char list[128] = "";

    for (size_t i = 0; i < N_NETS; i++) {
        size_t used = strlen(list);

        if (strcmp(nets[i]->name, name) == 0) {
            return nets[i];
        }
        if (used > 0) {
            strncat(list, ", ", sizeof list - used - 1);
        }
        strncat(list, nets[i]->name, sizeof list - strlen(list) - 1);
    }
    gems_error_set(err, GEMS_E_UNSUPPORTED, "transport \"%s\" is not in this build", name);
    gems_error_hint(err, "this build has: %s", list);
    return NULL;
}
