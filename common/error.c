#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void gems_text_line(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if (*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
}

int gems_error_set(struct gems_error *err, enum gems_status status, const char *format, ...)
{
    if (err) {
        va_list args;

        err->status = status;
        err->hint[0] = '\0';
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        gems_text_line(err->text);
    }
    return status;
}

static enum gems_status status_of_errno(int errno_value)
{
    switch (errno_value) {
    case ENOSPC:
    case EDQUOT:
        return GEMS_E_DISKFULL;
    case ENOMEM:
        return GEMS_E_NOMEM;
    case ENOENT:
        return GEMS_E_NOTFOUND;
    case EACCES:
    case EPERM:
        return GEMS_E_DENIED;
    default:
        return GEMS_E_IO;
    }
}

int gems_error_errno(struct gems_error *err, int errno_value, const char *format, ...)
{
    enum gems_status status = status_of_errno(errno_value);

    if (err) {
        va_list args;
        char reason[128];
        size_t n;

        err->status = status;
        err->hint[0] = '\0';
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        n = strlen(err->text);
        snprintf(err->text + n, sizeof err->text - n, ": %s",
                 strerror_r(errno_value, reason, sizeof reason));
        gems_text_line(err->text);
    }
    return status;
}

void gems_error_hint(struct gems_error *err, const char *format, ...)
{
    va_list args;

    if (!err) {
        return;
    }
    va_start(args, format);
    vsnprintf(err->hint, sizeof err->hint, format, args);
    va_end(args);
    gems_text_line(err->hint);
}

const char *gems_status_name(enum gems_status status)
{
    static const char *const names[] = {
        "ok", "invalid", "no memory", "i/o", "peer", "device", "timed out", "cancelled",
        "unsupported", "state", "not found", "denied", "does not fit", "data", "disk full",
        "not a number", "internal",
    };
    int i = -(int)status;

    return i >= 0 && i < (int)(sizeof names / sizeof names[0]) ? names[i] : "unknown";
}

enum gems_scope gems_status_scope(enum gems_status status)
{
    switch (status) {
    case GEMS_E_NOMEM:
    case GEMS_E_PEER:
    case GEMS_E_DATA:
    case GEMS_E_NAN:
        return GEMS_SCOPE_ATTEMPT;
    case GEMS_E_DEVICE:
        return GEMS_SCOPE_WORKER;
    case GEMS_E_INTERNAL:
        return GEMS_SCOPE_DAEMON;
    default:
        return GEMS_SCOPE_CALL;
    }
}
