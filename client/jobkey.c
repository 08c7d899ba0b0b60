#include "client/jobkey.h"

#include <string.h>

#include "client/jobvalue.h"

static const struct choice formats[] = {
    { "imagefolder", DATA_IMAGEFOLDER },
    { "idx", DATA_IDX },
    { "synthetic", DATA_SYNTHETIC },
    { "csv", -1 },
    { "wsi", -1 },
    { "npy", -1 },
    { NULL, 0 },
};
static const struct choice optimizers[] = {
    { "sgd", OPTIMIZER_SGD },
    { "adam", OPTIMIZER_ADAM },
    { "adamw", OPTIMIZER_ADAMW },
    { NULL, 0 },
};
static const struct choice lr_schedules[] = {
    { "constant", LR_CONSTANT },
    { "step", LR_STEP },
    { "cosine", LR_COSINE },
    { NULL, 0 },
};
static const struct choice precisions[] = {
    { "fp32", PRECISION_FP32 },
    { "f64", PRECISION_F64 },
    { "tf32", -1 },
    { "bf16", -1 },
    { "fp16", -1 },
    { NULL, 0 },
};
static const struct choice recomputes[] = {
    { "auto", RECOMPUTE_AUTO },
    { "none", RECOMPUTE_NONE },
    { "cheap", -1 },
    { "all", -1 },
    { NULL, 0 },
};
static const struct choice kinds[] = {
    { "any", DEVICE_ANY }, { "cpu", DEVICE_CPU }, { "ref", DEVICE_REF },
    { "cuda", -1 },        { NULL, 0 },
};

/* clang-format off */
#define ROW(path, type, field, min, max, has_auto, bytes, choices) \
    { path, type, offsetof(struct job_spec, field), min, max, has_auto, bytes, choices }
#define U32(path, field, min, max) ROW(path, KEY_U32, field, min, max, false, 0, NULL)
#define U32_AUTO(path, field, max) ROW(path, KEY_U32, field, 1, max, true, 0, NULL)
#define U64(path, field, min) ROW(path, KEY_U64, field, min, 9e15, false, 0, NULL)
#define REAL(path, field, min, max) ROW(path, KEY_REAL, field, min, max, false, 0, NULL)
#define TEXT(path, field) \
    ROW(path, KEY_TEXT, field, 0, 0, false, sizeof ((struct job_spec *)0)->field, NULL)
#define CHOICE(path, field, list) ROW(path, KEY_CHOICE, field, 0, 0, false, 0, list)
#define OTHER(path, type, field) ROW(path, type, field, 0, 0, false, 0, NULL)
/* clang-format on */

