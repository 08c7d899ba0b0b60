#include "client/jobvalue.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/units.h"

void name_list_add(void *arg, const char *name)
{
    struct name_list *list = arg;

    if (list->used < list->n) {
        int written = snprintf(list->text + list->used, list->n - list->used, "%s%s",
                               list->used > 0 ? ", " : "", name);
        list->used += written > 0 ? (size_t)written : 0;
    }
}

int jobkey_error(const struct jobkey_source *source, const yaml_node_t *node, int status,
                 const char *path, struct gems_error *err, const char *format, ...)
{
    char reason[320], place[48] = "";
    va_list args;

    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (source->has_lines) {
        snprintf(place, sizeof place, ":%zu:%zu:", node->start_mark.line + 1,
                 node->start_mark.column + 1);
    }
    return gems_error_set(err, status, "%s%s %s%s%s", source->label, place, path,
                          path[0] ? ": " : "", reason);
}

/* One value on its way from a node into the spec. */
struct reading {
    const struct key *key;
    const struct jobkey_source *source;
    struct job_spec *spec;
    struct gems_error *err;
};

static void *field_of(const struct reading *r)
{
    return (char *)r->spec + r->key->offset;
}

static int refuse(const struct reading *r, const yaml_node_t *node, const char *wanted)
{
    if (node->type == YAML_SEQUENCE_NODE) {
        return jobkey_error(r->source, node, GEMS_E_INVALID, r->key->path, r->err,
                            "a list; wanted is %s", wanted);
    }
    if (node->type == YAML_MAPPING_NODE) {
        return jobkey_error(r->source, node, GEMS_E_INVALID, r->key->path, r->err,
                            "a group of keys; wanted is %s", wanted);
    }
    if (node->data.scalar.length == 0) {
        return jobkey_error(r->source, node, GEMS_E_INVALID, r->key->path, r->err,
                            "no value; wanted is %s", wanted);
    }
    return jobkey_error(r->source, node, GEMS_E_INVALID, r->key->path, r->err, "'%.60s' is not %s",
                        (const char *)node->data.scalar.value, wanted);
}

/* Text of a scalar without embedded NUL, or NULL. */
static const char *scalar_of(const yaml_node_t *node)
{
    const char *text;

    if (node->type != YAML_SCALAR_NODE) {
        return NULL;
    }
    text = (const char *)node->data.scalar.value;
    return strlen(text) == node->data.scalar.length ? text : NULL;
}

/* Unquoted scalar: numbers, words and units stand without quotes. */
static const char *plain_of(const yaml_node_t *node)
{
    const char *text = scalar_of(node);

    return text && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? text : NULL;
}

static int read_whole(const struct reading *r, const yaml_node_t *node, double min, double max,
                      bool has_auto, uint64_t *ret_value)
{
    const char *text = plain_of(node);
    uint64_t value;
    char wanted[96];

    if (has_auto && text && strcmp(text, "auto") == 0) {
        *ret_value = 0;
        return GEMS_OK;
    }
    if (!text || parse_u64(text, &value, NULL) < 0 || (double)value < min || (double)value > max) {
        snprintf(wanted, sizeof wanted, "a whole number from %.0f to %.0f%s", min, max,
                 has_auto ? ", or auto" : "");
        return refuse(r, node, wanted);
    }
    *ret_value = value;
    return GEMS_OK;
}

static int read_real(const struct reading *r, const yaml_node_t *node, double min, double max,
                     double *ret_value)
{
    const char *text = plain_of(node);
    char *end = NULL, wanted[64];
    double value = 0;

    /* strtod alone would also take hexadecimal, "inf" and "nan". */
    if (text && text[0] != '\0' && text[strspn(text, "0123456789+-.eE")] == '\0') {
        value = strtod(text, &end);
    }
    if (!end || end == text || *end != '\0' || !(value >= min && value <= max)) {
        snprintf(wanted, sizeof wanted, "a number from %g to %g", min, max);
        return refuse(r, node, wanted);
    }
    *ret_value = value;
    return GEMS_OK;
}

