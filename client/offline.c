#include "client/offline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/inspect.h"
#include "common/error.h"
#include "common/units.h"
#include "model/passes.h"
#include "plan/planner.h"
#include "proto/codec.h"
#include "proto/messages.h"

static uint32_t threads_of(uint32_t n_devices)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t threads = cores > 0 ? (uint32_t)cores / n_devices : 1;

    return threads > 0 ? threads : 1;
}

/* One group: "4x16GiB" or "16GiB". */
static bool parse_group(const char *text, uint64_t *ret_n, uint64_t *ret_bytes)
{
    const char *x = strchr(text, 'x');
    char count[16];

    *ret_n = 1;
    if (x) {
        if (x == text || (size_t)(x - text) >= sizeof count) {
            return false;
        }
        snprintf(count, sizeof count, "%.*s", (int)(x - text), text);
        if (parse_u64(count, ret_n, NULL) < 0) {
            return false;
        }
        text = x + 1;
    }
    /* A number alone is rather meant as a count than as bytes. */
    return text[strspn(text, "0123456789")] != '\0' &&
           parse_size(text, ret_bytes, NULL) == GEMS_OK && *ret_bytes > 0 && *ret_n > 0 &&
           *ret_n <= OFFLINE_MAX_DEVICES;
}

int offline_devices(const char *text, enum device_kind kind, struct plan_device *ret_devices,
                    uint32_t *ret_n, struct gems_error *err)
{
    char copy[256], *rest = copy, *group;
    uint32_t n = 0;

    if (strlen(text) >= sizeof copy) {
        return gems_error_set(err, GEMS_E_INVALID, "--devices: too long");
    }
    strcpy(copy, text);
    while ((group = strsep(&rest, ",")) != NULL) {
        uint64_t count, bytes;

        if (!parse_group(group, &count, &bytes) || n + count > OFFLINE_MAX_DEVICES) {
            gems_error_set(err, GEMS_E_INVALID, "--devices: '%.60s' is not a group of devices",
                           group);
            gems_error_hint(err,
                            "COUNTxMEMORY, such as 4x16GiB or 4x16GiB,2x40GiB; up to %d in all",
                            OFFLINE_MAX_DEVICES);
            return GEMS_E_INVALID;
        }
        for (; count > 0; count--) {
            ret_devices[n++] = (struct plan_device){ .kind = kind == DEVICE_ANY ? DEVICE_CPU : kind,
                                                     .memory_bytes = bytes,
                                                     .speed = 1 };
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        ret_devices[i].threads = threads_of(n);
    }
    *ret_n = n;
    return GEMS_OK;
}

static int ask_facts(const struct job_spec *spec, const struct plan_device *device, bool has_data,
                     struct fact_set *ret_facts, struct gems_error *err)
{
    Gems__InspectRequest request = GEMS__INSPECT_REQUEST__INIT;
    Gems__InspectReply *reply;
    int status;

    request.spec = spec_to_proto(spec);
    if (!request.spec) {
        return gems_error_set(err, GEMS_E_NOMEM, "plan: out of memory");
    }
    request.backend = device->kind == DEVICE_REF ? "ref" : "cpu";
    request.threads = device->threads;
    request.data = has_data;
    status = inspect_run(&request, &reply, err);
    msg_free(&request.spec->base);
    if (status < 0) {
        return status;
    }
    status = reply->facts ? facts_from_proto(reply->facts, ret_facts, err)
                          : gems_error_set(err, GEMS_E_PEER, "gems-inspect: a reply without facts");
    msg_free(&reply->base);
    return status;
}

/* With the data set if it is here; a plan is wanted all the same if not. */
static int find_facts(const struct job_spec *spec, const struct plan_device *device,
                      struct offline *offline, struct gems_error *err)
{
    int status = ask_facts(spec, device, true, &offline->facts, err);

    if (status == GEMS_E_DATA || status == GEMS_E_NOTFOUND || status == GEMS_E_DENIED) {
        offline->is_blind = true;
        snprintf(offline->why_blind, sizeof offline->why_blind, "%s", err->text);
        status = ask_facts(spec, device, false, &offline->facts, err);
    }
    return status;
}

/* As many of the devices as the job may use, where it does not say how many
 * stages; gemsd decides the same for its own. */
static int limit_devices(const struct job_spec *spec, uint32_t *n_devices, struct gems_error *err)
{
    const struct resource_spec *resources = &spec->resources;

    if (spec->parallel.stages || spec->parallel.n_balance) {
        return GEMS_OK;
    }
    if (resources->devices_min > *n_devices) {
        return gems_error_set(err, GEMS_E_NOFIT, "resources.devices: at least %u, there are %u",
                              resources->devices_min, *n_devices);
    }
    if (resources->devices_max && resources->devices_max < *n_devices) {
        *n_devices = resources->devices_max;
    }
    return GEMS_OK;
}

int offline_plan(struct job_spec *spec, const struct plan_device *devices, uint32_t n_devices,
                 struct offline *ret_offline, struct gems_error *err)
{
    struct plan_device *limited = calloc(n_devices, sizeof *limited);
    int status;

    memset(ret_offline, 0, sizeof *ret_offline);
    if (!limited) {
        return gems_error_set(err, GEMS_E_NOMEM, "plan: out of memory");
    }
    for (uint32_t i = 0; i < n_devices; i++) {
        limited[i] = devices[i];
        if (spec->resources.memory_bytes &&
            spec->resources.memory_bytes < limited[i].memory_bytes) {
            limited[i].memory_bytes = spec->resources.memory_bytes;
        }
    }
    status = limit_devices(spec, &n_devices, err);
    if (status == GEMS_OK) {
        status = zoo_build(&spec->model, &ret_offline->graph, err);
    }
    if (status == GEMS_OK) {
        status = graph_fuse(&ret_offline->graph, err);
    }
    if (status == GEMS_OK) {
        status = planner_settle(&ret_offline->graph, spec, err);
    }
    if (status == GEMS_OK) {
        status = find_facts(spec, &limited[0], ret_offline, err);
    }
    if (status == GEMS_OK) {
        status = planner_plan(&ret_offline->graph, spec, &ret_offline->facts, limited, n_devices,
                              &ret_offline->plan, err);
    }
    free(limited);
    if (status < 0) {
        offline_fini(ret_offline);
    }
    return status;
}

void offline_fini(struct offline *offline)
{
    plan_fini(&offline->plan);
    fact_set_fini(&offline->facts);
    graph_fini(&offline->graph);
    memset(offline, 0, sizeof *offline);
}
