#include "common/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/error.h"
#include "common/units.h"

static void send_text(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    size_t n;
    int fd;

    if (!path || (path[0] != '/' && path[0] != '@')) {
        return;
    }
    n = strlen(path);
    if (n >= sizeof to.sun_path) {
        return;
    }
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') {
        to.sun_path[0] = '\0'; /* abstract name */
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return;
    }
    sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
}

void notify_ready(void)
{
    send_text("READY=1");
}

void notify_stopping(void)
{
    send_text("STOPPING=1");
}

void notify_reloading(void)
{
    char text[64];

    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)clock_monotonic_us(&clock_system));
    send_text(text);
}

void notify_watchdog(void)
{
    send_text("WATCHDOG=1");
}

void notify_status(const char *format, ...)
{
    char text[512] = "STATUS=";
    size_t n = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + n, sizeof text - n, format, args);
    va_end(args);
    text[strcspn(text, "\n")] = '\0'; /* a line would be taken for another field */
    send_text(text);
}

uint64_t notify_watchdog_us(void)
{
    const char *usec = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    uint64_t value = 0;

    if (!usec || parse_u64(usec, &value, NULL) < 0) {
        return 0;
    }
    if (pid) {
        uint64_t owner = 0;

        if (parse_u64(pid, &owner, NULL) < 0 || owner != (uint64_t)getpid()) {
            return 0;
        }
    }
    return value;
}
