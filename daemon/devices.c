/* Which devices a job might use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/inquiry.h"
#include "daemon/nodes.h"
#include "plan/sched.h"

void device_set_fini(struct device_set *set)
{
    free(set->ranks);
    free(set->devices);
    memset(set, 0, sizeof *set);
}

void devices_wanted(const struct job_spec *spec, uint32_t *ret_lo, uint32_t *ret_hi)
{
    const struct parallel_spec *parallel = &spec->parallel;
    const struct schedule *schedule = schedule_find(parallel->schedule);
    uint32_t chunks = schedule ? schedule_chunks(schedule, parallel) : 1;
    uint32_t stages = parallel->stages ? parallel->stages : parallel->n_balance / chunks;
    uint32_t groups = parallel->groups ? parallel->groups : 1;

    if (parallel->schedule == SCHEDULE_SINGLE) {
        stages = 1;
    }
    if (stages) {
        *ret_lo = *ret_hi = stages * groups;
    } else {
        *ret_lo = spec->resources.devices_min ? spec->resources.devices_min : groups;
        *ret_hi =
            spec->resources.devices_max ? spec->resources.devices_max : SPEC_MAX_STAGES * groups;
    }
}

static bool is_ref(const struct job_spec *spec)
{
    return spec->resources.kind == DEVICE_REF || spec->train.precision == PRECISION_F64;
}

/* The back end for a device; NULL: the job may not use it. */
static const char *backend_for(const struct job_spec *spec, const char *kind)
{
    if (is_ref(spec)) {
        return !strcmp(kind, "cpu") || !strcmp(kind, "ref") ? "ref" : NULL;
    }
    switch (spec->resources.kind) {
    case DEVICE_CPU:
        return !strcmp(kind, "cpu") ? "cpu" : NULL;
    case DEVICE_CUDA:
        return !strcmp(kind, "cuda") ? "cuda" : NULL;
    default:
        return kind;
    }
}

static enum device_kind kind_of_backend(const char *backend)
{
    return !strcmp(backend, "cuda")  ? DEVICE_CUDA
           : !strcmp(backend, "cpu") ? DEVICE_CPU
                                     : DEVICE_REF;
}

static bool is_candidate(const struct cluster_node *node, const struct device *device, bool is_free)
{
    return is_free ? node_is_usable(node) && device->job == 0 : node->peer && !node->is_drained;
}

/* Bits depend on the back end and the threads of a device: one kind only. */
struct kind {
    const char *backend;
    uint32_t threads, n;
};

static uint32_t count_kinds(struct daemon *daemon, const struct job_spec *spec, bool is_free,
                            struct kind *kinds, uint32_t max)
{
    uint32_t n = 0;

    list_each(&daemon->nodes, link)
    {
        const struct cluster_node *node = list_item(link, struct cluster_node, link);

        for (uint32_t i = 0; i < node->n_devices; i++) {
            const struct device *device = &node->devices[i];
            const char *backend = backend_for(spec, device->kind);
            uint32_t k = 0;

            if (!backend || !is_candidate(node, device, is_free)) {
                continue;
            }
            while (k < n && (kinds[k].threads != device->threads ||
                             strcmp(kinds[k].backend, backend) != 0)) {
                k++;
            }
            if (k == n && n < max) {
                kinds[n++] = (struct kind){ backend, device->threads, 0 };
            }
            if (k < n) {
                kinds[k].n++;
            }
        }
    }
    return n;
}

static uint32_t count_on(const struct cluster_node *node, const struct job_spec *spec,
                         const struct kind *kind, bool is_free)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < node->n_devices; i++) {
        const struct device *device = &node->devices[i];
        const char *backend = backend_for(spec, device->kind);

        n += backend && !strcmp(backend, kind->backend) && device->threads == kind->threads &&
             is_candidate(node, device, is_free);
    }
    return n;
}

