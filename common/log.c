#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"

enum { LOG_LINE_BYTES = 4096 };

static const struct {
    const char *name;
    enum log_level level;
} levels[] = {
    { "error", LOG_LEVEL_ERROR },
    { "warning", LOG_LEVEL_WARNING },
    { "info", LOG_LEVEL_INFO },
    { "debug", LOG_LEVEL_DEBUG },
};

static _Atomic int log_limit = LOG_LEVEL_INFO;
static log_sink_fn *log_sink;
static void *log_sink_arg;

void log_set_level(enum log_level level)
{
    atomic_store(&log_limit, (int)level);
}

int log_level_from_name(const char *name)
{
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (strcmp(levels[i].name, name) == 0) {
            return (int)levels[i].level;
        }
    }
    return -1;
}

const char *log_level_name(enum log_level level)
{
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (levels[i].level == level) {
            return levels[i].name;
        }
    }
    return "unknown";
}

void log_set_sink(log_sink_fn *sink, void *arg)
{
    log_sink = sink;
    log_sink_arg = arg;
}

/* systemd sets JOURNAL_STREAM to device:inode of the stream it made; a child
 * whose stderr was redirected inherits the variable but not the stream. */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long dev;
    unsigned long long ino;
    struct stat st;

    return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
           fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

/* Copies text with control characters as \xNN; cut at the end of the room. */
static size_t escape(char *line, size_t room, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;

    for (const unsigned char *p = (const unsigned char *)text; *p && n + 4 < room; p++) {
        if (*p >= 0x20 && *p != 0x7f) {
            line[n++] = (char)*p;
        } else {
            line[n++] = '\\';
            line[n++] = 'x';
            line[n++] = hex[*p >> 4];
            line[n++] = hex[*p & 15];
        }
    }
    line[n] = '\0';
    return n;
}

static void write_line(enum log_level level, const char *text)
{
    char line[LOG_LINE_BYTES + 64];
    char when[CLOCK_TEXT_BYTES];
    size_t n;

    if (is_journal()) {
        n = (size_t)snprintf(line, sizeof line, "<%d>", (int)level);
    } else {
        clock_format_utc(clock_wall_us(&clock_system), when);
        n = (size_t)snprintf(line, sizeof line, "%s %s: ", when, log_level_name(level));
    }
    n += escape(line + n, sizeof line - n - 1, text);
    line[n++] = '\n';
    /* One write, so that lines of several threads and processes do not mix. A
     * log that cannot be written has nobody left to tell. */
    while (write(STDERR_FILENO, line, n) < 0 && errno == EINTR) {
    }
}

static void log_line(enum log_level level, const char *format, va_list args)
{
    char text[LOG_LINE_BYTES];
    int saved = errno;

    if ((int)level > atomic_load(&log_limit)) {
        return;
    }
    vsnprintf(text, sizeof text, format, args);
    if (log_sink) {
        char line[LOG_LINE_BYTES];

        escape(line, sizeof line, text);
        log_sink(log_sink_arg, level, line);
    } else {
        write_line(level, text);
    }
    errno = saved;
}

void log_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(LOG_LEVEL_ERROR, format, args);
    va_end(args);
}

void log_warning(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(LOG_LEVEL_WARNING, format, args);
    va_end(args);
}

void log_info(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(LOG_LEVEL_INFO, format, args);
    va_end(args);
}

void log_debug(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(LOG_LEVEL_DEBUG, format, args);
    va_end(args);
}
