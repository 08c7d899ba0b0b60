/* A plan as JSON (INTERFACE.md) and as text. */
#ifndef GEMS_CLIENT_PLANVIEW_H
#define GEMS_CLIENT_PLANVIEW_H

#include <jansson.h>

#include "plan/plan.h"

json_t *planview_json(const struct plan *plan);
void planview_print(const struct plan *plan);

#endif
