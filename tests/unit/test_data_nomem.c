/* Memory that runs out, at every request in turn: a clean error or success,
 * and nothing left behind (the sanitizers look), in model/ and worker/data. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "model/backward.h"
#include "model/passes.h"
#include "model/safetensors.h"
#include "model/zoo.h"
#include "tests/lib/heap_fault.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/temp_dir.h"
#include "tests/unit/data_files.h"
#include "worker/data/loader.h"

/* Build, fuse, copy and derive a network. */
static int make_model(void *arg)
{
    struct zoo_spec spec = { .zoo = "resnet",
                             .version = 2,
                             .depth = 20,
                             .classes = 10,
                             .channels = 3,
                             .height = 32,
                             .width = 32 };
    struct graph graph = { 0 }, copy = { 0 };
    struct backward_step *steps = NULL;
    uint32_t n_steps, n_nodes;
    int st = zoo_build(&spec, &graph, NULL);

    (void)arg;
    if (st < 0) {
        return st;
    }
    n_nodes = graph.n_nodes;
    st = graph_fuse(&graph, NULL);
    /* On failure the graph is as before. Check asks for memory, too: it must
     * not be called from here. */
    if (st < 0 && graph.n_nodes != n_nodes) {
        st = GEMS_E_INTERNAL;
    }
    if (st == 0) {
        st = graph_copy(&graph, &copy, NULL);
    }
    if (st == 0) {
        st = backward_derive(&copy, 0, copy.n_nodes, &steps, &n_steps, NULL);
    }
    if (st == 0) {
        st = graph_check(&copy, NULL);
    }
    free(steps);
    graph_fini(&graph);
    graph_fini(&copy);
    return st;
}

static int make_header(void *arg)
{
    enum { N = 100 };
    static char names[N][32];
    struct safetensors_tensor tensors[N];
    void *header = NULL;
    size_t bytes;
    int st;

    (void)arg;
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "tensor%d.weight", i);
        tensors[i] = (struct safetensors_tensor){ names[i], SAFETENSORS_F32, 1, { 7 } };
    }
    st = safetensors_header(tensors, N, NULL, 0, &header, &bytes, NULL);
    free(header);
    return st;
}

START_TEST(a_model_without_memory_is_an_error)
{
    ck_assert_uint_gt(heap_fault_everywhere(make_model, NULL), 8);
    ck_assert_uint_gt(heap_fault_everywhere(make_header, NULL), 1);
}
END_TEST

/* Open a set and read two samples. */
static int read_set(void *arg)
{
    const struct dataset_spec *spec = arg;
    struct dataset *set = NULL;
    uint8_t pixels[3 * 64];
    int st = dataset_open(spec, &set, NULL);

    if (st < 0 && set) {
        return GEMS_E_INTERNAL;
    }
    if (st == 0) {
        st = dataset_read(set, 0, pixels, NULL);
    }
    if (st == 0) {
        st = dataset_read(set, 1, pixels, NULL);
    }
    dataset_close(set);
    return st;
}

static bool one_item(void *arg, uint64_t i, struct loader_item *ret_item)
{
    (void)arg;
    *ret_item =
        (struct loader_item){ .n = 2, .is_eval = true, .has_images = true, .has_labels = true };
    return i == 0;
}

/* The same by a loader with two threads. */
static int load_set(void *arg)
{
    static _Alignas(64) char buffers[64 * 3 * 4 * 2 + 64];
    struct loader_config config = {
        .has_images = true,
        .has_labels = true,
        .std = 1.0,
        .max_batch = 2,
        .n_threads = 2,
        .sequence = one_item,
        .buffers = buffers,
        .depth = 1,
    };
    struct loader *loader = NULL;
    struct dataset *set = NULL;
    const void *images;
    const uint32_t *labels;
    int st = dataset_open(arg, &set, NULL);

    config.train = config.eval = set;
    if (st == 0) {
        st = loader_create(&config, &loader, NULL);
    }
    if (st == 0) {
        st = loader_next(loader, 0, &images, &labels, NULL);
    }
    loader_destroy(loader);
    dataset_close(set);
    return st;
}

static void make_folder(const char *folder)
{
    uint8_t pixels[16 * 16 * 3] = { 0 };

    files_write_png(files_path(folder, "a/x.png"), pixels, 48, 16, 16, 2, 8);
    files_write_jpeg(files_path(folder, "b/x.jpg"), pixels, 16, 16, 3);
}

START_TEST(a_data_set_without_memory_is_an_error)
{
    struct dataset_spec spec = { .format = _i == 0 ? DATASET_IDX : DATASET_IMAGEFOLDER,
                                 .channels = 3,
                                 .height = 8,
                                 .width = 8,
                                 .classes = 2 };
    struct temp_dir dir;

    temp_dir_create(&dir);
    spec.path = dir.path;
    if (_i == 0) {
        files_write_idx(files_path(dir.path, "train"), 2, 7, 7, 2, 1);
    } else {
        make_folder(dir.path);
    }
    ck_assert_uint_gt(heap_fault_everywhere(read_set, &spec), 10);
    temp_dir_destroy(&dir);
}
END_TEST

/* Which thread meets the fault is left to chance: either answer is right, but
 * a run must end, and one without a fault must succeed. */
START_TEST(a_loader_without_memory_is_an_error)
{
    struct dataset_spec spec = {
        .format = DATASET_IMAGEFOLDER, .channels = 3, .height = 8, .width = 8, .classes = 2
    };
    struct temp_dir dir;
    uint32_t n_failed = 0;

    temp_dir_create(&dir);
    make_folder(dir.path);
    spec.path = dir.path;
    for (uint32_t n = 0; n < 60; n++) {
        bool is_met;
        int st;

        heap_fault_arm(n);
        st = load_set(&spec);
        is_met = heap_fault_disarm();
        ck_assert(st == 0 || (is_met && st == GEMS_E_NOMEM));
        n_failed += st < 0;
    }
    ck_assert_uint_gt(n_failed, 10);
    temp_dir_destroy(&dir);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("no memory");
    TCase *tc = suite_case(s, "no memory", a_model_without_memory_is_an_error);

    tcase_add_loop_test(tc, a_data_set_without_memory_is_an_error, 0, 2);
    tcase_add_test(tc, a_loader_without_memory_is_an_error);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
