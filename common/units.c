#include "common/units.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/error.h"

/* Digits at *at, which moves behind them. */
static int take_number(const char **at, uint64_t *ret_value)
{
    const char *p = *at;
    uint64_t value = 0;

    if (!isdigit((unsigned char)*p)) {
        return GEMS_E_INVALID;
    }
    for (; isdigit((unsigned char)*p); p++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value)) {
            return GEMS_E_INVALID;
        }
    }
    *at = p;
    *ret_value = value;
    return GEMS_OK;
}

int parse_u64(const char *text, uint64_t *ret_value, struct gems_error *err)
{
    const char *at = text;
    uint64_t value;

    if (take_number(&at, &value) < 0 || *at) {
        return gems_error_set(err, GEMS_E_INVALID, "'%s' is not a whole number", text);
    }
    *ret_value = value;
    return GEMS_OK;
}

static const struct {
    const char *name;
    uint64_t bytes;
} size_units[] = {
    { "", 1 },           { "B", 1 },
    { "kB", 1000 },      { "MB", 1000000 },         { "GB", 1000000000 },      { "TB", 1000000000000 },
    { "KiB", 1ull << 10 }, { "MiB", 1ull << 20 },   { "GiB", 1ull << 30 },     { "TiB", 1ull << 40 },
    { "K", 1ull << 10 },   { "M", 1ull << 20 },     { "G", 1ull << 30 },       { "T", 1ull << 40 },
};

/* The digits behind a point as millionths; more digits than that are refused. */
static int take_millionths(const char **at, uint64_t *ret_millionths)
{
    const char *start = *at + 1;
    uint64_t value = 0;

    *ret_millionths = 0;
    if (**at != '.') {
        return GEMS_OK;
    }
    *at = start;
    if (take_number(at, &value) < 0 || *at - start > 6) {
        return GEMS_E_INVALID;
    }
    for (long digits = *at - start; digits < 6; digits++) {
        value *= 10;
    }
    *ret_millionths = value;
    return GEMS_OK;
}

int parse_size(const char *text, uint64_t *ret_bytes, struct gems_error *err)
{
    const char *at = text;
    uint64_t whole;
    uint64_t millionths;

    if (take_number(&at, &whole) == GEMS_OK && take_millionths(&at, &millionths) == GEMS_OK) {
        at += *at == ' ';
        for (size_t i = 0; i < sizeof size_units / sizeof size_units[0]; i++) {
            uint64_t unit = size_units[i].bytes;
            uint64_t bytes;

            if (strcasecmp(at, size_units[i].name) != 0) {
                continue;
            }
            if (__builtin_mul_overflow(whole, unit, &bytes) || bytes > INT64_MAX) {
                return gems_error_set(err, GEMS_E_INVALID, "size '%s' is too large", text);
            }
            /* unit * 1e6 stays below 2^60 */
            *ret_bytes = bytes + unit * millionths / 1000000;
            return GEMS_OK;
        }
    }
    gems_error_set(err, GEMS_E_INVALID, "'%s' is not a size", text);
    gems_error_hint(err, "a number with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 16GiB");
    return GEMS_E_INVALID;
}

static const struct {
    const char *name;
    uint64_t ms;
} duration_units[] = { { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 }, { "ms", 1 } };

enum { N_DURATION_UNITS = sizeof duration_units / sizeof duration_units[0] };

static size_t find_duration_unit(const char *at, size_t n, size_t from)
{
    for (size_t i = from; i < N_DURATION_UNITS; i++) {
        if (strlen(duration_units[i].name) == n && strncmp(duration_units[i].name, at, n) == 0) {
            return i;
        }
    }
    return N_DURATION_UNITS;
}

static int sum_duration(const char *at, uint64_t *ret_ms)
{
    uint64_t sum = 0;
    size_t from = 0;

    do {
        uint64_t value;
        size_t n = 0;
        size_t unit;

        if (take_number(&at, &value) < 0) {
            return GEMS_E_INVALID;
        }
        while (isalpha((unsigned char)at[n])) {
            n++;
        }
        unit = n == 0 && from == 0 && !*at ? 3 : find_duration_unit(at, n, from);
        if (unit == N_DURATION_UNITS ||
            __builtin_mul_overflow(value, duration_units[unit].ms, &value) ||
            __builtin_add_overflow(sum, value, &sum) || sum > INT64_MAX) {
            return GEMS_E_INVALID;
        }
        at += n;
        from = unit + 1;
    } while (*at);
    *ret_ms = sum;
    return GEMS_OK;
}

int parse_duration(const char *text, uint64_t *ret_ms, struct gems_error *err)
{
    if (sum_duration(text, ret_ms) < 0) {
        gems_error_set(err, GEMS_E_INVALID, "'%s' is not a duration", text);
        gems_error_hint(err, "numbers with d, h, m, s or ms, such as 4h or 1h30m");
        return GEMS_E_INVALID;
    }
    return GEMS_OK;
}

char *format_size(uint64_t bytes, char *text, size_t room)
{
    static const char *const names[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes / 1024;
    size_t i = 0;

    if (bytes < 1024) {
        snprintf(text, room, "%d B", (int)bytes);
        return text;
    }
    /* 1023.95 would be shown as 1024.0 */
    while (value >= 1023.95 && i + 1 < sizeof names / sizeof names[0]) {
        value /= 1024;
        i++;
    }
    snprintf(text, room, "%.1f %s", value, names[i]);
    return text;
}

char *format_duration(uint64_t ms, char *text, size_t room)
{
    unsigned long long s = ms / 1000;

    if (ms < 1000) {
        snprintf(text, room, "%dms", (int)ms);
    } else if (s < 60) {
        snprintf(text, room, "%llus", s);
    } else if (s < 3600) {
        snprintf(text, room, "%llum%02llus", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(text, room, "%lluh%02llum", s / 3600, s / 60 % 60);
    } else {
        snprintf(text, room, "%llud%02lluh", s / 86400, s / 3600 % 24);
    }
    return text;
}
