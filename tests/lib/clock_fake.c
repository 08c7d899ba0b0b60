#include "tests/lib/clock_fake.h"

static int64_t fake_monotonic_us(void *arg)
{
    return ((struct clock_fake *)arg)->monotonic_us;
}

static int64_t fake_wall_us(void *arg)
{
    return ((struct clock_fake *)arg)->wall_us;
}

void clock_fake_init(struct clock_fake *fake, int64_t monotonic_us, int64_t wall_us)
{
    fake->clock = (struct clock){ fake_monotonic_us, fake_wall_us, fake };
    fake->monotonic_us = monotonic_us;
    fake->wall_us = wall_us;
}

void clock_fake_advance(struct clock_fake *fake, int64_t us)
{
    fake->monotonic_us += us;
    fake->wall_us += us;
}
