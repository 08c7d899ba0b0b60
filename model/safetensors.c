#include "model/safetensors.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

enum { LENGTH_BYTES = 8, MAX_HEADER_BYTES = 100 << 20 /* what readers accept */ };

static const char *const type_names[] = { [SAFETENSORS_F32] = "F32", [SAFETENSORS_F64] = "F64" };
static const uint64_t type_bytes[] = { [SAFETENSORS_F32] = 4, [SAFETENSORS_F64] = 8 };

/* Text that grows; after a failure it stays failed. */
struct text {
    char *bytes;
    size_t length, capacity;
    bool is_failed;
};

static void put(struct text *text, const char *bytes, size_t n)
{
    if (text->length + n > text->capacity && !text->is_failed) {
        size_t capacity = 2 * (text->length + n) + 1024;
        char *larger = realloc(text->bytes, capacity);

        text->is_failed = !larger;
        if (larger) {
            text->bytes = larger;
            text->capacity = capacity;
        }
    }
    if (!text->is_failed) {
        memcpy(text->bytes + text->length, bytes, n);
        text->length += n;
    }
}

static void put_text(struct text *text, const char *string)
{
    put(text, string, strlen(string));
}

static void put_number(struct text *text, uint64_t number)
{
    char digits[24];

    snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    put_text(text, digits);
}

/* JSON string. Bytes of UTF-8 above ASCII stand as they are. */
static void put_string(struct text *text, const char *string)
{
    put(text, "\"", 1);
    for (const char *p = string; *p; p++) {
        unsigned char ch = (unsigned char)*p;
        char escape[8];

        if (ch == '"' || ch == '\\') {
            snprintf(escape, sizeof escape, "\\%c", ch);
            put_text(text, escape);
        } else if (ch < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", ch);
            put_text(text, escape);
        } else {
            put(text, p, 1);
        }
    }
    put(text, "\"", 1);
}

static void put_notes(struct text *text, const struct safetensors_note *notes, uint32_t n)
{
    put_text(text, "\"__metadata__\":{");
    for (uint32_t i = 0; i < n; i++) {
        put_text(text, i ? "," : "");
        put_string(text, notes[i].key);
        put_text(text, ":");
        put_string(text, notes[i].value);
    }
    put_text(text, "}");
}

static void put_tensor(struct text *text, const struct safetensors_tensor *tensor, uint64_t begin)
{
    put_string(text, tensor->name);
    put_text(text, ":{\"dtype\":\"");
    put_text(text, type_names[tensor->type]);
    put_text(text, "\",\"shape\":[");
    for (uint32_t d = 0; d < tensor->n_dims; d++) {
        put_text(text, d ? "," : "");
        put_number(text, tensor->dims[d]);
    }
    put_text(text, "],\"data_offsets\":[");
    put_number(text, begin);
    put_text(text, ",");
    put_number(text, begin + safetensors_bytes(tensor));
    put_text(text, "]}");
}

uint64_t safetensors_bytes(const struct safetensors_tensor *tensor)
{
    uint64_t bytes = type_bytes[tensor->type];

    for (uint32_t d = 0; d < tensor->n_dims; d++) {
        bytes *= tensor->dims[d];
    }
    return bytes;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const struct safetensors_tensor *tensors, uint32_t n, struct gems_error *err)
{
    const char **names = calloc((size_t)n + 1, sizeof *names);
    int st = 0;

    if (!names) {
        return gems_error_set(err, GEMS_E_NOMEM, "safetensors: no memory for %u names", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        names[i] = tensors[i].name;
    }
    /* The reserved name takes part: a tensor of that name is a double one. */
    names[n] = "__metadata__";
    qsort(names, (size_t)n + 1, sizeof *names, compare_names);
    for (uint32_t i = 0; i < n && st == 0; i++) {
        if (strcmp(names[i], names[i + 1]) == 0) {
            st = gems_error_set(err, GEMS_E_INVALID, "safetensors: name %.200s is taken twice",
                                names[i]);
        }
    }
    free(names);
    return st;
}

static void put_length(char bytes[LENGTH_BYTES], uint64_t length)
{
    for (int i = 0; i < LENGTH_BYTES; i++) {
        bytes[i] = (char)(length >> (8 * i) & 0xff);
    }
}

int safetensors_header(const struct safetensors_tensor *tensors, uint32_t n_tensors,
                       const struct safetensors_note *notes, uint32_t n_notes, void **ret_header,
                       size_t *ret_bytes, struct gems_error *err)
{
    struct text text = { 0 };
    uint64_t begin = 0;
    int st = check_names(tensors, n_tensors, err);

    if (st < 0) {
        return st;
    }
    put(&text, "\0\0\0\0\0\0\0", LENGTH_BYTES);
    put_text(&text, "{");
    put_notes(&text, notes, n_notes);
    for (uint32_t i = 0; i < n_tensors; i++) {
        put_text(&text, ",");
        put_tensor(&text, &tensors[i], begin);
        begin += safetensors_bytes(&tensors[i]);
    }
    put_text(&text, "}");
    while (text.length % 8 != 0 && !text.is_failed) {
        put_text(&text, " ");
    }
    if (text.is_failed) {
        free(text.bytes);
        return gems_error_set(err, GEMS_E_NOMEM,
                              "safetensors: no memory for a header of %u tensors", n_tensors);
    }
    if (text.length - LENGTH_BYTES > MAX_HEADER_BYTES) {
        free(text.bytes);
        return gems_error_set(err, GEMS_E_INVALID,
                              "safetensors: the header of %u tensors is above 100 MiB", n_tensors);
    }
    put_length(text.bytes, text.length - LENGTH_BYTES);
    *ret_header = text.bytes;
    *ret_bytes = text.length;
    return 0;
}
