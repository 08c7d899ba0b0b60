#include "proto/codec.h"

#include <string.h>

#include "common/error.h"
#include "proto/build.h"
#include "proto/field.h"

enum { DATA_FORMATS = DATA_IMAGEFOLDER + 1, OPTIMIZERS = OPTIMIZER_ADAMW + 1, LR_SCHEDULES = LR_COSINE + 1,
       PRECISIONS = PRECISION_F64 + 1, RECOMPUTES = RECOMPUTE_AUTO + 1, DEVICE_KINDS = DEVICE_CUDA + 1 };

static int model_from_proto(const Gems__ZooSpec *message, struct zoo_spec *model, struct gems_error *err)
{
    struct field_check check = { .message = "JobSpec.model", .err = err };

    field_text(&check, "zoo", message->zoo, model->zoo, sizeof model->zoo);
    model->version = message->version;
    model->depth = message->depth;
    model->layers = message->layers;
    model->filters = message->filters;
    model->n_hidden = (uint32_t)field_at_most(&check, "hidden", message->n_hidden, ZOO_MAX_HIDDEN);
    for (uint32_t i = 0; i < model->n_hidden; i++) {
        model->hidden[i] = message->hidden[i];
    }
    model->classes = message->classes;
    model->channels = message->channels;
    model->height = message->height;
    model->width = message->width;
    return check.st;
}

static int data_from_proto(const Gems__DataSpec *message, struct data_spec *data, struct gems_error *err)
{
    struct field_check check = { .message = "JobSpec.data", .err = err };

    data->format = (enum data_format)field_below(&check, "format", message->format, DATA_FORMATS);
    field_text(&check, "train", message->train, data->train, sizeof data->train);
    field_text(&check, "eval", message->eval, data->eval, sizeof data->eval);
    data->height = message->height;
    data->width = message->width;
    data->channels = message->channels;
    data->samples = message->samples;
    data->eval_samples = message->eval_samples;
    data->is_flip = message->flip;
    data->is_shift = message->shift;
    data->mean = field_number(&check, "mean", message->mean);
    data->std = field_number(&check, "std", message->std);
    return check.st;
}

static int train_from_proto(const Gems__TrainSpec *message, struct train_spec *train,
                            struct gems_error *err)
{
    struct field_check check = { .message = "JobSpec.train", .err = err };

    train->epochs = message->epochs;
    train->steps = message->steps;
    train->batch = message->batch;
    train->optimizer =
        (enum optimizer)field_below(&check, "optimizer", message->optimizer, OPTIMIZERS);
    train->lr = field_number(&check, "lr", message->lr);
    train->momentum = field_number(&check, "momentum", message->momentum);
    train->weight_decay = field_number(&check, "weight_decay", message->weight_decay);
    train->beta1 = field_number(&check, "beta1", message->beta1);
    train->beta2 = field_number(&check, "beta2", message->beta2);
    train->eps = field_number(&check, "eps", message->eps);
    train->is_nesterov = message->nesterov;
    train->schedule =
        (enum lr_schedule)field_below(&check, "schedule", message->schedule, LR_SCHEDULES);
    train->warmup_epochs = field_number(&check, "warmup_epochs", message->warmup_epochs);
    train->lr_step_epochs = message->lr_step_epochs;
    train->lr_gamma = field_number(&check, "lr_gamma", message->lr_gamma);
    train->precision =
        (enum precision)field_below(&check, "precision", message->precision, PRECISIONS);
    train->seed = message->seed;
    return check.st;
}

static int parallel_from_proto(const Gems__ParallelSpec *message, struct parallel_spec *parallel,
                               struct gems_error *err)
{
    struct field_check check = { .message = "JobSpec.parallel", .err = err };

    parallel->schedule =
        (enum schedule_kind)field_below(&check, "schedule", message->schedule, SCHEDULE_COUNT);
    parallel->stages = message->stages;
    parallel->groups = message->groups;
    parallel->chunks = message->chunks;
    parallel->gradient_blocks = message->gradient_blocks;
    parallel->microbatch = message->microbatch;
    parallel->replications = message->replications;
    parallel->recompute =
        (enum recompute)field_below(&check, "recompute", message->recompute, RECOMPUTES);
    parallel->n_balance =
        (uint32_t)field_at_most(&check, "balance", message->n_balance, SPEC_MAX_STAGES);
    for (uint32_t i = 0; i < parallel->n_balance; i++) {
        parallel->balance[i] = message->balance[i];
    }
    return check.st;
}

static int resources_from_proto(const Gems__ResourceSpec *message, struct resource_spec *resources,
                                struct gems_error *err)
{
    struct field_check check = { .message = "JobSpec.resources", .err = err };

    resources->devices_min = message->devices_min;
    resources->devices_max = message->devices_max;
    resources->kind = (enum device_kind)field_below(&check, "kind", message->kind, DEVICE_KINDS);
    resources->memory_bytes = message->memory_bytes;
    return check.st;
}

