/* Checks of single fields that came from the wire.
 *
 * The first failure sticks: a decoder reads all its fields and looks at st
 * once. Every function returns a harmless value after a failure.
 */
#ifndef GEMS_PROTO_FIELD_H
#define GEMS_PROTO_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gems_error;

struct field_check {
    const char *message; /* "JobSpec.train", for texts */
    int st;
    struct gems_error *err;
};

/* Copies text; it must fit with its NUL. */
void field_text(struct field_check *check, const char *name, const char *text, char *ret_text,
                size_t room);
/* value < limit: enums and indexes. */
uint32_t field_below(struct field_check *check, const char *name, uint64_t value, uint64_t limit);
/* value <= max. */
uint64_t field_at_most(struct field_check *check, const char *name, uint64_t value, uint64_t max);
/* Finite. */
double field_number(struct field_check *check, const char *name, double value);
/* A message that must be there, or a count that must match. */
bool field_needed(struct field_check *check, const char *name, const void *message);
bool field_count(struct field_check *check, const char *name, size_t n, size_t expected);
/* Any other failure. */
void field_fail(struct field_check *check, const char *name, const char *why);

#endif
