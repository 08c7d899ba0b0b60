#include "tests/unit/trainer_lab.h"

#include <check.h>
#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/hash.h"
#include "model/passes.h"
#include "worker/net/local.h"

/* ---- allocations of a thread ---- */

static _Thread_local uint64_t n_allocations;

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
bool lab_counts_allocations(void)
{
    return false;
}
#else
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

bool lab_counts_allocations(void)
{
    return true;
}

void *malloc(size_t bytes)
{
    n_allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    n_allocations++;
    return __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    n_allocations++;
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    n_allocations++;
    return __libc_memalign(align, bytes);
}

int posix_memalign(void **ret_memory, size_t align, size_t bytes)
{
    n_allocations++;
    *ret_memory = __libc_memalign(align, bytes);
    return *ret_memory ? 0 : ENOMEM;
}
#endif

/* ---- a job ---- */

struct lab {
    struct job_spec spec;
    struct graph graph;
    const struct lab_options *options;
    const struct backend *backend;
    struct lab_result *result;
    pthread_mutex_t lock;
    struct lab_checkpoint open; /* being collected */
    uint32_t n_begun, n_ended;
};

struct lab_thread {
    struct lab *lab;
    uint32_t rank;
    struct link *link;
    uint64_t step; /* last one done */
};

static void expect_ok(int status, const struct gems_error *err)
{
    ck_assert_msg(status >= 0, "%s (%s)", err->text, err->hint);
}

/* Puts a dropout behind every dense layer with a ReLU. */
static void add_dropouts(struct graph *graph)
{
    uint32_t *stands_for = calloc(graph->n_nodes, sizeof *stands_for);
    struct gems_error err;
    struct graph with;
    int index;

    ck_assert_ptr_nonnull(stands_for);
    graph_init(&with, graph->name, graph->n_classes);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        struct node node = graph->nodes[i];

        for (uint32_t k = 0; k < node.n_inputs; k++) {
            node.inputs[k] = stands_for[node.inputs[k]];
        }
        expect_ok(index = graph_add(&with, &node, &err), &err);
        stands_for[i] = (uint32_t)index;
        if (node.kind == OP_DENSE && node.is_relu) {
            struct node dropout = { .kind = OP_DROPOUT, .layer = node.layer, .n_inputs = 1,
                                    .inputs = { stands_for[i] }, .rate = 0.3 };

            snprintf(dropout.name, sizeof dropout.name, "dropout%u", i);
            expect_ok(index = graph_add(&with, &dropout, &err), &err);
            stands_for[i] = (uint32_t)index;
        }
    }
    free(stands_for);
    graph_fini(graph);
    *graph = with;
}

void lab_graph(const struct job_spec *spec, struct graph *ret_graph)
{
    struct gems_error err;

    expect_ok(zoo_build(&spec->model, ret_graph, &err), &err);
    expect_ok(graph_fuse(ret_graph, &err), &err);
    if (!strcmp(spec->name, "dropout")) {
        add_dropouts(ret_graph);
        expect_ok(graph_check(ret_graph, &err), &err);
    }
}

