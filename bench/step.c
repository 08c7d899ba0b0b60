/* One training step of a network of the zoo on one device, repeated: the real
 * trainer with the schedule "single", on made-up images. Prints one JSON line
 * as torch_step.py does.
 *
 * usage: step resnet VERSION DEPTH SIZE BATCH [THREADS [STEPS [BACKEND]]] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/error.h"
#include "model/passes.h"
#include "plan/planner.h"
#include "worker/data/dataset.h"
#include "worker/inspect/inspect.h"
#include "worker/rank/trainer.h"

enum { N_WARM = 2, MAX_STEPS = 1000, DEFAULT_STEPS = 5 };

struct bench {
    struct job_spec spec;
    struct graph graph;
    struct fact_set facts;
    struct plan plan;
    const struct backend *backend;
    struct be_device *device;
    struct dataset *data;
    uint32_t threads;
    double seconds[MAX_STEPS];
    uint32_t n_seconds;
    double loss;
};

static int on_step(void *arg, const struct trainer_step *step)
{
    struct bench *b = arg;

    if (step->step > N_WARM && b->n_seconds < MAX_STEPS) {
        b->seconds[b->n_seconds++] = step->seconds;
    }
    b->loss = step->loss_sum / (double)step->counted;
    return GEMS_OK;
}

static uint32_t number(int argc, char **argv, int i, uint32_t otherwise)
{
    return i < argc ? (uint32_t)strtoul(argv[i], NULL, 10) : otherwise;
}

static void read_arguments(struct bench *b, int argc, char **argv)
{
    struct job_spec *spec = &b->spec;
    uint32_t size = number(argc, argv, 4, 32), batch = number(argc, argv, 5, 32);
    uint32_t steps = number(argc, argv, 7, DEFAULT_STEPS);

    spec_init(spec);
    snprintf(spec->name, sizeof spec->name, "bench");
    snprintf(spec->model.zoo, sizeof spec->model.zoo, "%s", argv[1]);
    spec->model.version = number(argc, argv, 2, 2);
    spec->model.depth = number(argc, argv, 3, 110);
    spec->model.classes = 10;
    spec->model.channels = spec->data.channels = 3;
    spec->model.height = spec->model.width = spec->data.height = spec->data.width = size;
    spec->data.format = DATA_SYNTHETIC;
    spec->data.samples = (uint64_t)batch * 64;
    spec->train.steps = N_WARM + (steps > MAX_STEPS ? MAX_STEPS : steps);
    spec->train.batch = spec->parallel.microbatch = batch;
    spec->train.lr = 0.01;
    spec->parallel.schedule = SCHEDULE_SINGLE;
    spec->parallel.recompute = RECOMPUTE_NONE;
    spec->checkpoint_every_epochs = 0;
    b->threads = number(argc, argv, 6, 1);
}

static int prepare(struct bench *b, const char *backend, struct gems_error *err)
{
    struct dataset_spec data = { .format = DATASET_SYNTHETIC,
                                 .channels = b->spec.data.channels,
                                 .height = b->spec.data.height,
                                 .width = b->spec.data.width,
                                 .classes = b->spec.model.classes,
                                 .samples = b->spec.data.samples,
                                 .seed = 1 };
    struct plan_device device = { DEVICE_CPU, UINT64_MAX / 2, 1.0, 0, b->threads };
    uint32_t sizes[FACTS_MAX_SIZES], n;
    int st = zoo_build(&b->spec.model, &b->graph, err);

    st = st < 0 ? st : graph_fuse(&b->graph, err);
    st = st < 0 ? st : planner_settle(&b->graph, &b->spec, err);
    st = st < 0 ? st : dataset_open(&data, &b->data, err);
    if (st < 0) {
        return st;
    }
    b->backend = backend_find(backend, err);
    if (!b->backend) {
        return GEMS_E_UNSUPPORTED;
    }
    st = b->backend->device->open(0, b->threads, BE_F32, &b->device, err);
    b->facts.n_train = b->spec.data.samples;
    n = planner_batch_sizes(&b->spec, b->facts.n_train, 0, sizes);
    for (uint32_t i = 0; st == GEMS_OK && i < n; i++) {
        st = inspect_facts(&b->graph, sizes[i], b->backend, b->device, &b->facts.sizes[i], err);
        b->facts.n_sizes = st == GEMS_OK ? i + 1 : i;
    }
    return st < 0 ? st : planner_plan(&b->graph, &b->spec, &b->facts, &device, 1, &b->plan, err);
}

static int run(struct bench *b, struct gems_error *err)
{
    static const struct trainer_events events = { .step = on_step };
    struct trainer_config config = { .spec = &b->spec, .graph = &b->graph, .plan = &b->plan,
                                     .backend = b->backend, .device = b->device, .train = b->data,
                                     .events = &events, .events_arg = b };
    struct trainer_position start = { 0 };
    struct trainer *trainer = NULL;
    int st = trainer_create(&config, &trainer, err);

    st = st < 0 ? st : trainer_run(trainer, &start, err);
    trainer_destroy(trainer);
    return st;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void report(struct bench *b)
{
    struct rusage usage;
    double median;

    getrusage(RUSAGE_SELF, &usage);
    qsort(b->seconds, b->n_seconds, sizeof b->seconds[0], by_value);
    median = b->seconds[b->n_seconds / 2];
    printf("{\"model\": \"%s\", \"size\": %u, \"batch\": %u, \"threads\": %u, \"kind\": \"%s\", "
           "\"n\": %u, \"step_seconds\": %.5f, \"step_seconds_min\": %.5f, "
           "\"images_per_second\": %.3f, \"rss_mib\": %ld, \"planned_mib\": %" PRIu64
           ", \"loss\": %.4f}\n",
           b->graph.name, b->spec.data.height, b->spec.train.batch, b->threads, b->backend->kind(),
           b->n_seconds, median, b->seconds[0], b->spec.train.batch / median,
           usage.ru_maxrss / 1024, b->plan.memory[0].total_bytes >> 20, b->loss);
}

int main(int argc, char **argv)
{
    struct gems_error err = { 0 };
    struct bench *b;
    int st;

    if (argc < 6) {
        fprintf(stderr,
                "usage: step resnet VERSION DEPTH SIZE BATCH [THREADS [STEPS [BACKEND]]]\n");
        return 2;
    }
    b = calloc(1, sizeof *b);
    if (!b) {
        return EXIT_FAILURE;
    }
    read_arguments(b, argc, argv);
    st = prepare(b, argc > 8 ? argv[8] : "cpu", &err);
    st = st < 0 ? st : run(b, &err);
    if (st < 0) {
        fprintf(stderr, "step: %s\n", err.text);
    } else {
        report(b);
    }
    if (b->device) {
        b->backend->device->close(b->device);
    }
    dataset_close(b->data);
    plan_fini(&b->plan);
    fact_set_fini(&b->facts);
    graph_fini(&b->graph);
    free(b);
    return st < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
