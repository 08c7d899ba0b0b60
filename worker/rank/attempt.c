#include "worker/rank/attempt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/log.h"
#include "proto/codec.h"
#include "worker/rank/control.h"
#include "worker/rank/inherit.h"
#include "worker/rank/report.h"
#include "worker/rank/restore.h"
#include "worker/rank/shard.h"

enum { MAX_REQUESTS = 1 << 14, CONNECT_TIMEOUT_S = 60 };

struct attempt {
    const Gems__LaunchInfo *info;
    const struct net_ops *net;
    struct link *link;
    struct control *control;
    uint8_t address[NET_MAX_ADDRESS];
    size_t address_bytes;
    const struct backend *backend;
    struct be_device *device;
    Gems__Start *start;
    struct job_spec spec;
    struct graph graph;
    struct plan plan;
    struct dataset *train, *eval;
    struct trainer *trainer;
    struct shard shard;
    struct rank_memory memory;
};

/* ---- what the trainer tells ---- */

static int on_step(void *arg, const struct trainer_step *step)
{
    struct attempt *a = arg;

    control_step(a->control, step);
    return GEMS_OK;
}

static enum trainer_wish on_wish(void *arg)
{
    struct attempt *a = arg;

    return control_wish(a->control);
}

static int on_begin(void *arg, const struct trainer_position *position, uint32_t epoch,
                    bool is_final)
{
    struct attempt *a = arg;

    return shard_begin(&a->shard, position, epoch, is_final);
}

static int on_tensor(void *arg, const struct trainer_tensor *tensor, const void *data)
{
    struct attempt *a = arg;

    return shard_tensor(&a->shard, tensor, data);
}

static int on_end(void *arg, uint32_t n_tensors)
{
    struct attempt *a = arg;

    return shard_end(&a->shard, n_tensors);
}

static const struct trainer_events events = { .step = on_step,
                                              .wish = on_wish,
                                              .checkpoint_begin = on_begin,
                                              .checkpoint_tensor = on_tensor,
                                              .checkpoint_end = on_end };

/* ---- one step after the other ---- */

/* A rank without peers needs no transport, only the loop of its thread. */
static int open_link(struct attempt *a, struct gems_error *err)
{
    int status;

    a->net = a->info->n_ranks > 1 ? net_find("ucx", err) : &net_local;
    if (!a->net) {
        return GEMS_E_UNSUPPORTED;
    }
    status = link_create(a->net, MAX_REQUESTS, false, &a->link, err);
    if (status < 0) {
        return status;
    }
    a->address_bytes = sizeof a->address;
    status = a->net->address(link_net(a->link), a->address, &a->address_bytes, err);
    if (status == GEMS_OK) {
        status = control_create(a->link, a->net, a->info, &a->control, err);
    }
    return status < 0 ? status : link_start(a->link, err);
}

static int join(struct attempt *a, struct gems_error *err)
{
    struct control_join join = { .address = a->address,
                                 .address_bytes = a->address_bytes,
                                 .net_version = a->net->version() };
    int status;

    a->backend = backend_find(a->info->backend, err);
    if (!a->backend) {
        return GEMS_E_UNSUPPORTED;
    }
    join.kind = a->backend->kind();
    status = control_join(a->control, &join, &a->start, err);
    if (status == GEMS_OK) {
        status = spec_from_proto(a->start->spec, &a->spec, err);
    }
    if (status == GEMS_OK) {
        status = graph_from_proto(a->start->graph, &a->graph, err);
    }
    if (status == GEMS_OK) {
        status = plan_from_proto(a->start->plan, &a->plan, err);
    }
    return status;
}

static int check_start(struct attempt *a, struct gems_error *err)
{
    const Gems__Start *start = a->start;

    if (start->rank != a->info->ref->rank || a->plan.n_ranks != a->info->n_ranks ||
        start->n_addresses != a->info->n_ranks || !a->plan.memory) {
        return gems_error_set(err, GEMS_E_INVALID,
                              "Start: for rank %u of %u, this is rank %u of %u", start->rank,
                              a->plan.n_ranks, a->info->ref->rank, a->info->n_ranks);
    }
    if (a->plan.stage_node[a->plan.n_stages] != a->graph.n_nodes) {
        return gems_error_set(err, GEMS_E_INVALID, "Start: the plan does not cut this graph");
    }
    return GEMS_OK;
}

static int open_device(struct attempt *a, struct gems_error *err)
{
    enum be_type type = a->spec.train.precision == PRECISION_F64 ? BE_F64 : BE_F32;
    uint32_t index;
    int status = inherit_device_index(a->info->device, &index, err);

    return status < 0 ? status
                      : a->backend->device->open(index, a->info->threads, type, &a->device, err);
}

