#include "worker/agent/devices.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/units.h"

enum { THREADS_MAX = 1024 };

uint32_t devices_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return (uint32_t)CPU_COUNT(&set);
    }
    return (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
}

uint64_t devices_available_memory(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    unsigned long long kib = 0;
    char line[128];

    while (file && kib == 0 && fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemAvailable: %llu kB", &kib) != 1) {
            kib = 0;
        }
    }
    if (file) {
        fclose(file);
    }
    return kib * 1024;
}

static int bad_item(const char *item, struct gems_error *err)
{
    gems_error_set(err, GEMS_E_INVALID, "devices: \"%.60s\" is not a device", item);
    gems_error_hint(err, "cpu:N or cpu:N:THREADS, such as cpu:2 or cpu:4:8");
    return GEMS_E_INVALID;
}

/* One item of the list; threads stay 0 where none are given. */
static int add_item(struct devices *devices, const char *item, struct gems_error *err)
{
    char text[64], *kind, *count, *threads, *rest = NULL;
    uint64_t n, n_threads = 0, first = 0;

    snprintf(text, sizeof text, "%s", item);
    kind = strtok_r(text, ":", &rest);
    count = strtok_r(NULL, ":", &rest);
    threads = strtok_r(NULL, ":", &rest);
    if (kind && strcmp(kind, "cuda") == 0) {
        return gems_error_set(err, GEMS_E_UNSUPPORTED, "devices: cuda is not in this version");
    }
    if (!kind || !count || strlen(item) >= sizeof text || strtok_r(NULL, ":", &rest) ||
        (strcmp(kind, "cpu") != 0 && strcmp(kind, "ref") != 0) || parse_u64(count, &n, NULL) < 0 ||
        n == 0 ||
        (threads &&
         (parse_u64(threads, &n_threads, NULL) < 0 || n_threads == 0 || n_threads > THREADS_MAX))) {
        return bad_item(item, err);
    }
    if (n > DEVICES_MAX - devices->n) {
        return gems_error_set(err, GEMS_E_INVALID, "devices: more than %d", DEVICES_MAX);
    }
    for (uint32_t i = 0; i < devices->n; i++) {
        first += strcmp(devices->items[i].kind, kind) == 0;
    }
    for (uint64_t i = 0; i < n; i++) {
        struct agent_device *device = &devices->items[devices->n++];

        snprintf(device->kind, sizeof device->kind, "%s", kind);
        snprintf(device->id, sizeof device->id, "%.7s:%u", kind, (unsigned)(first + i));
        device->threads = (uint32_t)n_threads;
    }
    return 0;
}

int devices_parse(const struct conf_list *list, uint64_t memory_bytes, struct devices *ret_devices,
                  struct gems_error *err)
{
    uint32_t share;

    ret_devices->n = 0;
    for (size_t i = 0; i < list->n; i++) {
        int status = add_item(ret_devices, list->items[i], err);

        if (status < 0) {
            return status;
        }
    }
    if (ret_devices->n == 0) {
        return gems_error_set(err, GEMS_E_INVALID, "devices: none given");
    }
    share = devices_cores() / ret_devices->n;
    if (memory_bytes == 0) {
        memory_bytes = devices_available_memory() / ret_devices->n;
    }
    for (uint32_t i = 0; i < ret_devices->n; i++) {
        struct agent_device *device = &ret_devices->items[i];

        device->memory_bytes = memory_bytes;
        if (device->threads == 0) {
            device->threads = share > 0 ? share : 1;
        }
    }
    return 0;
}

const struct agent_device *devices_find(const struct devices *devices, const char *id)
{
    for (uint32_t i = 0; i < devices->n; i++) {
        if (strcmp(devices->items[i].id, id) == 0) {
            return &devices->items[i];
        }
    }
    return NULL;
}
