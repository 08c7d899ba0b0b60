#include "worker/backend/host.h"

#include <string.h>
#include <sys/mman.h>

#include "common/error.h"

enum { HUGE_BYTES = 2 << 20, PAGE_BYTES = 4096 };

/* What a record returns: there is nothing to remember about a finished queue. */
struct be_event {
    char unused;
};
static struct be_event event_done_at_once;

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Maps one huge page more than asked for and gives back what lies before the
 * first and after the last aligned byte. */
int host_alloc(struct be_device *dev, uint64_t bytes, void **ret_memory, struct gems_error *err)
{
    uint64_t size = round_up(bytes ? bytes : 1, PAGE_BYTES);
    uint64_t slack = size >= HUGE_BYTES ? HUGE_BYTES : 0;
    char *map, *start;

    (void)dev;
    if (bytes > UINT64_MAX / 2) {
        return gems_error_set(err, GEMS_E_NOMEM, "device memory: %llu bytes are too many",
                              (unsigned long long)bytes);
    }
    map = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return gems_error_set(err, GEMS_E_NOMEM, "device memory: the system refuses %llu MiB",
                              (unsigned long long)(size >> 20));
    }
    start = map;
    if (slack) {
        start = (char *)round_up((uintptr_t)map, HUGE_BYTES);
        if (start > map) {
            munmap(map, (size_t)(start - map));
        }
        if (map + slack > start) {
            munmap(start + size, (size_t)(map + slack - start));
        }
        /* Advice only: without huge pages it is slower, not wrong. */
        (void)madvise(start, size, MADV_HUGEPAGE);
    }
    memset(start, 0, size);
    *ret_memory = start;
    return GEMS_OK;
}

void host_free(struct be_device *dev, void *memory, uint64_t bytes)
{
    (void)dev;
    if (memory) {
        munmap(memory, round_up(bytes ? bytes : 1, PAGE_BYTES));
    }
}

int host_copy_in(struct be_device *dev, void *to, const void *from_host, uint64_t bytes,
                 struct gems_error *err)
{
    (void)dev;
    (void)err;
    memcpy(to, from_host, bytes);
    return GEMS_OK;
}

int host_copy_out(struct be_device *dev, void *to_host, const void *from, uint64_t bytes,
                  struct gems_error *err)
{
    (void)dev;
    (void)err;
    memcpy(to_host, from, bytes);
    return GEMS_OK;
}

int host_event_record(struct be_device *dev, struct be_event **ret_event, struct gems_error *err)
{
    (void)dev;
    (void)err;
    *ret_event = &event_done_at_once;
    return GEMS_OK;
}

bool host_event_done(struct be_event *event)
{
    (void)event;
    return true;
}

int host_event_wait(struct be_event *event, struct gems_error *err)
{
    (void)event;
    (void)err;
    return GEMS_OK;
}

void host_event_release(struct be_event *event)
{
    (void)event;
}
