/* Device memory and events of back ends that compute on the host.
 *
 * Memory is mapped, never taken from malloc: huge pages where the kernel has
 * them, because first touch in 4 KiB pages costs many times more, and every
 * page is written once so that no step pays for it. Events are done at once.
 *
 * Thread: any; regions share nothing.
 */
#ifndef GEMS_WORKER_BACKEND_HOST_H
#define GEMS_WORKER_BACKEND_HOST_H

#include "worker/backend/backend.h"

int host_alloc(struct be_device *dev, uint64_t bytes, void **ret_memory, struct gems_error *err);
void host_free(struct be_device *dev, void *memory, uint64_t bytes);
int host_copy_in(struct be_device *dev, void *to, const void *from_host, uint64_t bytes,
                 struct gems_error *err);
int host_copy_out(struct be_device *dev, void *to_host, const void *from, uint64_t bytes,
                  struct gems_error *err);
int host_event_record(struct be_device *dev, struct be_event **ret_event, struct gems_error *err);
bool host_event_done(struct be_event *event);
int host_event_wait(struct be_event *event, struct gems_error *err);
void host_event_release(struct be_event *event);

#endif
