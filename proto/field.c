#include "proto/field.h"

#include <math.h>
#include <string.h>

#include "common/error.h"

void field_fail(struct field_check *check, const char *name, const char *why)
{
    if (check->st == GEMS_OK) {
        check->st = gems_error_set(check->err, GEMS_E_INVALID, "message %s, field %s: %s",
                                   check->message, name, why);
    }
}

void field_text(struct field_check *check, const char *name, const char *text, char *ret_text,
                size_t room)
{
    size_t n = strlen(text);

    ret_text[0] = '\0';
    if (n >= room) {
        if (check->st == GEMS_OK) {
            check->st = gems_error_set(check->err, GEMS_E_INVALID,
                                       "message %s, field %s: %zu bytes, at most %zu", check->message,
                                       name, n, room - 1);
        }
        return;
    }
    memcpy(ret_text, text, n + 1);
}

uint64_t field_at_most(struct field_check *check, const char *name, uint64_t value, uint64_t max)
{
    if (value <= max) {
        return value;
    }
    if (check->st == GEMS_OK) {
        check->st = gems_error_set(check->err, GEMS_E_INVALID,
                                   "message %s, field %s: %llu, at most %llu", check->message, name,
                                   (unsigned long long)value, (unsigned long long)max);
    }
    return 0;
}

uint32_t field_below(struct field_check *check, const char *name, uint64_t value, uint64_t limit)
{
    if (limit == 0) {
        field_fail(check, name, "nothing to refer to");
        return 0;
    }
    return (uint32_t)field_at_most(check, name, value, limit - 1);
}

double field_number(struct field_check *check, const char *name, double value)
{
    if (isfinite(value)) {
        return value;
    }
    field_fail(check, name, "not a finite number");
    return 0;
}

bool field_needed(struct field_check *check, const char *name, const void *message)
{
    if (!message) {
        field_fail(check, name, "missing");
    }
    return message != NULL;
}

bool field_count(struct field_check *check, const char *name, size_t n, size_t expected)
{
    if (n == expected) {
        return true;
    }
    if (check->st == GEMS_OK) {
        check->st = gems_error_set(check->err, GEMS_E_INVALID,
                                   "message %s, field %s: %zu values, %zu expected", check->message,
                                   name, n, expected);
    }
    return false;
}
