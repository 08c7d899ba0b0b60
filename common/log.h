/* The log of a program: lines to stderr.
 *
 * Under systemd (JOURNAL_STREAM names our stderr) a line starts with its
 * priority, <3>..<7>; elsewhere with UTC time and level. One line a call, lower
 * case, subject first ("job 17 rank 3: checkpoint failed: no space"); control
 * characters are escaped, so nothing a user sent can forge a line. Libraries
 * return errors and do not log above debug. Any thread.
 */
#ifndef GEMS_COMMON_LOG_H
#define GEMS_COMMON_LOG_H

/* Numbers are those of syslog. */
enum log_level {
    LOG_LEVEL_ERROR = 3,   /* could not do what was asked */
    LOG_LEVEL_WARNING = 4, /* did it anyway; the line says so */
    LOG_LEVEL_INFO = 6,    /* a few a job */
    LOG_LEVEL_DEBUG = 7
};

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Lines above this level are dropped; info at the start. */
void log_set_level(enum log_level level);
/* "error", "warning", "info", "debug"; negative if unknown. */
int log_level_from_name(const char *name);
const char *log_level_name(enum log_level level);

/* Sends lines (without level, time and newline) to a function instead of
 * stderr: for tests. NULL: stderr again. Set before threads start. */
typedef void log_sink_fn(void *arg, enum log_level level, const char *line);
void log_set_sink(log_sink_fn *sink, void *arg);

#endif
