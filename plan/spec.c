/* Defaults and checks of a job.
 *
 * spec_check runs on the client (job file) and again in gemsd (message), so it
 * trusts nothing: enums are ranges here, texts are looked at within their
 * arrays. One function a section of the job file; each names the key. */
#include "plan/spec.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "plan/sched.h"

/* Limits that keep sums and tags in their types. */
enum { MAX_SIDE = 1 << 16, MAX_CHANNELS = 1 << 12, MAX_BATCH = 1 << 20, MAX_KEEP = 1000 };

void spec_init(struct job_spec *spec)
{
    *spec = (struct job_spec){
        .model = { .channels = 3 },
        .data = { .channels = 3, .mean = 0.5, .std = 0.25 },
        .train = {
            .batch = 32,
            .optimizer = OPTIMIZER_SGD,
            .momentum = 0.9,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .eps = 1e-8,
            .schedule = LR_CONSTANT,
            .lr_step_epochs = 30,
            .lr_gamma = 0.1,
            .precision = PRECISION_FP32,
            .seed = 1,
        },
        .parallel = {
            .schedule = SCHEDULE_AUTO,
            .chunks = 2,
            .replications = 2,
            .recompute = RECOMPUTE_AUTO,
        },
        .checkpoint_every_epochs = 1,
        .checkpoint_keep = 3,
        .checkpoint_keep_best = 1,
        .max_restarts = 3,
    };
}

static int invalid(struct gems_error *err, const char *hint, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int invalid(struct gems_error *err, const char *hint, const char *format, ...)
{
    char text[sizeof err->text];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    gems_error_set(err, GEMS_E_INVALID, "%s", text);
    if (hint) {
        gems_error_hint(err, "%s", hint);
    }
    return GEMS_E_INVALID;
}

/* Is text ended within its array and free of control characters? */
static bool is_text(const char *text, size_t size)
{
    const char *end = memchr(text, '\0', size);

    if (!end) {
        return false;
    }
    for (const char *c = text; c < end; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            return false;
        }
    }
    return true;
}

static int check_path(const char *key, const char *path, bool is_needed, struct gems_error *err)
{
    if (!is_text(path, SPEC_PATH_BYTES)) {
        return invalid(err, "at most 1023 bytes, no control characters", "%s: bad path", key);
    }
    if (!path[0]) {
        return is_needed ? invalid(err, NULL, "%s: is missing", key) : GEMS_OK;
    }
    if (path[0] != '/') {
        return invalid(err, "paths in a job are absolute; gems-client makes them so",
                       "%s: '%.200s' is not absolute", key, path);
    }
    return GEMS_OK;
}

/* What a job file does not name is 0 here. */
static int check_range(const char *key, uint64_t value, uint64_t low, uint64_t high,
                       struct gems_error *err)
{
    if (value == 0 && low > 0) {
        return gems_error_set(err, GEMS_E_INVALID, "%s: is missing or 0; wanted is %llu to %llu",
                              key, (unsigned long long)low, (unsigned long long)high);
    }
    if (value < low || value > high) {
        return gems_error_set(err, GEMS_E_INVALID, "%s: %llu is not in %llu..%llu", key,
                              (unsigned long long)value, (unsigned long long)low,
                              (unsigned long long)high);
    }
    return GEMS_OK;
}

/* Finite and low <= value < high. */
static int check_real(const char *key, double value, double low, double high,
                      struct gems_error *err)
{
    if (!isfinite(value) || value < low || value >= high) {
        return gems_error_set(err, GEMS_E_INVALID, "%s: %g is not in %g..%g (excluded)", key, value,
                              low, high);
    }
    return GEMS_OK;
}

static int check_size(const struct job_spec *spec, struct gems_error *err)
{
    const struct data_spec *data = &spec->data;
    const struct zoo_spec *model = &spec->model;
    int status;

    if ((status = check_range("data.size[0]", data->height, 1, MAX_SIDE, err)) < 0 ||
        (status = check_range("data.size[1]", data->width, 1, MAX_SIDE, err)) < 0 ||
        (status = check_range("data.channels", data->channels, 1, MAX_CHANNELS, err)) < 0) {
        return status;
    }
    if (model->height != data->height || model->width != data->width ||
        model->channels != data->channels) {
        return invalid(err, NULL, "data.size: images are %ux%ux%u, the model takes %ux%ux%u",
                       data->channels, data->height, data->width, model->channels, model->height,
                       model->width);
    }
    return GEMS_OK;
}

