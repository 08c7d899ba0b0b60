/* A plan without gemsd: for devices that are given on the command line. */
#ifndef GEMS_CLIENT_OFFLINE_H
#define GEMS_CLIENT_OFFLINE_H

#include "plan/plan.h"

enum { OFFLINE_MAX_DEVICES = 256 };

/* "4x16GiB,2x40GiB" or "16GiB". All count as one node. GEMS_E_INVALID. */
int offline_devices(const char *text, enum device_kind kind, struct plan_device *ret_devices,
                    uint32_t *ret_n, struct gems_error *err);

/* Facts come from gems-inspect on this machine. spec is settled on return;
 * offline_fini frees what *ret_offline holds. If the data set is not to be found
 * here, whole batches are assumed and is_blind is set. */
struct offline {
    struct graph graph;
    struct fact_set facts;
    struct plan plan;
    bool is_blind;
    char why_blind[512]; /* what was wrong with the data set */
};
int offline_plan(struct job_spec *spec, const struct plan_device *devices, uint32_t n_devices,
                 struct offline *ret_offline, struct gems_error *err);
void offline_fini(struct offline *offline);

#endif
