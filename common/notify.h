/* Messages to systemd (sd_notify protocol), without libsystemd.
 *
 * All do nothing if NOTIFY_SOCKET is not set. A lost message is no error: the
 * service must run without a supervisor too.
 */
#ifndef GEMS_COMMON_NOTIFY_H
#define GEMS_COMMON_NOTIFY_H

#include <stdint.h>

void notify_ready(void);
void notify_stopping(void);
void notify_reloading(void); /* to be followed by notify_ready */
void notify_watchdog(void);
void notify_status(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Time within which notify_watchdog is expected from this process; 0: none.
 * Call it twice as often. */
uint64_t notify_watchdog_us(void);

#endif
