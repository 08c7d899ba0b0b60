#include "tests/lib/heap_fault.h"

#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/error.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t n);

/* Requests until the fault; 0 and below: none to come. */
static _Atomic int64_t countdown;
static atomic_bool is_fired;

static bool is_time(void)
{
    if (atomic_load(&countdown) > 0 && atomic_fetch_sub(&countdown, 1) == 1) {
        atomic_store(&is_fired, true);
        return true;
    }
    return false;
}

void *__wrap_malloc(size_t n)
{
    return is_time() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return is_time() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *memory, size_t n)
{
    return is_time() ? NULL : __real_realloc(memory, n);
}

void heap_fault_arm(uint32_t n)
{
    atomic_store(&is_fired, false);
    atomic_store(&countdown, (int64_t)n + 1);
}

bool heap_fault_disarm(void)
{
    atomic_store(&countdown, 0);
    return atomic_load(&is_fired);
}

uint32_t heap_fault_everywhere(int (*attempt)(void *arg), void *arg)
{
    for (uint32_t n = 0;; n++) {
        int st;

        heap_fault_arm(n);
        st = attempt(arg);
        if (!heap_fault_disarm()) {
            ck_assert_int_eq(st, 0);
            return n;
        }
        ck_assert_int_eq(st, GEMS_E_NOMEM);
    }
}