void lab_spec(const char *model, struct job_spec *ret_spec)
{
    struct job_spec *s = ret_spec;
    bool is_mlp = !strcmp(model, "mlp") || !strcmp(model, "dropout");
    bool is_lenet = !strcmp(model, "lenet"), is_amoebanet = !strcmp(model, "amoebanet");

    spec_init(s);
    snprintf(s->name, sizeof s->name, "%s", model);
    snprintf(s->model.zoo, sizeof s->model.zoo, "%s",
             is_mlp         ? "mlp"
             : is_lenet     ? "lenet"
             : is_amoebanet ? "amoebanet-d"
                            : "resnet");
    s->model.classes = 5;
    if (is_mlp) {
        s->model.n_hidden = 4;
        for (uint32_t i = 0; i < 4; i++) {
            s->model.hidden[i] = 24 + 8 * i;
        }
    } else if (is_amoebanet) {
        s->model.layers = 3;
        s->model.filters = 16;
    } else if (!is_lenet) {
        s->model.version = !strcmp(model, "resnet2") ? 2 : 1;
        s->model.depth = 20;
    }
    s->data.format = DATA_SYNTHETIC;
    s->data.samples = 20;
    s->data.eval_samples = 11;
    s->data.channels = is_mlp ? 1 : 3;
    s->data.height = s->data.width = is_lenet ? 28 : is_amoebanet ? 64 : 8;
    s->model.channels = s->data.channels;
    s->model.height = s->data.height;
    s->model.width = s->data.width;
    s->data.is_flip = s->data.is_shift = true;
    s->train.epochs = 2;
    s->train.batch = 7; /* 20 samples: steps of 7, 7, 6 */
    s->train.lr = 0.05;
    s->train.momentum = 0.9;
    s->train.weight_decay = 1e-3;
    s->train.is_nesterov = true;
    s->train.schedule = LR_COSINE;
    s->train.warmup_epochs = 0.5;
    s->train.seed = 7;
    s->parallel.microbatch = 2; /* 2, 2, 2, 1 and 2, 2, 2 */
    s->parallel.gradient_blocks = 2;
    s->parallel.schedule = SCHEDULE_SINGLE;
    s->parallel.stages = 1;
    s->parallel.groups = 1;
    s->parallel.recompute = RECOMPUTE_NONE;
    s->resources.kind = DEVICE_ANY;
    s->checkpoint_every_epochs = 1;
}

static enum be_type element_type(const struct lab *lab)
{
    return lab->spec.train.precision == PRECISION_F64 ? BE_F64 : BE_F32;
}

/* As gems-inspect answers: every node, both modes. */
static void inspect_node(const struct lab *lab, struct be_device *device, uint32_t node,
                         uint32_t batch, struct op_facts *ret_facts)
{
    for (int mode = BE_TRAIN; mode <= BE_EVAL; mode++) {
        struct be_op_desc desc = { &lab->graph, node, batch, (enum be_mode)mode };
        struct be_op_info info;
        struct gems_error err;

        expect_ok(lab->backend->ops->describe(device, &desc, &info, &err), &err);
        if (info.scratch_bytes > ret_facts->scratch_bytes) {
            ret_facts->scratch_bytes = info.scratch_bytes;
        }
        if (mode == BE_TRAIN) {
            ret_facts->out_bytes = info.out_bytes;
            ret_facts->kept_bytes = info.kept_bytes;
            ret_facts->param_bytes = info.param_bytes;
            ret_facts->param2_bytes = info.param2_bytes;
        }
    }
    ret_facts->scratch_bytes += lab->options->planted_bytes;
    ret_facts->forward_seconds = ret_facts->backward_input_seconds =
        ret_facts->backward_weight_seconds = 1e-6;
}

static void inspect(const struct lab *lab, struct fact_set *ret_facts)
{
    uint64_t n_train = lab->spec.data.samples, n_eval = lab->spec.data.eval_samples;
    uint32_t sizes[FACTS_MAX_SIZES];
    struct be_device *device;
    struct gems_error err;

    *ret_facts = (struct fact_set){ .n_train = n_train, .n_eval = n_eval };
    ret_facts->n_sizes = planner_batch_sizes(&lab->spec, n_train, n_eval, sizes);
    expect_ok(lab->backend->device->open(0, 1, element_type(lab), &device, &err), &err);
    for (uint32_t i = 0; i < ret_facts->n_sizes; i++) {
        struct facts *facts = &ret_facts->sizes[i];

        *facts =
            (struct facts){ .batch = sizes[i], .n_nodes = lab->graph.n_nodes, .is_exact = true };
        facts->ops = calloc(facts->n_nodes, sizeof *facts->ops);
        for (uint32_t node = 0; node < facts->n_nodes; node++) {
            inspect_node(lab, device, node, sizes[i], &facts->ops[node]);
        }
    }
    lab->backend->device->close(device);
}

