/* A growable byte buffer.
 *
 * An out-of-memory failure sticks: later additions do nothing and fail, so a
 * writer may add many pieces and check once at the end. Zeroed is empty.
 */
#ifndef GEMS_COMMON_BUF_H
#define GEMS_COMMON_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *data; /* owned; may be NULL while n is 0 */
    size_t n, capacity;
    bool is_failed;
};

void buf_fini(struct buf *buf); /* frees and zeroes; also of a zeroed one */
void buf_clear(struct buf *buf); /* n = 0, memory kept, failure forgotten */

/* Each: GEMS_OK or GEMS_E_NOMEM (buffer unchanged). */
int buf_reserve(struct buf *buf, size_t more); /* room for that many more bytes */
int buf_add(struct buf *buf, const void *data, size_t n);
int buf_add_string(struct buf *buf, const char *text); /* without its NUL */
int buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Removes n <= buf->n bytes from the front. */
void buf_drop(struct buf *buf, size_t n);

/* The bytes with a NUL behind them (not counted in n), owned by the caller
 * (free); the buffer is empty then. NULL if memory ran out now or before. */
char *buf_take(struct buf *buf);

#endif