static int read_bool(const struct reading *r, const yaml_node_t *node)
{
    const char *text = plain_of(node);
    bool is_true = text && strcmp(text, "true") == 0;

    if (!is_true && !(text && strcmp(text, "false") == 0)) {
        return refuse(r, node, "true or false");
    }
    *(bool *)field_of(r) = is_true;
    return GEMS_OK;
}

static int read_text(const struct reading *r, const yaml_node_t *node)
{
    const char *text = scalar_of(node);

    if (!text || text[0] == '\0') {
        return refuse(r, node, "a text");
    }
    if (strlen(text) >= r->key->bytes) {
        return jobkey_error(r->source, node, GEMS_E_INVALID, r->key->path, r->err,
                            "longer than %zu characters", r->key->bytes - 1);
    }
    strcpy(field_of(r), text);
    return GEMS_OK;
}

static int read_path(const struct reading *r, const yaml_node_t *node)
{
    const char *text = scalar_of(node);
    char *field = field_of(r);
    int n;

    if (!text || text[0] == '\0') {
        return refuse(r, node, "a path");
    }
    if (text[0] == '/') {
        n = snprintf(field, SPEC_PATH_BYTES, "%s", text);
    } else {
        const char *base = r->source->base;

        while (strncmp(text, "./", 2) == 0) {
            text += 2;
        }
        n = snprintf(field, SPEC_PATH_BYTES, "%s/%s", strcmp(base, "/") == 0 ? "" : base, text);
    }
    if (n >= SPEC_PATH_BYTES) {
        return jobkey_error(r->source, node, GEMS_E_INVALID, r->key->path, r->err,
                            "longer than %d characters as an absolute path", SPEC_PATH_BYTES - 1);
    }
    return GEMS_OK;
}

static int not_in_this_version(const struct reading *r, const yaml_node_t *node, const char *value)
{
    if (value) {
        return jobkey_error(r->source, node, GEMS_E_UNSUPPORTED, r->key->path, r->err,
                            "%s is not in this version", value);
    }
    return jobkey_error(r->source, node, GEMS_E_UNSUPPORTED, r->key->path, r->err,
                        "not in this version");
}

static int read_choice(const struct reading *r, const yaml_node_t *node)
{
    const char *text = plain_of(node);
    char wanted[160] = "one of ";
    struct name_list list = { wanted + strlen(wanted), sizeof wanted - strlen(wanted), 0 };

    for (const struct choice *c = r->key->choices; text && c->name; c++) {
        if (strcmp(c->name, text) == 0) {
            if (c->value < 0) {
                return not_in_this_version(r, node, text);
            }
            *(int *)field_of(r) = c->value;
            return GEMS_OK;
        }
    }
    for (const struct choice *c = r->key->choices; c->name; c++) {
        if (c->value >= 0) {
            name_list_add(&list, c->name);
        }
    }
    return refuse(r, node, wanted);
}

static int read_schedule(const struct reading *r, const yaml_node_t *node)
{
    const char *text = plain_of(node);
    int kind = text ? schedule_from_name(text) : -1;
    char wanted[256] = "one of ";
    struct name_list list = { wanted + strlen(wanted), sizeof wanted - strlen(wanted), 0 };

    if (kind < 0) {
        for (int i = 0; i < SCHEDULE_COUNT; i++) {
            if (schedule_is_available(i)) {
                name_list_add(&list, schedule_name(i));
            }
        }
        return refuse(r, node, wanted);
    }
    if (!schedule_is_available(kind)) {
        return not_in_this_version(r, node, text);
    }
    r->spec->parallel.schedule = kind;
    return GEMS_OK;
}

static int read_size(const struct reading *r, const yaml_node_t *node)
{
    const char *text = plain_of(node);
    uint64_t bytes;

    if (!text || parse_size(text, &bytes, NULL) < 0 || bytes == 0) {
        return refuse(r, node, "a size such as 16GiB or 512MiB");
    }
    *(uint64_t *)field_of(r) = bytes;
    return GEMS_OK;
}

