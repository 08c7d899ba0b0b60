/* Makes message trees that protobuf-c can pack and free.
 *
 * Running out of memory sticks: a builder goes on with what there is and
 * build_end frees it and returns NULL.
 */
#ifndef GEMS_PROTO_BUILD_H
#define GEMS_PROTO_BUILD_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct build {
    bool is_failed;
};

/* An empty message; NULL after a failure. */
void *build_message(struct build *build, const ProtobufCMessageDescriptor *descriptor);
/* Zeroed array; NULL if n is 0 or after a failure: look before you fill it. */
void *build_array(struct build *build, size_t n, size_t item_bytes);
/* A field's text; never NULL. */
char *build_text(struct build *build, const char *text);
uint32_t *build_numbers(struct build *build, const uint32_t *numbers, size_t n);
/* The message, or NULL after a failure: then the tree is gone. */
void *build_end(struct build *build, void *message);

#endif
