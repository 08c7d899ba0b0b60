/* A clock that a test moves by hand. */
#ifndef GEMS_TESTS_CLOCK_FAKE_H
#define GEMS_TESTS_CLOCK_FAKE_H

#include "common/clock.h"

struct clock_fake {
    struct clock clock; /* pass &fake.clock */
    int64_t monotonic_us, wall_us;
};

/* Must not move in memory afterwards. */
void clock_fake_init(struct clock_fake *fake, int64_t monotonic_us, int64_t wall_us);
void clock_fake_advance(struct clock_fake *fake, int64_t us); /* both */

#endif
