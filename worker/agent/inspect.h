/* gems-inspect as a child: one question on its input, one answer on its output. */
#ifndef GEMS_WORKER_AGENT_INSPECT_H
#define GEMS_WORKER_AGENT_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct agent;
struct gems_error;

/* Once: reply (InspectReply, packed), or NULL and why there is none. */
typedef void inspect_fn(void *arg, const uint8_t *reply, size_t n, const struct gems_error *err);

/* Starts; request is a packed InspectRequest. done is not called from inside.
 * GEMS_E_STATE: too many at once. */
int inspect_start(struct agent *agent, const uint8_t *request, size_t n, inspect_fn *done,
                  void *arg, struct gems_error *err);
/* Asks for the kind of the cpu devices (agent->kind_cpu), then calls ready; on
 * failure it logs why and the kind stays empty. */
void inspect_kind(struct agent *agent, void (*ready)(struct agent *agent));
/* A child ended; false: not one of these. */
bool inspect_reaped(struct agent *agent, pid_t pid);
/* Ends all; no done is called. */
void inspect_stop_all(struct agent *agent);

#endif
