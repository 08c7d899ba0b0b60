/* Sizes and durations as people write them. */
#ifndef GEMS_COMMON_UNITS_H
#define GEMS_COMMON_UNITS_H

#include <stddef.h>
#include <stdint.h>

struct gems_error;

/* A whole number in decimal, without sign or spaces. GEMS_E_INVALID. */
int parse_u64(const char *text, uint64_t *ret_value, struct gems_error *err);

/* "16GiB", "1.5 MiB", "500MB", "4096": B, kB/MB/GB/TB (1000), KiB/MiB/GiB/TiB
 * (1024), K/M/G/T (1024 too). GEMS_E_INVALID with the allowed units. */
int parse_size(const char *text, uint64_t *ret_bytes, struct gems_error *err);

/* "4h", "1h30m", "90s", "250ms", "2d": one or more of d, h, m, s, ms, largest
 * first; a bare number is seconds. GEMS_E_INVALID with the allowed units. */
int parse_duration(const char *text, uint64_t *ret_ms, struct gems_error *err);

/* "16.0 GiB", "512 B". Returns text. */
char *format_size(uint64_t bytes, char *text, size_t room);

/* "250ms", "12s", "4m05s", "3h07m", "2d04h": the two largest units. Returns text. */
char *format_duration(uint64_t ms, char *text, size_t room);

#endif
