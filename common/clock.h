/* Time as a value that can be replaced.
 *
 * Deadlines and ages use monotonic time; wall time is only shown and stored.
 * Code that decides by time takes a const struct clock, so that a test may
 * move it by hand; programs pass &clock_system. Any thread.
 */
#ifndef GEMS_COMMON_CLOCK_H
#define GEMS_COMMON_CLOCK_H

#include <stdint.h>

struct clock {
    int64_t (*monotonic_us)(void *arg); /* since an arbitrary start, never back */
    int64_t (*wall_us)(void *arg);      /* UTC since 1970 */
    void *arg;
};

extern const struct clock clock_system;

int64_t clock_monotonic_us(const struct clock *clock);
int64_t clock_wall_us(const struct clock *clock);

enum { CLOCK_TEXT_BYTES = 32 };
/* "2026-12-01T15:04:05.123Z" (RFC 3339, UTC). */
void clock_format_utc(int64_t wall_us, char ret_text[CLOCK_TEXT_BYTES]);

#endif