static const struct key keys[] = {
    TEXT("name", name),
    TEXT("model.zoo", model.zoo),
    U32("model.version", model.version, 1, 2),
    U32("model.depth", model.depth, 1, 100000),
    OTHER("model.hidden", KEY_HIDDEN, model.hidden),
    U32("model.classes", model.classes, 1, 1000000),
    U32("model.layers", model.layers, 1, 100000),
    U32("model.filters", model.filters, 1, 1000000),
    OTHER("model.onnx", KEY_LATER, model.zoo),
    OTHER("model.logits", KEY_LATER, model.zoo),
    CHOICE("data.format", data.format, formats),
    OTHER("data.train", KEY_PATH, data.train),
    OTHER("data.eval", KEY_PATH, data.eval),
    OTHER("data.size", KEY_HEIGHT_WIDTH, data.height),
    U32("data.channels", data.channels, 1, 4096),
    U64("data.samples", data.samples, 1),
    U64("data.eval_samples", data.eval_samples, 0),
    OTHER("data.augment", KEY_AUGMENT, data.is_flip),
    REAL("data.mean", data.mean, -1e6, 1e6),
    REAL("data.std", data.std, 1e-6, 1e6),
    U32("train.epochs", train.epochs, 1, 1000000),
    U64("train.steps", train.steps, 1),
    U32("train.batch", train.batch, 1, 1048576),
    CHOICE("train.optimizer", train.optimizer, optimizers),
    REAL("train.lr", train.lr, 0, 1e6),
    REAL("train.momentum", train.momentum, 0, 1),
    REAL("train.weight_decay", train.weight_decay, 0, 1e6),
    OTHER("train.nesterov", KEY_BOOL, train.is_nesterov),
    OTHER("train.betas", KEY_BETAS, train.beta1),
    REAL("train.eps", train.eps, 0, 1),
    CHOICE("train.schedule", train.schedule, lr_schedules),
    REAL("train.warmup_epochs", train.warmup_epochs, 0, 1e6),
    U32("train.lr_step_epochs", train.lr_step_epochs, 1, 1000000),
    REAL("train.lr_gamma", train.lr_gamma, 0, 1e6),
    CHOICE("train.precision", train.precision, precisions),
    U64("train.seed", train.seed, 0),
    OTHER("parallel.schedule", KEY_SCHEDULE, parallel.schedule),
    U32_AUTO("parallel.stages", parallel.stages, SPEC_MAX_STAGES),
    U32_AUTO("parallel.groups", parallel.groups, 4096),
    U32_AUTO("parallel.chunks", parallel.chunks, 16),
    U32_AUTO("parallel.gradient_blocks", parallel.gradient_blocks, 4096),
    U32_AUTO("parallel.microbatch", parallel.microbatch, 1048576),
    U32_AUTO("parallel.replications", parallel.replications, 4096),
    CHOICE("parallel.recompute", parallel.recompute, recomputes),
    OTHER("parallel.balance", KEY_BALANCE, parallel.balance),
    OTHER("resources.devices", KEY_DEVICES, resources.devices_min),
    CHOICE("resources.kind", resources.kind, kinds),
    OTHER("resources.memory", KEY_SIZE, resources.memory_bytes),
    U64("checkpoint.every_steps", checkpoint_every_steps, 0),
    U32("checkpoint.every_epochs", checkpoint_every_epochs, 0, 1000000),
    U32("checkpoint.keep", checkpoint_keep, 1, 100000),
    U32("checkpoint.keep_best", checkpoint_keep_best, 0, 100000),
    OTHER("limits.time", KEY_DURATION, limit_seconds),
    U32("limits.max_restarts", max_restarts, 0, 1000000),
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };
_Static_assert((int)N_KEYS == (int)JOBKEY_COUNT, "JOBKEY_COUNT counts the rows");

static const char *const sections[] = { "model",     "data",       "train", "parallel",
                                        "resources", "checkpoint", "limits" };

int jobkey_find(const char *path)
{
    for (int i = 0; i < (int)N_KEYS; i++) {
        if (strcmp(keys[i].path, path) == 0) {
            return i;
        }
    }
    return -1;
}

const char *jobkey_path(int key)
{
    return keys[key].path;
}

int jobkey_section(const char *name)
{
    for (int i = 0; i < (int)(sizeof sections / sizeof sections[0]); i++) {
        if (strcmp(sections[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Calls see() with the last part of every name that may stand in a section. */
static void each_name(const char *section, void (*see)(void *arg, const char *name), void *arg)
{
    size_t n = strlen(section);

    for (size_t i = 0; i < N_KEYS; i++) {
        const char *path = keys[i].path;

        if (keys[i].type == KEY_LATER) {
            continue;
        }
        if (n == 0 ? !strchr(path, '.') : strncmp(path, section, n) == 0 && path[n] == '.') {
            see(arg, n == 0 ? path : path + n + 1);
        }
    }
    for (size_t i = 0; n == 0 && i < sizeof sections / sizeof sections[0]; i++) {
        see(arg, sections[i]);
    }
}

void jobkey_list(const char *section, char *text, size_t n)
{
    struct name_list list = { text, n, 0 };

    text[0] = '\0';
    each_name(section, name_list_add, &list);
}

/* Levenshtein distance of two short names; long ones count as far apart. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[33], n = strlen(b);

    if (n > 32) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t change = diagonal + (a[i] != b[j]), best = row[j] + 1;

            diagonal = row[j + 1];
            best = diagonal + 1 < best ? diagonal + 1 : best;
            row[j + 1] = change < best ? change : best;
        }
    }
    return row[n];
}

struct nearest {
    const char *wanted, *best;
    size_t distance;
};

static void compare_name(void *arg, const char *name)
{
    struct nearest *nearest = arg;
    size_t distance = edit_distance(nearest->wanted, name);

    if (distance < nearest->distance) {
        nearest->distance = distance;
        nearest->best = name;
    }
}

const char *jobkey_nearest(const char *section, const char *name)
{
    struct nearest nearest = { name, NULL, 3 };

    each_name(section, compare_name, &nearest);
    return nearest.best;
}

int jobkey_read(int key, const struct jobkey_source *source, yaml_node_t *node,
                struct job_spec *spec, struct gems_error *err)
{
    return jobvalue_read(&keys[key], source, node, spec, err);
}
