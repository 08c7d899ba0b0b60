/* Built-in networks. Each zoo_*.c builds one family, unfused. */
#ifndef GEMS_MODEL_ZOO_H
#define GEMS_MODEL_ZOO_H

#include "model/graph.h"

enum { ZOO_MAX_HIDDEN = 16 };

struct zoo_spec {
    char zoo[32];     /* "resnet", "mlp", "lenet", ... */
    uint32_t version; /* resnet: 1 or 2 */
    uint32_t depth;
    uint32_t layers, filters;                  /* amoebanet-d */
    uint32_t n_hidden, hidden[ZOO_MAX_HIDDEN]; /* mlp */
    uint32_t classes;
    uint32_t channels, height, width;
};

/* Builds the graph named by the spec. GEMS_E_INVALID names the key that is
 * wrong and what would be right (depth 21: "resnet version 1 has depth 6n+2:
 * 20 or 26"); GEMS_E_UNSUPPORTED ("not in this version") for a known name of a
 * later version; the error for an unknown name lists the known ones. */
int zoo_build(const struct zoo_spec *spec, struct graph *ret_graph, struct gems_error *err);

/* Names for messages and --help, separated by ", ". */
const char *zoo_names(void);

#endif