static int parts_from_proto(const Gems__JobSpec *message, struct job_spec *spec, struct gems_error *err)
{
    struct field_check check = { .message = "JobSpec", .err = err };
    int st;

    field_text(&check, "name", message->name, spec->name, sizeof spec->name);
    if (!field_needed(&check, "model", message->model) ||
        !field_needed(&check, "data", message->data) ||
        !field_needed(&check, "train", message->train) ||
        !field_needed(&check, "parallel", message->parallel) ||
        !field_needed(&check, "resources", message->resources) || check.st < 0) {
        return check.st;
    }
    spec->checkpoint_every_steps = message->checkpoint_every_steps;
    spec->checkpoint_every_epochs = message->checkpoint_every_epochs;
    spec->checkpoint_keep = message->checkpoint_keep;
    spec->checkpoint_keep_best = message->checkpoint_keep_best;
    spec->limit_seconds = message->limit_seconds;
    spec->max_restarts = message->max_restarts;
    if ((st = model_from_proto(message->model, &spec->model, err)) < 0 ||
        (st = data_from_proto(message->data, &spec->data, err)) < 0 ||
        (st = train_from_proto(message->train, &spec->train, err)) < 0 ||
        (st = parallel_from_proto(message->parallel, &spec->parallel, err)) < 0) {
        return st;
    }
    return resources_from_proto(message->resources, &spec->resources, err);
}

int spec_from_proto(const Gems__JobSpec *message, struct job_spec *ret_spec, struct gems_error *err)
{
    int st;

    memset(ret_spec, 0, sizeof *ret_spec);
    st = parts_from_proto(message, ret_spec, err);
    if (st == GEMS_OK) {
        st = spec_check(ret_spec, err);
    }
    if (st < 0) {
        memset(ret_spec, 0, sizeof *ret_spec);
    }
    return st;
}

static Gems__ZooSpec *model_to_proto(struct build *build, const struct zoo_spec *model)
{
    Gems__ZooSpec *message = build_message(build, &gems__zoo_spec__descriptor);

    if (message) {
        message->zoo = build_text(build, model->zoo);
        message->version = model->version;
        message->depth = model->depth;
        message->layers = model->layers;
        message->filters = model->filters;
        message->hidden = build_numbers(build, model->hidden, model->n_hidden);
        message->n_hidden = message->hidden ? model->n_hidden : 0;
        message->classes = model->classes;
        message->channels = model->channels;
        message->height = model->height;
        message->width = model->width;
    }
    return message;
}

static Gems__DataSpec *data_to_proto(struct build *build, const struct data_spec *data)
{
    Gems__DataSpec *message = build_message(build, &gems__data_spec__descriptor);

    if (message) {
        message->format = (uint32_t)data->format;
        message->train = build_text(build, data->train);
        message->eval = build_text(build, data->eval);
        message->height = data->height;
        message->width = data->width;
        message->channels = data->channels;
        message->samples = data->samples;
        message->eval_samples = data->eval_samples;
        message->flip = data->is_flip;
        message->shift = data->is_shift;
        message->mean = data->mean;
        message->std = data->std;
    }
    return message;
}

static Gems__TrainSpec *train_to_proto(struct build *build, const struct train_spec *train)
{
    Gems__TrainSpec *message = build_message(build, &gems__train_spec__descriptor);

    if (message) {
        message->epochs = train->epochs;
        message->steps = train->steps;
        message->batch = train->batch;
        message->optimizer = (uint32_t)train->optimizer;
        message->lr = train->lr;
        message->momentum = train->momentum;
        message->weight_decay = train->weight_decay;
        message->beta1 = train->beta1;
        message->beta2 = train->beta2;
        message->eps = train->eps;
        message->nesterov = train->is_nesterov;
        message->schedule = (uint32_t)train->schedule;
        message->warmup_epochs = train->warmup_epochs;
        message->lr_step_epochs = train->lr_step_epochs;
        message->lr_gamma = train->lr_gamma;
        message->precision = (uint32_t)train->precision;
        message->seed = train->seed;
    }
    return message;
}

static Gems__ParallelSpec *parallel_to_proto(struct build *build, const struct parallel_spec *parallel)
{
    Gems__ParallelSpec *message = build_message(build, &gems__parallel_spec__descriptor);

    if (message) {
        message->schedule = (uint32_t)parallel->schedule;
        message->stages = parallel->stages;
        message->groups = parallel->groups;
        message->chunks = parallel->chunks;
        message->gradient_blocks = parallel->gradient_blocks;
        message->microbatch = parallel->microbatch;
        message->replications = parallel->replications;
        message->recompute = (uint32_t)parallel->recompute;
        message->balance = build_numbers(build, parallel->balance, parallel->n_balance);
        message->n_balance = message->balance ? parallel->n_balance : 0;
    }
    return message;
}

static Gems__ResourceSpec *resources_to_proto(struct build *build, const struct resource_spec *resources)
{
    Gems__ResourceSpec *message = build_message(build, &gems__resource_spec__descriptor);

    if (message) {
        message->devices_min = resources->devices_min;
        message->devices_max = resources->devices_max;
        message->kind = (uint32_t)resources->kind;
        message->memory_bytes = resources->memory_bytes;
    }
    return message;
}

Gems__JobSpec *spec_to_proto(const struct job_spec *spec)
{
    struct build build = { false };
    Gems__JobSpec *message = build_message(&build, &gems__job_spec__descriptor);

    if (message) {
        message->name = build_text(&build, spec->name);
        message->model = model_to_proto(&build, &spec->model);
        message->data = data_to_proto(&build, &spec->data);
        message->train = train_to_proto(&build, &spec->train);
        message->parallel = parallel_to_proto(&build, &spec->parallel);
        message->resources = resources_to_proto(&build, &spec->resources);
        message->checkpoint_every_steps = spec->checkpoint_every_steps;
        message->checkpoint_every_epochs = spec->checkpoint_every_epochs;
        message->checkpoint_keep = spec->checkpoint_keep;
        message->checkpoint_keep_best = spec->checkpoint_keep_best;
        message->limit_seconds = spec->limit_seconds;
        message->max_restarts = spec->max_restarts;
    }
    return build_end(&build, message);
}