static int open_set(const struct attempt *a, bool is_eval, bool has_images, uint64_t n_planned,
                    struct dataset **ret_set, struct gems_error *err)
{
    static const enum dataset_format formats[] = { [DATA_SYNTHETIC] = DATASET_SYNTHETIC,
                                                   [DATA_IDX] = DATASET_IDX,
                                                   [DATA_IMAGEFOLDER] = DATASET_IMAGEFOLDER };
    const struct data_spec *data = &a->spec.data;
    const char *path = is_eval ? data->eval : data->train;
    struct dataset_spec spec = { .format = formats[data->format],
                                 .path = data->format == DATA_SYNTHETIC ? NULL : path,
                                 .is_eval = is_eval,
                                 .channels = data->channels,
                                 .height = data->height,
                                 .width = data->width,
                                 .classes = a->graph.n_classes,
                                 .is_index_only = !has_images,
                                 .samples = is_eval ? data->eval_samples : data->samples,
                                 .seed = a->spec.train.seed };
    int status = dataset_open(&spec, ret_set, err);

    if (status == GEMS_OK && dataset_samples(*ret_set) != n_planned) {
        return gems_error_set(err, GEMS_E_DATA,
                              "%s: %" PRIu64 " samples, %" PRIu64 " when it was planned", path,
                              dataset_samples(*ret_set), n_planned);
    }
    return status;
}

static int open_data(struct attempt *a, struct gems_error *err)
{
    uint32_t stages[PLAN_MAX_RESIDENT];
    uint32_t n = plan_resident(&a->plan, a->start->rank, stages);
    int status = GEMS_OK;

    if (n == 0 || (stages[0] != 0 && stages[n - 1] + 1 != a->plan.n_stages)) {
        return GEMS_OK;
    }
    /* Images go into first stages only: with a last one alone the labels do. */
    status = open_set(a, false, stages[0] == 0, a->plan.n_train, &a->train, err);
    if (status == GEMS_OK && a->plan.n_eval != 0) {
        status = open_set(a, true, stages[0] == 0, a->plan.n_eval, &a->eval, err);
    }
    return status;
}

static int connect_peers(struct attempt *a, struct gems_error *err)
{
    const Gems__Start *start = a->start;
    struct net_config config = { .job = a->info->ref->job,
                                 .attempt = a->info->ref->attempt,
                                 .rank = start->rank,
                                 .n_ranks = a->info->n_ranks };
    const uint8_t **addresses;
    size_t *bytes;
    int status;

    if (a->info->n_ranks == 1) {
        return GEMS_OK;
    }
    control_phase(a->control, "connecting");
    addresses = calloc(config.n_ranks, sizeof *addresses);
    bytes = calloc(config.n_ranks, sizeof *bytes);
    if (!addresses || !bytes) {
        free(addresses);
        free(bytes);
        return gems_error_set(err, GEMS_E_NOMEM, "addresses: no memory");
    }
    for (uint32_t i = 0; i < config.n_ranks; i++) {
        addresses[i] = start->addresses[i].data;
        bytes[i] = start->addresses[i].len;
    }
    memcpy(config.secret, a->info->secret.data, sizeof config.secret);
    status = link_connect(a->link, &config, addresses, bytes, CONNECT_TIMEOUT_S, err);
    explicit_bzero(config.secret, sizeof config.secret);
    free(addresses);
    free(bytes);
    return status;
}

static int build(struct attempt *a, struct gems_error *err)
{
    struct trainer_config config = { .spec = &a->spec,
                                     .graph = &a->graph,
                                     .plan = &a->plan,
                                     .rank = a->start->rank,
                                     .backend = a->backend,
                                     .device = a->device,
                                     .link = a->info->n_ranks > 1 ? a->link : NULL,
                                     .train = a->train,
                                     .eval = a->eval,
                                     .events = &events,
                                     .events_arg = a };
    int status;

    control_phase(a->control, "building");
    a->shard.control = a->control;
    if (a->info->memory_bytes != 0 &&
        (a->plan.memory[config.rank].limit_bytes == 0 ||
         a->plan.memory[config.rank].limit_bytes > a->info->memory_bytes)) {
        a->plan.memory[config.rank].limit_bytes = a->info->memory_bytes;
    }
    status = trainer_create(&config, &a->trainer, err);
    if (status == GEMS_OK) {
        trainer_memory(a->trainer, &a->memory);
    }
    return status;
}

/* Samples seen after so many steps: a short step ends each epoch. */
static uint64_t samples_after(const struct plan *plan, const struct job_spec *spec, uint64_t step)
{
    uint64_t epochs = step / plan->steps_per_epoch, rest = step % plan->steps_per_epoch;

    return epochs * plan->n_train + rest * spec->train.batch;
}