static int read_duration(const struct reading *r, const yaml_node_t *node)
{
    const char *text = plain_of(node);
    uint64_t ms;

    if (!text || parse_duration(text, &ms, NULL) < 0 || ms < 1000) {
        return refuse(r, node, "a time of at least 1s such as 4h, 90m or 1h30m");
    }
    *(uint64_t *)field_of(r) = ms / 1000;
    return GEMS_OK;
}

/* Item i of a list, or NULL behind its end. */
static yaml_node_t *item_of(const struct reading *r, const yaml_node_t *node, size_t i)
{
    const yaml_node_item_t *start = node->data.sequence.items.start;

    if (i >= (size_t)(node->data.sequence.items.top - start)) {
        return NULL;
    }
    return yaml_document_get_node(r->source->document, start[i]);
}

/* A list of whole numbers, 1 to max_items of them. */
static int read_list(const struct reading *r, const yaml_node_t *node, uint32_t max_items,
                     double max, const char *wanted, uint32_t *ret_items, uint32_t *ret_n)
{
    uint32_t n = 0;

    if (node->type != YAML_SEQUENCE_NODE) {
        return refuse(r, node, wanted);
    }
    for (yaml_node_t *item; (item = item_of(r, node, n)) != NULL; n++) {
        uint64_t value;
        int status;

        if (n == max_items) {
            return jobkey_error(r->source, item, GEMS_E_INVALID, r->key->path, r->err,
                                "more than %u entries", max_items);
        }
        status = read_whole(r, item, 1, max, false, &value);
        if (status < 0) {
            return status;
        }
        ret_items[n] = (uint32_t)value;
    }
    if (n == 0) {
        return jobkey_error(r->source, node, GEMS_E_INVALID, r->key->path, r->err,
                            "an empty list; wanted is %s", wanted);
    }
    *ret_n = n;
    return GEMS_OK;
}

static int read_height_width(const struct reading *r, const yaml_node_t *node)
{
    static const char wanted[] = "[height, width]";
    uint32_t sides[2], n;
    int status = read_list(r, node, 2, 1 << 20, wanted, sides, &n);

    if (status == GEMS_OK && n != 2) {
        status = jobkey_error(r->source, node, GEMS_E_INVALID, r->key->path, r->err,
                              "one number; wanted is %s", wanted);
    }
    if (status == GEMS_OK) {
        r->spec->data.height = sides[0];
        r->spec->data.width = sides[1];
    }
    return status;
}

static int read_hidden(const struct reading *r, const yaml_node_t *node)
{
    struct zoo_spec *model = &r->spec->model;

    return read_list(r, node, ZOO_MAX_HIDDEN, 1 << 24, "a list of layer widths such as [512, 512]",
                     model->hidden, &model->n_hidden);
}

static int read_balance(const struct reading *r, const yaml_node_t *node)
{
    struct parallel_spec *parallel = &r->spec->parallel;
    const char *text = plain_of(node);

    if (text && strcmp(text, "auto") == 0) {
        parallel->n_balance = 0;
        return GEMS_OK;
    }
    return read_list(r, node, SPEC_MAX_STAGES, 1 << 20,
                     "auto, or the layers of each stage such as [9, 9, 11]", parallel->balance,
                     &parallel->n_balance);
}

static int read_betas(const struct reading *r, const yaml_node_t *node)
{
    double betas[2];

    if (node->type != YAML_SEQUENCE_NODE || !item_of(r, node, 1) || item_of(r, node, 2)) {
        return refuse(r, node, "two numbers such as [0.9, 0.999]");
    }
    for (size_t i = 0; i < 2; i++) {
        int status = read_real(r, item_of(r, node, i), 0, 1, &betas[i]);

        if (status < 0) {
            return status;
        }
    }
    r->spec->train.beta1 = betas[0];
    r->spec->train.beta2 = betas[1];
    return GEMS_OK;
}

