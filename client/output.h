/* What a command prints: tables for people, JSON for programs.
 *
 * Results go to stdout; progress goes to stderr and only to a terminal.
 */
#ifndef GEMS_CLIENT_OUTPUT_H
#define GEMS_CLIENT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

struct gems_error;

/* Prints value on one line and takes it; false (and a message) if it is NULL
 * (memory ran out). */
bool output_json(json_t *value);

/* Writes a result to a file, whole or not at all; "-" is stdout, and what is there and
 * no plain file (a pipe, a terminal) is written to. */
int output_file(const char *path, const void *data, size_t n, struct gems_error *err);

/* A JSON number, or null for NaN and infinities (takes no room in JSON). */
json_t *output_real(double value);
/* A JSON text that stands for bytes that may not be UTF-8: others become '?'. */
json_t *output_text(const char *bytes, size_t n);
/* RFC 3339 in UTC, or null for 0. */
json_t *output_time(int64_t time_us);

/* Columns that are as wide as their widest cell; a column of numbers stands
 * right. Cells are copied, control characters in them replaced. */
struct table;
struct table *table_create(const char *const *titles, uint32_t n_columns);
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(const struct table *table);
void table_destroy(struct table *table);

/* stderr is a terminal: progress may be shown. */
bool output_is_terminal(void);
/* Colours are wanted: stdout is a terminal and NO_COLOR is not set. */
bool output_is_coloured(void);

/* A progress line: bar, step, rate, loss, accuracy, time left. Writes at most
 * n bytes; NaN and 0 leave their part out. width: of the terminal. */
struct progress {
    const char *state, *reason;
    uint64_t step, steps_total;
    uint32_t epoch;
    double samples_per_second, loss, accuracy, eval_accuracy, eta_seconds;
};
void output_progress(const struct progress *progress, uint32_t width, char *ret_line, size_t n);
/* Shows a line in place of the last one; NULL ends it. Only on a terminal. */
void output_progress_show(const char *line);

#endif