static void plan_job(struct lab *lab)
{
    struct plan_device devices[LAB_MAX_RANKS];
    struct fact_set facts;
    struct gems_error err;
    uint32_t n = lab->spec.parallel.stages * lab->spec.parallel.groups;

    for (uint32_t i = 0; i < LAB_MAX_RANKS; i++) {
        devices[i] = (struct plan_device){
            .kind = DEVICE_CPU, .memory_bytes = 4ull << 30, .speed = 1, .threads = 1
        };
    }
    expect_ok(planner_settle(&lab->graph, &lab->spec, &err), &err);
    inspect(lab, &facts);
    expect_ok(planner_plan(&lab->graph, &lab->spec, &facts, devices, n, &lab->result->plan, &err),
              &err);
    ck_assert_msg(lab->result->plan.fits, "%s", lab->result->plan.advice);
    ck_assert_uint_le(lab->result->plan.n_ranks, LAB_MAX_RANKS);
    lab->result->n_ranks = lab->result->plan.n_ranks;
    fact_set_fini(&facts);
}

/* ---- events: all ranks into one result ---- */

static int on_step(void *arg, const struct trainer_step *step)
{
    struct lab_thread *thread = arg;
    struct lab_result *result = thread->lab->result;

    if (step->step >= LAB_MAX_STEPS) {
        return GEMS_E_INTERNAL;
    }
    pthread_mutex_lock(&thread->lab->lock);
    if (step->is_eval) {
        result->eval_loss[step->step] += step->loss_sum;
        result->eval_counted[step->step] += step->counted;
        result->eval_correct[step->step] += step->n_correct;
    } else {
        result->loss[step->step] += step->loss_sum;
        result->counted[step->step] += step->counted;
    }
    pthread_mutex_unlock(&thread->lab->lock);
    return GEMS_OK;
}

static enum trainer_wish on_wish(void *arg)
{
    struct lab_thread *thread = arg;
    const struct lab_options *options = thread->lab->options;

    thread->step++;
    return thread->step == options->wish_after ? options->wish : TRAINER_GO_ON;
}

static void checkpoint_fini(struct lab_checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < checkpoint->n_tensors; i++) {
        free(checkpoint->tensors[i].data);
    }
    free(checkpoint->tensors);
    memset(checkpoint, 0, sizeof *checkpoint);
}

static int on_begin(void *arg, const struct trainer_position *position, uint32_t epoch,
                    bool is_final)
{
    struct lab_thread *thread = arg;
    struct lab *lab = thread->lab;
    uint64_t before = n_allocations;

    (void)epoch;
    pthread_mutex_lock(&lab->lock);
    /* no rank is a whole checkpoint ahead of another: reductions hold them together */
    while (lab->n_begun > 0 && lab->open.position.step != position->step) {
        pthread_mutex_unlock(&lab->lock);
        sched_yield();
        pthread_mutex_lock(&lab->lock);
    }
    if (lab->n_begun++ == 0) {
        lab->open.position = *position;
        lab->open.is_final = is_final;
    }
    ck_assert_uint_eq(lab->open.position.samples, position->samples);
    ck_assert_int_eq(lab->open.is_final, is_final);
    pthread_mutex_unlock(&lab->lock);
    n_allocations = before; /* Check's and the lab's own do not count */
    return GEMS_OK;
}

