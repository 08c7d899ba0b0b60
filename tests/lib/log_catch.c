#include "tests/lib/log_catch.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"

enum { CATCH_LINES = 64, CATCH_BYTES = 512 };

static struct {
    enum log_level level;
    char text[CATCH_BYTES];
    bool is_expected;
} lines[CATCH_LINES];
static int n_lines;

static void catch_line(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    if (n_lines < CATCH_LINES) {
        lines[n_lines].level = level;
        lines[n_lines].is_expected = false;
        snprintf(lines[n_lines].text, CATCH_BYTES, "%s", line);
        n_lines++;
    }
}

void log_catch_start(void)
{
    n_lines = 0;
    log_set_sink(catch_line, NULL);
}

bool log_catch_expect(const char *text)
{
    for (int i = 0; i < n_lines; i++) {
        if (!lines[i].is_expected && strstr(lines[i].text, text)) {
            lines[i].is_expected = true;
            return true;
        }
    }
    return false;
}

const char *log_catch_end(void)
{
    log_set_sink(NULL, NULL);
    for (int i = 0; i < n_lines; i++) {
        if (!lines[i].is_expected && lines[i].level <= LOG_LEVEL_WARNING) {
            return lines[i].text;
        }
    }
    return NULL;
}
