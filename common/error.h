/* Status codes and error texts.
 *
 * A function that can fail returns enum gems_status (0 or negative) and takes
 * a struct gems_error last. The text is written once, where the cause is
 * known; callers pass the code on. A NULL err is allowed everywhere.
 */
#ifndef GEMS_COMMON_ERROR_H
#define GEMS_COMMON_ERROR_H

/* Named by what the caller can do about it. */
enum gems_status {
    GEMS_OK = 0,
    GEMS_E_INVALID = -1,     /* bad request, job file, argument or message */
    GEMS_E_NOMEM = -2,       /* host memory */
    GEMS_E_IO = -3,          /* file or system call */
    GEMS_E_PEER = -4,        /* the other side is gone or broke the protocol */
    GEMS_E_DEVICE = -5,      /* device or its library failed; sticky */
    GEMS_E_TIMEOUT = -6,     /* a deadline passed */
    GEMS_E_CANCELLED = -7,   /* somebody asked for the end */
    GEMS_E_UNSUPPORTED = -8, /* not in this version or build */
    GEMS_E_STATE = -9,       /* not allowed in this state (conflict) */
    GEMS_E_NOTFOUND = -10,   /* no such job, node, file, tensor */
    GEMS_E_DENIED = -11,     /* not allowed for this user */
    GEMS_E_NOFIT = -12,      /* does not fit the devices */
    GEMS_E_DATA = -13,       /* a user's data set is missing or damaged */
    GEMS_E_DISKFULL = -14,   /* no space left */
    GEMS_E_NAN = -15,        /* loss is not a number */
    GEMS_E_INTERNAL = -16    /* our own mistake */
};

/* What an error has broken; retry rules look at this alone. */
enum gems_scope { GEMS_SCOPE_CALL, GEMS_SCOPE_ATTEMPT, GEMS_SCOPE_WORKER, GEMS_SCOPE_DAEMON };

struct gems_error {
    enum gems_status status;
    char text[512]; /* "what: why", no newline */
    char hint[256]; /* what would be right; may be empty */
};

/* Fills *err (text is printf-style) and returns status, so that a caller can
 * write `return gems_error_set(err, GEMS_E_IO, ...)`. */
int gems_error_set(struct gems_error *err, enum gems_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As gems_error_set, with ": " and the text of errno_value appended. ENOSPC,
 * EDQUOT turn the status into GEMS_E_DISKFULL, ENOMEM into GEMS_E_NOMEM. */
int gems_error_errno(struct gems_error *err, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a hint to an error that is already set. */
void gems_error_hint(struct gems_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Makes one harmless line of a text: a control character (a file's name may
 * hold them, and move a reader's cursor) becomes '?'. The functions above do
 * it with what they write. */
void gems_text_line(char *text);

/* "invalid", "no memory", ...; never NULL. */
const char *gems_status_name(enum gems_status status);

enum gems_scope gems_status_scope(enum gems_status status);

#endif
