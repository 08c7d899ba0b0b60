#include "common/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t now_us(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t system_monotonic_us(void *arg)
{
    (void)arg;
    return now_us(CLOCK_MONOTONIC);
}

static int64_t system_wall_us(void *arg)
{
    (void)arg;
    return now_us(CLOCK_REALTIME);
}

const struct clock clock_system = { system_monotonic_us, system_wall_us, NULL };

int64_t clock_monotonic_us(const struct clock *clock)
{
    return clock->monotonic_us(clock->arg);
}

int64_t clock_wall_us(const struct clock *clock)
{
    return clock->wall_us(clock->arg);
}

void clock_format_utc(int64_t wall_us, char ret_text[CLOCK_TEXT_BYTES])
{
    int64_t rest = wall_us % 1000000;
    time_t seconds;
    struct tm tm;
    char date[24];

    if (rest < 0) {
        rest += 1000000;
    }
    seconds = (time_t)((wall_us - rest) / 1000000);
    if (!gmtime_r(&seconds, &tm) || strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm) == 0) {
        snprintf(ret_text, CLOCK_TEXT_BYTES, "invalid time");
        return;
    }
    snprintf(ret_text, CLOCK_TEXT_BYTES, "%s.%03dZ", date, (int)(rest / 1000));
}
