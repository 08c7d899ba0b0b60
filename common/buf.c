#include "common/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

enum { BUF_FIRST_BYTES = 256 };

void buf_fini(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){ 0 };
}

void buf_clear(struct buf *buf)
{
    buf->n = 0;
    buf->is_failed = false;
}

static int fail(struct buf *buf)
{
    buf->is_failed = true;
    return GEMS_E_NOMEM;
}

int buf_reserve(struct buf *buf, size_t more)
{
    size_t capacity = buf->capacity ? buf->capacity : BUF_FIRST_BYTES;
    uint8_t *data;

    if (buf->is_failed || more > SIZE_MAX / 2 - buf->n) {
        return fail(buf);
    }
    while (capacity < buf->n + more) {
        capacity *= 2;
    }
    if (capacity == buf->capacity) {
        return GEMS_OK;
    }
    data = realloc(buf->data, capacity);
    if (!data) {
        return fail(buf);
    }
    buf->data = data;
    buf->capacity = capacity;
    return GEMS_OK;
}

int buf_add(struct buf *buf, const void *data, size_t n)
{
    int st = buf_reserve(buf, n);

    if (st == GEMS_OK && n > 0) {
        memcpy(buf->data + buf->n, data, n);
        buf->n += n;
    }
    return st;
}

int buf_add_string(struct buf *buf, const char *text)
{
    return buf_add(buf, text, strlen(text));
}

int buf_printf(struct buf *buf, const char *format, ...)
{
    va_list args;
    int n;
    int st;

    va_start(args, format);
    n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        return fail(buf);
    }
    st = buf_reserve(buf, (size_t)n + 1);
    if (st < 0) {
        return st;
    }
    va_start(args, format);
    vsnprintf((char *)buf->data + buf->n, (size_t)n + 1, format, args);
    va_end(args);
    buf->n += (size_t)n;
    return GEMS_OK;
}

void buf_drop(struct buf *buf, size_t n)
{
    if (n == 0) {
        return;
    }
    buf->n -= n;
    memmove(buf->data, buf->data + n, buf->n);
}

char *buf_take(struct buf *buf)
{
    char *text = NULL;

    if (buf_add(buf, "", 1) == GEMS_OK) {
        text = (char *)buf->data;
        buf->data = NULL;
    }
    buf_fini(buf);
    return text;
}