static int check_data(const struct job_spec *spec, struct gems_error *err)
{
    const struct data_spec *data = &spec->data;
    int status;

    if ((unsigned)data->format > DATA_IMAGEFOLDER) {
        return invalid(err, NULL, "data.format: %d is unknown", (int)data->format);
    }
    if ((status = check_path("data.train", data->train, data->format != DATA_SYNTHETIC, err)) < 0 ||
        (status = check_path("data.eval", data->eval, false, err)) < 0) {
        return status;
    }
    if (data->format == DATA_SYNTHETIC && !data->samples) {
        return invalid(err, "for example samples: 1024", "data.samples: is missing or 0");
    }
    if ((status = check_range("data.samples", data->samples, 0, UINT32_MAX, err)) < 0 ||
        (status = check_range("data.eval_samples", data->eval_samples, 0, UINT32_MAX, err)) < 0) {
        return status;
    }
    if ((status = check_size(spec, err)) < 0 ||
        (status = check_real("data.mean", data->mean, -1e6, 1e6, err)) < 0) {
        return status;
    }
    if (!isfinite(data->std) || data->std <= 0) {
        return invalid(err, NULL, "data.std: %g is not above 0", data->std);
    }
    return GEMS_OK;
}

static int check_optimizer(const struct train_spec *train, struct gems_error *err)
{
    int status;

    if ((unsigned)train->optimizer > OPTIMIZER_ADAMW) {
        return invalid(err, NULL, "train.optimizer: %d is unknown", (int)train->optimizer);
    }
    if ((status = check_real("train.lr", train->lr, 0, 1e6, err)) < 0 ||
        (status = check_real("train.momentum", train->momentum, 0, 1, err)) < 0 ||
        (status = check_real("train.weight_decay", train->weight_decay, 0, 1e3, err)) < 0 ||
        (status = check_real("train.betas[0]", train->beta1, 0, 1, err)) < 0 ||
        (status = check_real("train.betas[1]", train->beta2, 0, 1, err)) < 0) {
        return status;
    }
    if (!isfinite(train->eps) || train->eps <= 0) {
        return invalid(err, NULL, "train.eps: %g is not above 0", train->eps);
    }
    if (train->is_nesterov && (train->optimizer != OPTIMIZER_SGD || train->momentum == 0)) {
        return invalid(err, "nesterov belongs to optimizer: sgd with a momentum above 0",
                       "train.nesterov: needs momentum");
    }
    return GEMS_OK;
}

static int check_train(const struct job_spec *spec, struct gems_error *err)
{
    const struct train_spec *train = &spec->train;
    int status;

    if (!train->epochs && !train->steps) {
        return invalid(err, NULL, "train.epochs: give epochs or steps, at least 1");
    }
    if (train->epochs && train->steps) {
        return invalid(err, NULL, "train.steps: give epochs or steps, not both");
    }
    if ((status = check_range("train.epochs", train->epochs, 0, 1000000, err)) < 0 ||
        (status = check_range("train.steps", train->steps, 0, UINT32_MAX, err)) < 0 ||
        (status = check_range("train.batch", train->batch, 1, MAX_BATCH, err)) < 0 ||
        (status = check_optimizer(train, err)) < 0 ||
        (status = check_real("train.warmup_epochs", train->warmup_epochs, 0, 1e6, err)) < 0) {
        return status;
    }
    if ((unsigned)train->schedule > LR_COSINE) {
        return invalid(err, NULL, "train.schedule: %d is unknown", (int)train->schedule);
    }
    if (train->schedule == LR_STEP && !train->lr_step_epochs) {
        return invalid(err, NULL, "train.lr_step_epochs: 0 is not at least 1");
    }
    if ((status = check_real("train.lr_gamma", train->lr_gamma, 0, 1e3, err)) < 0) {
        return status;
    }
    if ((unsigned)train->precision > PRECISION_F64) {
        return invalid(err, NULL, "train.precision: %d is unknown", (int)train->precision);
    }
    if (train->precision == PRECISION_F64 && spec->resources.kind != DEVICE_REF) {
        return invalid(err, "resources.kind: ref", "train.precision: f64 runs on kind ref only");
    }
    return GEMS_OK;
}