static int on_tensor(void *arg, const struct trainer_tensor *tensor, const void *data)
{
    struct lab_thread *thread = arg;
    struct lab *lab = thread->lab;
    uint64_t before = n_allocations;
    struct lab_tensor *copy;

    pthread_mutex_lock(&lab->lock);
    lab->open.tensors = realloc(lab->open.tensors, (lab->open.n_tensors + 1) * sizeof *copy);
    copy = &lab->open.tensors[lab->open.n_tensors++];
    *copy = (struct lab_tensor){ .order = tensor->order,
                                 .bytes = tensor->bytes,
                                 .data = malloc(tensor->bytes) };
    snprintf(copy->name, sizeof copy->name, "%s", tensor->name);
    snprintf(copy->kind, sizeof copy->kind, "%s", tensor->kind);
    memcpy(copy->data, data, tensor->bytes);
    pthread_mutex_unlock(&lab->lock);
    n_allocations = before;
    return GEMS_OK;
}

static int compare_tensors(const void *a, const void *b)
{
    const struct lab_tensor *x = a, *y = b;
    int kinds = strcmp(x->kind, y->kind);

    return kinds ? kinds : x->order < y->order ? -1 : x->order > y->order;
}

static uint64_t hash_kind(const struct lab_checkpoint *checkpoint, bool is_weights)
{
    struct hash_stream *stream = hash_create(NULL);
    uint8_t bytes[HASH_BYTES];
    uint64_t hash;

    for (uint32_t i = 0; i < checkpoint->n_tensors; i++) {
        const struct lab_tensor *t = &checkpoint->tensors[i];

        if (!strcmp(t->kind, "weight") == is_weights) {
            hash_add(stream, t->name, strlen(t->name));
            hash_add(stream, t->data, t->bytes);
        }
    }
    hash_value(stream, bytes);
    hash_destroy(stream);
    memcpy(&hash, bytes, sizeof hash);
    return hash;
}

/* The last rank closes the checkpoint. */
static void close_checkpoint(struct lab *lab)
{
    struct lab_result *result = lab->result;
    struct lab_checkpoint *open = &lab->open;

    ck_assert_uint_eq(open->n_tensors, open->n_announced);
    qsort(open->tensors, open->n_tensors, sizeof *open->tensors, compare_tensors);
    result->n_checkpoints++;
    if (open->position.step == lab->options->keep_step) {
        checkpoint_fini(&result->kept);
        result->kept = *open;
    } else if (open->is_final) {
        checkpoint_fini(&result->final);
        result->final = *open;
        result->weights_hash = hash_kind(open, true);
        result->state_hash = hash_kind(open, false);
    } else {
        checkpoint_fini(open);
    }
    memset(open, 0, sizeof *open);
    lab->n_begun = lab->n_ended = 0;
}

static int on_end(void *arg, uint32_t n_tensors)
{
    struct lab_thread *thread = arg;
    struct lab *lab = thread->lab;
    uint64_t before = n_allocations;

    pthread_mutex_lock(&lab->lock);
    lab->open.n_announced += n_tensors;
    if (++lab->n_ended == lab->result->n_ranks) {
        close_checkpoint(lab);
    }
    pthread_mutex_unlock(&lab->lock);
    n_allocations = before;
    return GEMS_OK;
}

static const struct trainer_events events = { .step = on_step,
                                              .wish = on_wish,
                                              .checkpoint_begin = on_begin,
                                              .checkpoint_tensor = on_tensor,
                                              .checkpoint_end = on_end };

/* ---- a rank ---- */

const struct lab_tensor *lab_find(const struct lab_checkpoint *checkpoint, const char *kind,
                                  const char *name)
{
    for (uint32_t i = 0; i < checkpoint->n_tensors; i++) {
        if (!strcmp(checkpoint->tensors[i].kind, kind) &&
            !strcmp(checkpoint->tensors[i].name, name)) {
            return &checkpoint->tensors[i];
        }
    }
    return NULL;
}

