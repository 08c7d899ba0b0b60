#include "tests/lib/fault.h"

#include <errno.h>
#include <event2/event.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *text);

static _Atomic long countdown = -1; /* negative: no fault to come */
static bool has_failed = true;      /* in the run before */
static bool is_libevent_spared;

static bool is_due(void)
{
    if (atomic_load(&countdown) < 0 || atomic_fetch_sub(&countdown, 1) != 0) {
        return false;
    }
    has_failed = true;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return is_due() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return is_due() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return is_due() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *text)
{
    return is_due() ? NULL : __real_strdup(text);
}

static void *event_malloc(size_t n)
{
    return is_libevent_spared ? __real_malloc(n) : __wrap_malloc(n);
}

static void *event_realloc(void *p, size_t n)
{
    return is_libevent_spared ? __real_realloc(p, n) : __wrap_realloc(p, n);
}

bool fault_start(long n)
{
    bool is_more = n == 0 || has_failed;

    if (n == 0) {
        event_set_mem_functions(event_malloc, event_realloc, free);
    }
    has_failed = false;
    atomic_store(&countdown, is_more ? n : -1);
    return is_more;
}

bool fault_stop(void)
{
    atomic_store(&countdown, -1);
    return has_failed;
}

void fault_spare_libevent(bool is_spared)
{
    is_libevent_spared = is_spared;
}
