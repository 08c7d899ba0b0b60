/* What a node offers: "cpu:N[:THREADS]" becomes cpu:0 .. cpu:N-1. */
#ifndef GEMS_WORKER_AGENT_DEVICES_H
#define GEMS_WORKER_AGENT_DEVICES_H

#include <stddef.h>
#include <stdint.h>

#include "common/conf.h"

struct gems_error;

enum { DEVICES_MAX = 256 };

struct agent_device {
    char id[24];  /* "cpu:0" */
    char kind[8]; /* "cpu", "ref" */
    uint32_t threads;
    uint64_t memory_bytes;
};

struct devices {
    struct agent_device items[DEVICES_MAX];
    uint32_t n;
};

/* Processors that this process may run on. */
uint32_t devices_cores(void);
/* Memory that can be used without swapping; 0: not known. */
uint64_t devices_available_memory(void);

/* Threads of a device default to max(1, cores / devices); memory_bytes 0: its
 * share of what is available. GEMS_E_INVALID says what a list looks like. */
int devices_parse(const struct conf_list *list, uint64_t memory_bytes, struct devices *ret_devices,
                  struct gems_error *err);
/* NULL: no such device. */
const struct agent_device *devices_find(const struct devices *devices, const char *id);

#endif