static int later_version(struct gems_error *err, const char *key, const char *value,
                         const char *available)
{
    gems_error_set(err, GEMS_E_UNSUPPORTED, "%s: %s is not in this version", key, value);
    gems_error_hint(err, "available: %s", available);
    return GEMS_E_UNSUPPORTED;
}

static int check_later(const struct parallel_spec *parallel, struct gems_error *err)
{
    char text[192] = "";
    size_t used = 0;

    if (!schedule_is_available(parallel->schedule)) {
        for (int i = 0; i < SCHEDULE_COUNT; i++) {
            if (schedule_is_available(i) && used < sizeof text) {
                used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "",
                                         schedule_name(i));
            }
        }
        return later_version(err, "parallel.schedule", schedule_name(parallel->schedule), text);
    }
    if (parallel->recompute == RECOMPUTE_CHEAP || parallel->recompute == RECOMPUTE_ALL) {
        return later_version(err, "parallel.recompute",
                             parallel->recompute == RECOMPUTE_ALL ? "all" : "cheap", "none, auto");
    }
    return GEMS_OK;
}

/* Of one pipeline; 0: the planner decides. */
static uint32_t devices_of(const struct parallel_spec *parallel)
{
    const struct schedule *schedule = schedule_find(parallel->schedule);
    uint32_t chunks = schedule ? schedule_chunks(schedule, parallel) : 1;

    return parallel->stages ? parallel->stages : parallel->n_balance / chunks;
}

static int check_balance(const struct parallel_spec *parallel, struct gems_error *err)
{
    const struct schedule *schedule = schedule_find(parallel->schedule);
    uint32_t chunks = schedule ? schedule_chunks(schedule, parallel) : 1;

    if (parallel->n_balance > SPEC_MAX_STAGES) {
        return invalid(err, NULL, "parallel.balance: %u entries, at most %d", parallel->n_balance,
                       SPEC_MAX_STAGES);
    }
    if (parallel->n_balance % chunks || (parallel->n_balance && parallel->stages &&
                                         parallel->n_balance != parallel->stages * chunks)) {
        return invalid(err,
                       "one number of layers a stage; schedules with chunks have several "
                       "stages a device",
                       "parallel.balance: %u entries for %u stages", parallel->n_balance,
                       parallel->stages * chunks);
    }
    for (uint32_t i = 0; i < parallel->n_balance; i++) {
        if (!parallel->balance[i]) {
            return invalid(err, "every stage holds at least one layer",
                           "parallel.balance[%u]: is 0", i);
        }
    }
    return GEMS_OK;
}

static int check_blocks(const struct job_spec *spec, struct gems_error *err)
{
    const struct parallel_spec *parallel = &spec->parallel;
    const struct schedule *schedule = schedule_find(parallel->schedule);
    int status;

    if ((status = check_range("parallel.gradient_blocks", parallel->gradient_blocks, 0, 1024,
                              err)) < 0) {
        return status;
    }
    if (schedule && schedule->n_chains > 1 && parallel->gradient_blocks == 1) {
        return invalid(err, "at least 2, or auto",
                       "parallel.gradient_blocks: 1 cannot be summed by the two copies of %s in "
                       "the same order",
                       schedule->name);
    }
    if (parallel->microbatch > spec->train.batch) {
        return invalid(err, NULL, "parallel.microbatch: %u is more than train.batch %u",
                       parallel->microbatch, spec->train.batch);
    }
    return GEMS_OK;
}

