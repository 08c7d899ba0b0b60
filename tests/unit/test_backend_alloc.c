/* Steps take nothing from the heap: an interposed malloc counts.
 *
 * Sanitizers bring a malloc of their own; there the test is skipped. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "model/passes.h"
#include "model/zoo.h"
#include "tests/lib/oracle.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

int main(void)
{
    puts("skipped: a sanitizer's malloc cannot be interposed");
    return 77;
}

#else

static atomic_bool is_counting;
static atomic_ulong n_allocations;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static void count(void)
{
    if (atomic_load(&is_counting)) {
        atomic_fetch_add(&n_allocations, 1);
    }
}

void *malloc(size_t bytes)
{
    count();
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    count();
    return __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    count();
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    count();
    return __libc_memalign(alignment, bytes);
}

void *memalign(size_t alignment, size_t bytes);
void *memalign(size_t alignment, size_t bytes)
{
    count();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **ret_memory, size_t alignment, size_t bytes)
{
    count();
    *ret_memory = __libc_memalign(alignment, bytes);
    return *ret_memory ? 0 : 12; /* ENOMEM */
}

enum { BATCH = 5, SIDE = 28 };

static const struct case_ {
    const char *zoo;
    uint32_t version, depth;
    uint32_t channels;
} cases[] = { { "resnet", 1, 8, 3 }, { "resnet", 2, 11, 1 }, { "lenet", 0, 0, 1 },
              { "lenet", 0, 0, 2 } };
enum { N_CASES = sizeof cases / sizeof cases[0] };

static void must(int st, const struct gems_error *err)
{
    ck_assert_msg(st == GEMS_OK, "%s", err->text);
}

/* No assertion in here: Check allocates. */
static int step(struct oracle *oracle, const struct oracle_batch *batch, struct gems_error *err)
{
    struct oracle_update update = { ORACLE_SGD, .sgd = { .lr = 0.1, .momentum = 0.9 } };
    struct oracle_result result;
    int st = oracle_gradients(oracle, batch, &result, err);

    return st < 0 ? st : oracle_apply(oracle, &update, err);
}

static void check_steps(const struct graph *graph, const struct backend *backend, uint32_t threads)
{
    static float images[BATCH * 3 * SIDE * SIDE];
    static const uint32_t labels[BATCH] = { 1, 2, 3, 4, 5 };
    struct oracle_config config = { .graph = graph, .backend = backend, .type = BE_F32,
                                    .threads = threads, .seed = 1 };
    struct oracle_batch batch = { images, labels, BATCH, 2, 2, { 0 } };
    struct gems_error err = { 0 };
    struct oracle *oracle = NULL;
    int st;

    must(oracle_create(&config, &oracle, &err), &err);
    must(step(oracle, &batch, &err), &err);
    atomic_store(&n_allocations, 0);
    atomic_store(&is_counting, true);
    st = step(oracle, &batch, &err);
    atomic_store(&is_counting, false);
    must(st, &err);
    ck_assert_msg(atomic_load(&n_allocations) == 0, "%s, %u threads: %lu allocations in a step",
                  backend->name, threads, atomic_load(&n_allocations));
    oracle_destroy(oracle);
}

START_TEST(a_step_allocates_nothing)
{
    struct zoo_spec spec = { .version = cases[_i].version, .depth = cases[_i].depth, .classes = 10,
                             .channels = cases[_i].channels, .height = SIDE, .width = SIDE };
    struct gems_error err = { 0 };
    struct graph graph;

    snprintf(spec.zoo, sizeof spec.zoo, "%s", cases[_i].zoo);
    must(zoo_build(&spec, &graph, &err), &err);
    must(graph_fuse(&graph, &err), &err);
    for (uint32_t b = 0; backend_at(b); b++) {
        if (strcmp(backend_at(b)->name, "cpu") == 0 && !strstr(backend_at(b)->kind(), "avx512")) {
            puts("cpu skipped: without AVX-512 oneDNN's matrix product takes heap buffers");
            continue;
        }
        check_steps(&graph, backend_at(b), 1);
        check_steps(&graph, backend_at(b), 2);
    }
    graph_fini(&graph);
}
END_TEST

START_TEST(the_counter_counts)
{
    atomic_store(&n_allocations, 0);
    atomic_store(&is_counting, true);
    void *volatile memory = malloc(10);

    atomic_store(&is_counting, false);
    ck_assert_uint_eq(atomic_load(&n_allocations), 1);
    free(memory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend allocations");
    TCase *tcase = tcase_create("steps");
    SRunner *runner;
    int n_failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, the_counter_counts);
    tcase_add_loop_test(tcase, a_step_allocates_nothing, 0, N_CASES);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