static int read_augment(const struct reading *r, const yaml_node_t *node)
{
    bool is_flip = false, is_shift = false;

    if (node->type != YAML_SEQUENCE_NODE) {
        return refuse(r, node, "a list of flip and shift");
    }
    for (size_t i = 0; item_of(r, node, i); i++) {
        const yaml_node_t *item = item_of(r, node, i);
        const char *text = plain_of(item);

        if (text && strcmp(text, "flip") == 0) {
            is_flip = true;
        } else if (text && strcmp(text, "shift") == 0) {
            is_shift = true;
        } else {
            return refuse(r, item, "one of flip, shift");
        }
    }
    r->spec->data.is_flip = is_flip;
    r->spec->data.is_shift = is_shift;
    return GEMS_OK;
}

/* A number, or {min: 2, max: 8}. */
static int read_devices(const struct reading *r, const yaml_node_t *node)
{
    uint64_t min = 0, max = 0;
    int status = GEMS_OK;

    if (node->type != YAML_MAPPING_NODE) {
        status = read_whole(r, node, 1, 65535, true, &min);
        max = min;
    } else {
        for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
             status == GEMS_OK && pair < node->data.mapping.pairs.top; pair++) {
            const yaml_node_t *name = yaml_document_get_node(r->source->document, pair->key);
            const char *text = plain_of(name);
            uint64_t *side = text && strcmp(text, "min") == 0   ? &min
                             : text && strcmp(text, "max") == 0 ? &max
                                                                : NULL;

            if (!side || *side != 0) {
                return refuse(r, name, "min or max, each once");
            }
            status = read_whole(r, yaml_document_get_node(r->source->document, pair->value), 1,
                                65535, false, side);
        }
        if (status == GEMS_OK && (min == 0 || max < min)) {
            status = jobkey_error(r->source, node, GEMS_E_INVALID, r->key->path, r->err,
                                  "wanted are min and max, min not above max");
        }
    }
    if (status == GEMS_OK) {
        r->spec->resources.devices_min = (uint32_t)min;
        r->spec->resources.devices_max = (uint32_t)max;
    }
    return status;
}

static int read_number(const struct reading *r, const yaml_node_t *node)
{
    uint64_t value;
    int status = read_whole(r, node, r->key->min, r->key->max, r->key->has_auto, &value);

    if (status == GEMS_OK && r->key->type == KEY_U32) {
        *(uint32_t *)field_of(r) = (uint32_t)value;
    } else if (status == GEMS_OK) {
        *(uint64_t *)field_of(r) = value;
    }
    return status;
}

int jobvalue_read(const struct key *key, const struct jobkey_source *source, yaml_node_t *node,
                  struct job_spec *spec, struct gems_error *err)
{
    struct reading r = { key, source, spec, err };

    switch (r.key->type) {
    case KEY_U32:
    case KEY_U64:
        return read_number(&r, node);
    case KEY_REAL:
        return read_real(&r, node, r.key->min, r.key->max, field_of(&r));
    case KEY_BOOL:
        return read_bool(&r, node);
    case KEY_TEXT:
        return read_text(&r, node);
    case KEY_PATH:
        return read_path(&r, node);
    case KEY_CHOICE:
        return read_choice(&r, node);
    case KEY_SCHEDULE:
        return read_schedule(&r, node);
    case KEY_SIZE:
        return read_size(&r, node);
    case KEY_DURATION:
        return read_duration(&r, node);
    case KEY_HEIGHT_WIDTH:
        return read_height_width(&r, node);
    case KEY_HIDDEN:
        return read_hidden(&r, node);
    case KEY_AUGMENT:
        return read_augment(&r, node);
    case KEY_BETAS:
        return read_betas(&r, node);
    case KEY_BALANCE:
        return read_balance(&r, node);
    case KEY_DEVICES:
        return read_devices(&r, node);
    case KEY_LATER:
        break;
    }
    return not_in_this_version(&r, node, NULL);
}
