/* What a planner must know of back ends and data sets before it plans.
 *
 * gemsd, agent and client link no back end and read no data set: the program
 * gems-inspect does, in a process of its own with limits. One request on its
 * standard input, one reply on its standard output, each a little-endian u32
 * of bytes and a message (InspectRequest, InspectReply).
 *
 * Thread: any, one at a time.
 */
#ifndef GEMS_WORKER_INSPECT_INSPECT_H
#define GEMS_WORKER_INSPECT_INSPECT_H

#include "plan/plan.h"
#include "proto/gems.pb-c.h"
#include "worker/backend/backend.h"

enum { INSPECT_MAX_REQUEST = 1 << 16, INSPECT_MAX_REPLY = 64 << 20 };

/* Exact bytes of every node for training and evaluation with batches of
 * `batch` samples. Times stay zero: the planner estimates them. Operators of
 * equal shape are asked for once. ret_facts is owned by the caller
 * (facts_fini). */
int inspect_facts(const struct graph *graph, uint32_t batch, const struct backend *backend,
                  struct be_device *device, struct facts *ret_facts, struct gems_error *err);

/* Runs every operator of facts made by inspect_facts a few times on the device
 * and fills in the seconds (the median). Generates code, takes memory. */
int inspect_measure(const struct graph *graph, const struct backend *backend,
                    struct be_device *device, struct facts *facts, struct gems_error *err);

/* Samples of a job's data sets, opened and their first sample decoded. */
int inspect_data(const struct job_spec *spec, uint64_t *ret_n_train, uint64_t *ret_n_eval,
                 struct gems_error *err);

/* All of it, as one request asks. ret_kind: kind of device, borrowed. */
int inspect_request(const Gems__InspectRequest *request, bool is_measured,
                    struct fact_set *ret_facts, const char **ret_kind, struct gems_error *err);

#endif