static void take_from(struct daemon *daemon, const struct cluster_node *node,
                      const struct job_spec *spec, const struct kind *kind, bool is_free,
                      uint32_t max, struct device_set *set)
{
    for (uint32_t i = 0; i < node->n_devices && set->n < max; i++) {
        const struct device *device = &node->devices[i];
        const char *backend = backend_for(spec, device->kind);
        uint64_t limit = spec->resources.memory_bytes;
        struct store_rank *rank = &set->ranks[set->n];

        if (!backend || strcmp(backend, kind->backend) != 0 || device->threads != kind->threads ||
            !is_candidate(node, device, is_free)) {
            continue;
        }
        snprintf(rank->node, sizeof rank->node, "%s", node->name);
        snprintf(rank->device, sizeof rank->device, "%s", device->id);
        snprintf(rank->backend, sizeof rank->backend, "%s", backend);
        rank->threads = device->threads;
        rank->memory_bytes = limit && limit < device->memory_bytes ? limit : device->memory_bytes;
        devices_describe(daemon, rank, &set->devices[set->n]);
        set->n++;
    }
}

void devices_describe(struct daemon *daemon, const struct store_rank *rank,
                      struct plan_device *ret_device)
{
    uint32_t node_i = 0;

    list_each(&daemon->nodes, link)
    {
        if (!strcmp(list_item(link, struct cluster_node, link)->name, rank->node)) {
            break;
        }
        node_i++;
    }
    *ret_device = (struct plan_device){ .kind = kind_of_backend(rank->backend),
                                        .memory_bytes = rank->memory_bytes,
                                        .speed = 1,
                                        .node = node_i,
                                        .threads = rank->threads };
}

/* Few nodes: those with most devices of the kind first. */
static bool fill_set(struct daemon *daemon, const struct job_spec *spec, const struct kind *kind,
                     bool is_free, uint32_t max, struct device_set *set)
{
    uint32_t n_nodes = (uint32_t)list_count(&daemon->nodes);
    bool *is_used = calloc(n_nodes + 1, sizeof *is_used);

    set->ranks = calloc(max, sizeof *set->ranks);
    set->devices = calloc(max, sizeof *set->devices);
    while (is_used && set->ranks && set->devices && set->n < max) {
        const struct cluster_node *best = NULL;
        uint32_t i = 0, best_i = 0, best_n = 0;

        list_each(&daemon->nodes, link)
        {
            const struct cluster_node *node = list_item(link, struct cluster_node, link);
            uint32_t n = is_used[i] ? 0 : count_on(node, spec, kind, is_free);

            if (n > best_n) {
                best = node;
                best_i = i;
                best_n = n;
            }
            i++;
        }
        if (!best) {
            break;
        }
        is_used[best_i] = true;
        take_from(daemon, best, spec, kind, is_free, max, set);
    }
    free(is_used);
    return set->n == max;
}

bool devices_pick(struct daemon *daemon, const struct job_spec *spec, uint32_t lo, uint32_t hi,
                  bool is_free, struct device_set *ret_set, uint32_t *ret_most)
{
    struct kind kinds[64];
    uint32_t n = count_kinds(daemon, spec, is_free, kinds, 64), best = 0;
    struct device_set set = { 0 };

    for (uint32_t k = 1; k < n; k++) {
        bool is_better = kind_of_backend(kinds[k].backend) > kind_of_backend(kinds[best].backend);
        bool is_enough = kinds[k].n >= lo, was_enough = kinds[best].n >= lo;

        if (is_enough != was_enough ? is_enough
                                    : (is_better || (kinds[k].n > kinds[best].n &&
                                                     kind_of_backend(kinds[k].backend) ==
                                                         kind_of_backend(kinds[best].backend)))) {
            best = k;
        }
    }
    *ret_most = n ? kinds[best].n : 0;
    if (*ret_most < lo || *ret_most == 0) {
        return false;
    }
    hi = hi < *ret_most ? hi : *ret_most;
    if (!fill_set(daemon, spec, &kinds[best], is_free, hi, &set)) {
        device_set_fini(&set);
        return false;
    }
    *ret_set = set;
    return true;
}
