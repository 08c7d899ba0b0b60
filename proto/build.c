#include "proto/build.h"

#include <stdlib.h>
#include <string.h>

void *build_message(struct build *build, const ProtobufCMessageDescriptor *descriptor)
{
    ProtobufCMessage *message = build->is_failed ? NULL : malloc(descriptor->sizeof_message);

    if (!message) {
        build->is_failed = true;
        return NULL;
    }
    protobuf_c_message_init(descriptor, message);
    return message;
}

void *build_array(struct build *build, size_t n, size_t item_bytes)
{
    void *items = NULL;

    if (n > 0 && !build->is_failed) {
        items = calloc(n, item_bytes);
        build->is_failed = !items;
    }
    return items;
}

char *build_text(struct build *build, const char *text)
{
    char *copy = NULL;

    if (text[0]) {
        copy = strdup(text);
        build->is_failed |= !copy;
    }
    return copy ? copy : (char *)protobuf_c_empty_string;
}

uint32_t *build_numbers(struct build *build, const uint32_t *numbers, size_t n)
{
    uint32_t *copy = build_array(build, n, sizeof *copy);

    if (copy) {
        memcpy(copy, numbers, n * sizeof *copy);
    }
    return copy;
}

void *build_end(struct build *build, void *message)
{
    if (build->is_failed) {
        protobuf_c_message_free_unpacked(message, NULL);
        return NULL;
    }
    return message;
}
