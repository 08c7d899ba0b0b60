/* One sentence about a plan: what would make it fit, or a remark. */
#ifndef GEMS_PLAN_ADVICE_H
#define GEMS_PLAN_ADVICE_H

#include "plan/make.h"

/* Writes plan->advice. input is what the plan was made from; more devices are
 * taken to be like the smallest given one. Trials that fail are left out. */
void advice_write(const struct make_input *input, uint32_t n_devices, struct plan *plan);

/* "3.2 GiB", for messages. */
void advice_bytes(uint64_t bytes, char *ret_text, size_t size);

#endif
