/* Questions about a job that take a while: what would its numbers be, does it
 * run on these devices, and how.
 *
 * Network and settled spec are made in the planner's thread; bytes and seconds
 * of the operators, and what the data set holds, come from gems-inspect on a
 * node (its agent is asked); then the planner runs. Thread: the loop.
 */
#ifndef GEMS_DAEMON_INQUIRY_H
#define GEMS_DAEMON_INQUIRY_H

#include "common/error.h"
#include "daemon/jobs.h"
#include "plan/planner.h"

/* Devices of one kind that a job might use, in rank order. */
struct device_set {
    uint32_t n;
    struct store_rank *ranks;    /* owned */
    struct plan_device *devices; /* owned */
};
void device_set_fini(struct device_set *set);

/* How many devices a job wants: [ret_lo, ret_hi]. */
void devices_wanted(const struct job_spec *spec, uint32_t *ret_lo, uint32_t *ret_hi);

/* Picks up to hi devices of one kind: the kind of which most are there. is_free:
 * only what is free on usable nodes; else everything registered. False if
 * there are less than lo; *ret_most says how many there are. */
bool devices_pick(struct daemon *daemon, const struct job_spec *spec, uint32_t lo, uint32_t hi,
                  bool is_free, struct device_set *ret_set, uint32_t *ret_most);

/* What the planner has to know of a device that is in a set already. */
void devices_describe(struct daemon *daemon, const struct store_rank *rank,
                      struct plan_device *ret_device);

struct inquiry;
typedef void inquiry_fn(struct inquiry *inquiry);

struct inquiry {
    struct daemon *daemon;
    struct job_spec spec; /* settled after the first part */
    struct graph graph;
    bool has_uid; /* of the user who asks, on this machine */
    uint32_t uid;
    struct device_set set; /* empty: all registered are looked at */
    uint32_t lo, hi;
    struct fact_set facts;
    /* Results. */
    int status; /* of the part that failed */
    enum inquiry_part {
        INQUIRY_SETTLE,
        INQUIRY_DEVICES,
        INQUIRY_INSPECT,
        INQUIRY_PLAN,
        INQUIRY_DONE
    } part;
    struct plan plan; /* INQUIRY_DONE; may say that it does not fit */
    struct gems_error err;
    inquiry_fn *done;
    void *arg;
};

/* user: whose data it is about. set is taken; may be NULL. done gets it once and must call
 * inquiry_free, also when gemsd stops (status GEMS_E_CANCELLED then). NULL with err. */
struct inquiry *inquiry_start(struct daemon *daemon, const struct job_spec *spec, const char *user,
                              struct device_set *set, inquiry_fn *done, void *arg,
                              struct gems_error *err);
void inquiry_free(struct inquiry *inquiry);

#endif
