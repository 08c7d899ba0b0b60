/* Keeps oneDNN's executions off the heap.
 *
 * dnnl_primitive_execute() puts its arguments into a hash table: a few small
 * nodes from operator new, given back before it returns. A step may not touch
 * the heap, so operator new, which a program may replace, is replaced here: in
 * a call it hands out slots of a fixed array, otherwise it is the library's.
 *
 * Some of its kernels open parallel regions for one thread too, and libgomp takes
 * a team from the heap for each. So the entry to such regions is replaced as
 * well: outside of all teams, a team of one is but a call.
 *
 * Thread: any. The library's OpenMP threads allocate too, so a call on one
 * thread opens the array to all. A slot may be given back by another thread and
 * after its call. When all slots are taken the heap serves: slower, not wrong.
 */
#include "worker/backend/cpu/cpu.h"

#include <dlfcn.h>
#include <omp.h>
#include <stdatomic.h>

enum { SLOT_BYTES = 256, SLOTS_PER_WORD = 64, N_WORDS = 4 };

static _Alignas(64) char slots[N_WORDS * SLOTS_PER_WORD][SLOT_BYTES];
static _Atomic uint64_t taken[N_WORDS]; /* a bit a slot */
static _Atomic uint32_t n_calls;        /* under way, on any thread */

/* Replaced operators by their names in the binary. */
void *cpu_operator_new(size_t bytes) __asm__("_Znwm");
void cpu_operator_delete(void *memory) __asm__("_ZdlPv");
void cpu_operator_delete_sized(void *memory, size_t bytes) __asm__("_ZdlPvm");

typedef void (*region_fn)(void *data);
void cpu_parallel(region_fn region, void *data, unsigned n_threads,
                  unsigned flags) __asm__("GOMP_parallel");

void cpu_pool_enter(bool has_run)
{
    if (has_run) {
        atomic_fetch_add_explicit(&n_calls, 1, memory_order_relaxed);
    }
}

void cpu_pool_leave(bool has_run)
{
    if (has_run) {
        atomic_fetch_sub_explicit(&n_calls, 1, memory_order_relaxed);
    }
}

static void *take_slot(void)
{
    for (uint32_t w = 0; w < N_WORDS; w++) {
        uint64_t old = atomic_load_explicit(&taken[w], memory_order_relaxed);

        while (old != UINT64_MAX) {
            uint32_t bit = (uint32_t)__builtin_ctzll(~old);

            if (atomic_compare_exchange_weak_explicit(&taken[w], &old, old | UINT64_C(1) << bit,
                                                      memory_order_acquire, memory_order_relaxed)) {
                return slots[w * SLOTS_PER_WORD + bit];
            }
        }
    }
    return NULL;
}

/* False if the memory is not a slot. */
static bool give_slot(void *memory)
{
    uintptr_t offset = (uintptr_t)memory - (uintptr_t)slots;
    uint64_t i = offset / SLOT_BYTES;

    if (offset >= sizeof slots) {
        return false;
    }
    atomic_fetch_and_explicit(&taken[i / SLOTS_PER_WORD], ~(UINT64_C(1) << (i % SLOTS_PER_WORD)),
                              memory_order_release);
    return true;
}

/* The next definition in load order: the C++ library's own. */
static void *next_symbol(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

void *cpu_operator_new(size_t bytes)
{
    static void *(*_Atomic next)(size_t);
    bool is_in_call = atomic_load_explicit(&n_calls, memory_order_relaxed) > 0;
    void *slot = is_in_call && bytes <= SLOT_BYTES ? take_slot() : NULL;
    void *(*call)(size_t) = atomic_load_explicit(&next, memory_order_relaxed);

    if (slot) {
        return slot;
    }
    if (!call) {
        call = (void *(*)(size_t))next_symbol("_Znwm");
        atomic_store_explicit(&next, call, memory_order_relaxed);
    }
    return call(bytes);
}

void cpu_operator_delete(void *memory)
{
    static void (*_Atomic next)(void *);
    void (*call)(void *) = atomic_load_explicit(&next, memory_order_relaxed);

    if (give_slot(memory)) {
        return;
    }
    if (!call) {
        call = (void (*)(void *))next_symbol("_ZdlPv");
        atomic_store_explicit(&next, call, memory_order_relaxed);
    }
    call(memory);
}

void cpu_operator_delete_sized(void *memory, size_t bytes)
{
    (void)bytes;
    cpu_operator_delete(memory);
}

void cpu_parallel(region_fn region, void *data, unsigned n_threads, unsigned flags)
{
    static void (*_Atomic next)(region_fn, void *, unsigned, unsigned);
    bool is_alone = n_threads == 1 || (n_threads == 0 && omp_get_max_threads() == 1);
    void (*call)(region_fn, void *, unsigned, unsigned) =
        atomic_load_explicit(&next, memory_order_relaxed);

    if (is_alone && omp_get_level() == 0) {
        region(data);
        return;
    }
    if (!call) {
        call = (void (*)(region_fn, void *, unsigned, unsigned))next_symbol("GOMP_parallel");
        atomic_store_explicit(&next, call, memory_order_relaxed);
    }
    call(region, data, n_threads, flags);
}