static int check_parallel(const struct job_spec *spec, struct gems_error *err)
{
    const struct parallel_spec *parallel = &spec->parallel;
    const struct schedule *schedule = schedule_find(parallel->schedule);
    uint32_t stages = parallel->stages ? parallel->stages : parallel->n_balance;
    int status;

    if ((unsigned)parallel->schedule >= SCHEDULE_COUNT) {
        return invalid(err, NULL, "parallel.schedule: %d is unknown", (int)parallel->schedule);
    }
    if ((unsigned)parallel->recompute > RECOMPUTE_AUTO) {
        return invalid(err, NULL, "parallel.recompute: %d is unknown", (int)parallel->recompute);
    }
    if ((status = check_later(parallel, err)) < 0 ||
        (status = check_range("parallel.stages", parallel->stages, 0, SPEC_MAX_STAGES, err)) < 0 ||
        (status = check_range("parallel.groups", parallel->groups, 0, PLAN_MAX_COPIES, err)) < 0 ||
        (status = check_range("parallel.chunks", parallel->chunks, 0, PLAN_MAX_RESIDENT, err)) <
            0 ||
        (status = check_range("parallel.replications", parallel->replications, 0, 1024, err)) < 0 ||
        (status = check_balance(parallel, err)) < 0 || (status = check_blocks(spec, err)) < 0) {
        return status;
    }
    if (parallel->schedule == SCHEDULE_SINGLE && stages > 1) {
        return invalid(err, "stages: 1, or another schedule",
                       "parallel.stages: schedule single has 1 stage, not %u", stages);
    }
    return schedule ? schedule_check_width(schedule, devices_of(parallel), err) : GEMS_OK;
}

static int check_resources(const struct job_spec *spec, struct gems_error *err)
{
    const struct resource_spec *resources = &spec->resources;
    uint32_t stages = spec->parallel.stages ? spec->parallel.stages : 1;
    uint32_t n_groups = spec->parallel.groups ? spec->parallel.groups : 1;
    int status;

    if ((unsigned)resources->kind > DEVICE_CUDA) {
        return invalid(err, NULL, "resources.kind: %d is unknown", (int)resources->kind);
    }
    if (resources->kind == DEVICE_CUDA) {
        return later_version(err, "resources.kind", "cuda", "any, cpu, ref");
    }
    if ((status = check_range("resources.devices", resources->devices_min, 0, SPEC_MAX_STAGES,
                              err)) < 0 ||
        (status = check_range("resources.devices", resources->devices_max, 0, SPEC_MAX_STAGES,
                              err)) < 0) {
        return status;
    }
    if (resources->devices_max && resources->devices_min > resources->devices_max) {
        return invalid(err, NULL, "resources.devices: min %u is more than max %u",
                       resources->devices_min, resources->devices_max);
    }
    if (resources->devices_max && spec->parallel.stages > resources->devices_max) {
        return invalid(err, "a stage needs a device of its own",
                       "parallel.stages: %u stages do not go on %u devices", spec->parallel.stages,
                       resources->devices_max);
    }
    if (resources->devices_max && n_groups * stages > resources->devices_max) {
        return invalid(err, "every group needs devices of its own",
                       "parallel.groups: %u groups of %u stages do not go on %u devices", n_groups,
                       stages, resources->devices_max);
    }
    return GEMS_OK;
}

int spec_check(const struct job_spec *spec, struct gems_error *err)
{
    int status;

    if (!is_text(spec->name, sizeof spec->name) || !spec->name[0]) {
        return invalid(err, "1 to 63 bytes, no control characters", "name: is missing or bad");
    }
    if (!is_text(spec->model.zoo, sizeof spec->model.zoo) || !spec->model.zoo[0]) {
        return invalid(err, NULL, "model.zoo: is missing or bad");
    }
    if ((status = check_range("model.classes", spec->model.classes, 1, 1 << 20, err)) < 0 ||
        (status = check_data(spec, err)) < 0 || (status = check_train(spec, err)) < 0 ||
        (status = check_parallel(spec, err)) < 0 || (status = check_resources(spec, err)) < 0 ||
        (status = check_range("checkpoint.keep", spec->checkpoint_keep, 1, MAX_KEEP, err)) < 0 ||
        (status = check_range("checkpoint.keep_best", spec->checkpoint_keep_best, 0, MAX_KEEP,
                              err)) < 0 ||
        (status = check_range("checkpoint.every_steps", spec->checkpoint_every_steps, 0, UINT32_MAX,
                              err)) < 0) {
        return status;
    }
    return check_range("limits.max_restarts", spec->max_restarts, 0, 1000000, err);
}
