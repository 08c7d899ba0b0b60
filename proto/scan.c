#include "proto/scan.h"

#include <stdbool.h>
#include <string.h>

#include "common/error.h"

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5, SCAN_MAX_FIELDS = 64 };

struct scan {
    bool is_cleaning; /* strings are repaired, not refused */
    unsigned n_unknown;
    struct gems_error *err;
};

struct cursor {
    const uint8_t *at, *end;
};

static int fail(const struct scan *scan, const ProtobufCMessageDescriptor *descriptor,
                const char *field, const char *why)
{
    return gems_error_set(scan->err, GEMS_E_INVALID, "message %s%s%s: %s", descriptor->short_name,
                          field ? ", field " : "", field ? field : "", why);
}

static bool take_varint(struct cursor *in, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret_value = value;
            return true;
        }
    }
    return false;
}

/* Moves past a value; for WIRE_BYTES *ret_body is what is inside. */
static bool take_value(struct cursor *in, unsigned wire, struct cursor *ret_body)
{
    uint64_t n = 0;

    switch (wire) {
    case WIRE_VARINT:
        return take_varint(in, &n);
    case WIRE_64:
        n = 8;
        break;
    case WIRE_32:
        n = 4;
        break;
    case WIRE_BYTES:
        if (!take_varint(in, &n)) {
            return false;
        }
        break;
    default: /* groups are long gone */
        return false;
    }
    if (n > (uint64_t)(in->end - in->at)) {
        return false;
    }
    *ret_body = (struct cursor){ in->at, in->at + n };
    in->at += n;
    return true;
}

/* Length of the well-formed UTF-8 character at p (RFC 3629), 0 if none. */
static size_t utf8_length(const uint8_t *p, size_t room)
{
    uint8_t low = 0x80;
    uint8_t high = 0xbf;
    size_t n;

    if (p[0] == 0) {
        return 0;
    }
    if (p[0] < 0x80) {
        return 1;
    }
    if (p[0] < 0xc2 || p[0] > 0xf4) {
        return 0;
    }
    n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    /* The second byte shuts out long forms, surrogates and what is past U+10FFFF. */
    if (p[0] == 0xe0) {
        low = 0xa0;
    } else if (p[0] == 0xed) {
        high = 0x9f;
    } else if (p[0] == 0xf0) {
        low = 0x90;
    } else if (p[0] == 0xf4) {
        high = 0x8f;
    }
    if (n > room || p[1] < low || p[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return n;
}

static int scan_string(const struct scan *scan, const ProtobufCMessageDescriptor *descriptor,
                       const char *field, const struct cursor *body)
{
    for (const uint8_t *p = body->at; p < body->end;) {
        size_t n = utf8_length(p, (size_t)(body->end - p));

        if (n == 0 && !scan->is_cleaning) {
            return fail(scan, descriptor, field, *p ? "not UTF-8" : "holds a NUL");
        }
        if (n == 0) {
            *(uint8_t *)p = '?'; /* scan_clean was given writable bytes */
            n = 1;
        }
        p += n;
    }
    return GEMS_OK;
}

static bool is_wire_right(const ProtobufCFieldDescriptor *field, unsigned wire)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return wire == WIRE_BYTES;
    default: /* numbers; several at once if repeated */
        return wire != WIRE_BYTES || field->label == PROTOBUF_C_LABEL_REPEATED;
    }
}

static int scan_message(struct scan *scan, const ProtobufCMessageDescriptor *descriptor,
                        struct cursor in, int depth);

static int scan_field(struct scan *scan, const ProtobufCMessageDescriptor *descriptor,
                      struct cursor *in, uint64_t *seen, int depth)
{
    const ProtobufCFieldDescriptor *field = NULL;
    struct cursor body = { NULL, NULL };
    uint64_t key;
    unsigned wire;

    if (!take_varint(in, &key) || key >> 3 == 0 || key > UINT32_MAX) {
        return fail(scan, descriptor, NULL, "malformed field number");
    }
    wire = (unsigned)(key & 7);
    field = protobuf_c_message_descriptor_get_field(descriptor, (unsigned)(key >> 3));
    if (!take_value(in, wire, &body)) {
        return fail(scan, descriptor, field ? field->name : NULL, "cut short or malformed");
    }
    if (!field) {
        return ++scan->n_unknown > SCAN_MAX_UNKNOWN ?
                   fail(scan, descriptor, NULL, "too many unknown fields") :
                   GEMS_OK;
    }
    if (!is_wire_right(field, wire)) {
        return fail(scan, descriptor, field->name, "of another type");
    }
    if (field->label != PROTOBUF_C_LABEL_REPEATED) {
        uint64_t bit = (uint64_t)1 << (field - descriptor->fields);

        if (*seen & bit) {
            return fail(scan, descriptor, field->name, "given twice");
        }
        *seen |= bit;
    }
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        return scan_string(scan, descriptor, field->name, &body);
    }
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        return scan_message(scan, field->descriptor, body, depth + 1);
    }
    return GEMS_OK;
}

static int scan_message(struct scan *scan, const ProtobufCMessageDescriptor *descriptor,
                        struct cursor in, int depth)
{
    uint64_t seen = 0;
    int st = GEMS_OK;

    if (depth > SCAN_MAX_DEPTH || descriptor->n_fields > SCAN_MAX_FIELDS) {
        return fail(scan, descriptor, NULL, "nested too deeply");
    }
    while (st == GEMS_OK && in.at < in.end) {
        st = scan_field(scan, descriptor, &in, &seen, depth);
    }
    return st;
}

int scan_check(const ProtobufCMessageDescriptor *descriptor, const uint8_t *data, size_t n,
               struct gems_error *err)
{
    struct scan scan = { .err = err };

    return scan_message(&scan, descriptor, (struct cursor){ data, data + n }, 0);
}

void scan_clean(const ProtobufCMessageDescriptor *descriptor, uint8_t *data, size_t n)
{
    struct scan scan = { .is_cleaning = true };

    scan_message(&scan, descriptor, (struct cursor){ data, data + n }, 0);
}