static int train(struct attempt *a, struct gems_error *err)
{
    struct trainer_position from = { 0, 0 };
    int status = GEMS_OK;

    if (a->start->has_restore) {
        control_phase(a->control, "restoring");
        from.step = a->start->restore_step;
        from.samples = samples_after(&a->plan, &a->spec, from.step);
        status = restore_run(a->control, a->trainer, from.step, err);
    }
    if (status < 0) {
        return status;
    }
    log_info("job %" PRIu64 " attempt %u rank %u: trains from step %" PRIu64 " with %" PRIu64 " bytes",
             a->info->ref->job, a->info->ref->attempt, a->info->ref->rank, from.step,
             a->memory.total_bytes);
    control_watch(a->control, trainer_watch(a->trainer), a->memory.total_bytes);
    return trainer_run(a->trainer, &from, err);
}

static int run(struct attempt *a, struct gems_error *err)
{
    static int (*const steps[])(struct attempt *, struct gems_error *) = {
        open_link, join, check_start, open_device, open_data, connect_peers, build, train,
    };

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        int status = steps[i](a, err);

        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

/* ---- the end ---- */

static const char *failure_class(int status)
{
    switch (status) {
    case GEMS_OK:
    case GEMS_E_CANCELLED:
        return "";
    case GEMS_E_INVALID:
    case GEMS_E_UNSUPPORTED:
        return "spec";
    case GEMS_E_NOMEM:
    case GEMS_E_NOFIT:
        return "oom";
    case GEMS_E_PEER:
        return "transport";
    case GEMS_E_DEVICE:
        return "device";
    case GEMS_E_TIMEOUT:
        return "timeout";
    case GEMS_E_DATA:
    case GEMS_E_NOTFOUND:
    case GEMS_E_DENIED:
        return "data";
    case GEMS_E_DISKFULL:
        return "disk-full";
    case GEMS_E_NAN:
        return "nan";
    default:
        return "internal";
    }
}

/* The transport says "... rank 2: ..."; people know the device. */
static void name_peer(const struct attempt *a, struct gems_error *err)
{
    const Gems__Start *start = a->start;
    const char *peer = strstr(err->text, "rank ");
    struct gems_error named = *err;
    unsigned rank;

    if (start && peer && sscanf(peer, "rank %u", &rank) == 1 && rank < start->n_rank_names) {
        gems_error_set(&named, err->status, "lost %s: %s", start->rank_names[rank], err->text);
        *err = named;
    }
}

/* A job that is done says so until it is heard; a failure is told once: the
 * agent sees the exit, too. */
static void tell_end(struct attempt *a, int status, const struct gems_error *err)
{
    Gems__End end = GEMS__END__INIT;
    struct gems_error failure;
    double seconds[TIMELINE_SPENT];
    bool is_done = status == GEMS_OK || status == GEMS_E_CANCELLED;
    int told;

    if (!a->control || !a->start) {
        return;
    }
    end.ref = a->info->ref;
    end.status = status;
    end.text = (char *)(status < 0 ? err->text : "");
    end.failure_class = (char *)failure_class(status);
    end.step = a->trainer ? atomic_load(&trainer_watch(a->trainer)->step) : 0;
    if (a->trainer) {
        end.step_seconds = seconds;
        end.n_step_seconds = report_step_seconds(trainer_watch(a->trainer), seconds);
    }
    end.peak_rss_bytes = report_peak_rss_bytes();
    end.allocated_bytes = a->memory.total_bytes;
    do {
        if (is_done) {
            control_wait_attached(a->control);
        }
        told = control_call(a->control, MSG_END, &end.base, NULL, NULL, &failure);
    } while (told == GEMS_E_PEER && is_done);
    if (told < 0) {
        log_warning("gemsd was not told of the end: %s", failure.text);
    }
}

int attempt_run(const Gems__LaunchInfo *info, struct gems_error *err)
{
    struct attempt *a = calloc(1, sizeof *a);
    int status;

    if (!a) {
        return gems_error_set(err, GEMS_E_NOMEM, "attempt: no memory");
    }
    a->info = info;
    status = run(a, err);
    if (status == GEMS_E_PEER) {
        name_peer(a, err);
    }
    if (status == GEMS_OK) {
        log_info("job %" PRIu64 " attempt %u rank %u: done", info->ref->job, info->ref->attempt,
                 info->ref->rank);
    } else if (status != GEMS_E_CANCELLED) {
        log_error("job %" PRIu64 " attempt %u rank %u: %s", info->ref->job, info->ref->attempt,
                  info->ref->rank, err->text);
    }
    tell_end(a, status, err);
    return status;
}