static int restore(struct lab *lab, struct trainer *trainer, struct gems_error *err)
{
    struct trainer_tensor tensor;

    for (uint32_t i = 0; trainer_tensor_at(trainer, i, &tensor); i++) {
        const struct lab_tensor *saved = lab_find(lab->options->restore, tensor.kind, tensor.name);
        int status;

        ck_assert_msg(saved && saved->bytes == tensor.bytes, "%s %s is not in the checkpoint",
                      tensor.kind, tensor.name);
        status = trainer_import(trainer, i, saved->data, err);
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

static void poison(struct lab *lab, struct trainer *trainer)
{
    struct trainer_tensor tensor;

    for (uint32_t i = 0; trainer_tensor_at(trainer, i, &tensor); i++) {
        if (!strcmp(tensor.name, lab->options->nan_tensor) && !strcmp(tensor.kind, "weight")) {
            float *values = malloc(tensor.bytes);

            for (uint64_t k = 0; k < tensor.bytes / sizeof *values; k++) {
                values[k] = NAN;
            }
            ck_assert_int_eq(trainer_import(trainer, i, values, NULL), GEMS_OK);
            free(values);
        }
    }
}

static int open_data(const struct lab *lab, bool is_eval, struct dataset **ret_set,
                     struct gems_error *err)
{
    const struct data_spec *data = &lab->spec.data;
    struct dataset_spec spec = { .format = DATASET_SYNTHETIC,
                                 .is_eval = is_eval,
                                 .channels = data->channels,
                                 .height = data->height,
                                 .width = data->width,
                                 .classes = lab->spec.model.classes,
                                 .samples = is_eval ? data->eval_samples : data->samples,
                                 .seed = lab->spec.train.seed };

    return dataset_open(&spec, ret_set, err);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void copy_times(const struct trainer_watch *watch, struct lab_rank *rank)
{
    rank->busy_ns = atomic_load(&watch->busy_ns);
    rank->wait_ns = atomic_load(&watch->wait_ns);
    for (int kind = 0; kind < TIMELINE_SPENT; kind++) {
        rank->step_ns[kind] = atomic_load(&watch->step_ns[kind]);
    }
}

static int train(struct lab_thread *thread, struct trainer_config *config, struct lab_rank *rank,
                 struct trainer **ret_trainer)
{
    struct lab *lab = thread->lab;
    struct trainer_position start = { 0, 0 };
    int status = trainer_create(config, ret_trainer, &rank->err);
    uint64_t before;

    if (status < 0) {
        return status;
    }
    trainer_memory(*ret_trainer, &rank->taken);
    rank->planned = lab->result->plan.memory[thread->rank];
    if (lab->options->restore) {
        start = lab->options->restore->position;
        status = restore(lab, *ret_trainer, &rank->err);
        if (status < 0) {
            return status;
        }
    }
    if (lab->options->nan_tensor) {
        poison(lab, *ret_trainer);
    }
    thread->step = start.step;
    before = n_allocations;
    rank->run_ns = now_ns();
    status = trainer_run(*ret_trainer, &start, &rank->err);
    rank->run_ns = now_ns() - rank->run_ns;
    rank->n_allocations = n_allocations - before;
    copy_times(trainer_watch(*ret_trainer), rank);
    return status;
}

static void *run_rank(void *arg)
{
    struct lab_thread *thread = arg;
    struct lab *lab = thread->lab;
    struct lab_rank *rank = &lab->result->ranks[thread->rank];
    struct trainer_config config = { .spec = &lab->spec,
                                     .graph = &lab->graph,
                                     .plan = &lab->result->plan,
                                     .rank = thread->rank,
                                     .backend = lab->backend,
                                     .link = thread->link,
                                     .events = &events,
                                     .events_arg = thread };
    struct trainer *trainer = NULL;
    bool has_eval = lab->spec.data.eval_samples != 0;

    expect_ok(
        lab->backend->device->open(thread->rank, 1, element_type(lab), &config.device, &rank->err),
        &rank->err);
    expect_ok(open_data(lab, false, &config.train, &rank->err), &rank->err);
    if (has_eval) {
        expect_ok(open_data(lab, true, &config.eval, &rank->err), &rank->err);
    }
    rank->status = train(thread, &config, rank, &trainer);
    if (rank->status < 0 && thread->link) {
        link_abort(thread->link, rank->status, rank->err.text);
    }
    link_destroy(thread->link);
    trainer_destroy(trainer);
    dataset_close(config.train);
    dataset_close(config.eval);
    lab->backend->device->close(config.device);
    return NULL;
}

/* ---- the network ---- */

struct addresses {
    uint8_t bytes[LAB_MAX_RANKS][NET_MAX_ADDRESS];
    const uint8_t *pointers[LAB_MAX_RANKS];
    size_t sizes[LAB_MAX_RANKS];
};

struct connecting {
    struct lab_thread *thread;
    const struct addresses *addresses;
    uint64_t job;
    uint32_t n_ranks;
};

static void *connect_rank(void *arg)
{
    struct connecting *c = arg;
    struct net_config config = {
        .job = c->job, .attempt = 1, .rank = c->thread->rank, .n_ranks = c->n_ranks
    };
    struct gems_error err;

    memset(config.secret, 0x5a, sizeof config.secret);
    expect_ok(link_start(c->thread->link, &err), &err);
    expect_ok(link_connect(c->thread->link, &config, c->addresses->pointers, c->addresses->sizes,
                           20, &err),
              &err);
    return NULL;
}

static void connect_ranks(struct lab_thread *threads, uint32_t n)
{
    static uint64_t job;
    static struct addresses addresses;
    struct connecting connecting[LAB_MAX_RANKS];
    pthread_t ids[LAB_MAX_RANKS];
    struct gems_error err;

    job++;
    for (uint32_t i = 0; i < n; i++) {
        expect_ok(link_create(&net_local, 4096, false, &threads[i].link, &err), &err);
        addresses.sizes[i] = NET_MAX_ADDRESS;
        addresses.pointers[i] = addresses.bytes[i];
        expect_ok(net_local.address(link_net(threads[i].link), addresses.bytes[i],
                                    &addresses.sizes[i], &err),
                  &err);
        connecting[i] = (struct connecting){ &threads[i], &addresses, job, n };
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_create(&ids[i], NULL, connect_rank, &connecting[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(ids[i], NULL);
    }
}

void lab_run(const struct job_spec *spec, const struct lab_options *options,
             struct lab_result *ret_result)
{
    static const struct lab_options none = { 0 };
    struct lab lab = { .spec = *spec,
                       .options = options ? options : &none,
                       .result = ret_result,
                       .lock = PTHREAD_MUTEX_INITIALIZER };
    struct lab_thread threads[LAB_MAX_RANKS] = { 0 };
    pthread_t ids[LAB_MAX_RANKS];
    struct gems_error err;

    memset(ret_result, 0, sizeof *ret_result);
    lab.backend = backend_find(lab.options->backend ? lab.options->backend : "ref", &err);
    ck_assert_msg(lab.backend, "%s", err.text);
    lab_graph(&lab.spec, &lab.graph);
    plan_job(&lab);
    for (uint32_t i = 0; i < ret_result->n_ranks; i++) {
        threads[i] = (struct lab_thread){ .lab = &lab, .rank = i };
    }
    if (ret_result->n_ranks > 1) {
        connect_ranks(threads, ret_result->n_ranks);
    }
    net_local_set_delays(spec->train.seed, lab.options->max_delay_us);
    for (uint32_t i = 0; i < ret_result->n_ranks; i++) {
        pthread_create(&ids[i], NULL, run_rank, &threads[i]);
    }
    for (uint32_t i = 0; i < ret_result->n_ranks; i++) {
        pthread_join(ids[i], NULL);
    }
    net_local_set_delays(0, 0);
    checkpoint_fini(&lab.open);
    graph_fini(&lab.graph);
}

void lab_result_fini(struct lab_result *result)
{
    checkpoint_fini(&result->final);
    checkpoint_fini(&result->kept);
    plan_fini(&result->plan);
}
