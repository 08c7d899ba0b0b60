/* What a rank inherits from the agent that starts it: one message in an open
 * descriptor (proto LaunchInfo), because it holds the attempt's secret. */
#ifndef GEMS_WORKER_RANK_INHERIT_H
#define GEMS_WORKER_RANK_INHERIT_H

#include <stdint.h>

#include "proto/gems.pb-c.h"

struct gems_error;

#define INHERIT_VARIABLE "GEMS_LAUNCH_FD"

/* Reads the descriptor named by the environment to its end and closes it; the
 * variable is removed. GEMS_E_INVALID names what is missing. Free with
 * gems__launch_info__free_unpacked. */
int inherit_read(Gems__LaunchInfo **ret_info, struct gems_error *err);

/* Index in a device's name: 1 of "cpu:1". GEMS_E_INVALID. */
int inherit_device_index(const char *device, uint32_t *ret_index, struct gems_error *err);

#endif
