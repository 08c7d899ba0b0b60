#include "tests/lib/loop.h"

#include <event2/event.h>
#include <stdint.h>

enum { LOOP_LIMIT_US = 20000000 };

static void on_time(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    *(bool *)arg = true;
}

/* A timer keeps the loop alive while it has nothing else to wait for. */
static bool run(struct event_base *base, const bool *is_done, int64_t limit_us)
{
    struct timeval limit = { limit_us / 1000000, limit_us % 1000000 };
    bool is_late = false;
    struct event *timer = event_new(base, -1, 0, on_time, &is_late);

    event_add(timer, &limit);
    while (!is_late && !(is_done && *is_done)) {
        event_base_loop(base, EVLOOP_ONCE);
    }
    event_free(timer);
    return !is_late;
}

bool loop_until(struct event_base *base, const bool *is_done)
{
    return run(base, is_done, LOOP_LIMIT_US);
}

void loop_for_ms(struct event_base *base, int ms)
{
    run(base, NULL, (int64_t)ms * 1000);
}
