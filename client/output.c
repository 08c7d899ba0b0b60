#include "client/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/error.h"
#include "common/fsutil.h"
#include "common/units.h"

static int write_stream(const char *path, const void *data, size_t n, struct gems_error *err)
{
    int fd = strcmp(path, "-") == 0 ? dup(STDOUT_FILENO) : open(path, O_WRONLY | O_CLOEXEC);
    int failed;

    if (fd < 0) {
        return gems_error_errno(err, errno, "%s", path);
    }
    fflush(stdout);
    failed = fs_write_all(fd, data, n);
    close(fd);
    return failed < 0 ? gems_error_errno(err, -failed, "%s", path) : GEMS_OK;
}

int output_file(const char *path, const void *data, size_t n, struct gems_error *err)
{
    struct stat file;
    mode_t mask;

    if (strcmp(path, "-") == 0 || (stat(path, &file) == 0 && !S_ISREG(file.st_mode))) {
        return write_stream(path, data, n, err);
    }
    mask = umask(0);
    umask(mask);
    return fs_write_atomic(path, data, n, 0666 & ~mask, err);
}

bool output_json(json_t *value)
{
    bool is_written =
        value && json_dumpf(value, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0;

    if (is_written) {
        fputc('\n', stdout);
        fflush(stdout);
    } else {
        fprintf(stderr, "gems-client: output: out of memory or not writable\n");
    }
    json_decref(value);
    return is_written;
}

json_t *output_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *output_text(const char *bytes, size_t n)
{
    json_t *text = json_stringn(bytes, n);
    char *copy;

    if (text || !(copy = malloc(n + 1))) {
        return text;
    }
    for (size_t i = 0; i < n; i++) {
        copy[i] = (unsigned char)bytes[i] < 0x80 ? bytes[i] : '?';
    }
    text = json_stringn(copy, n);
    free(copy);
    return text;
}

json_t *output_time(int64_t time_us)
{
    char text[CLOCK_TEXT_BYTES];

    if (time_us == 0) {
        return json_null();
    }
    clock_format_utc(time_us, text);
    return json_string(text);
}

struct table {
    uint32_t n_columns;
    size_t n_cells, capacity;
    char **cells; /* titles first; owned */
    bool is_failed;
};

static void add_cell(struct table *table, const char *text)
{
    if (table->n_cells == table->capacity) {
        size_t capacity = 2 * table->capacity + 64;
        char **larger = reallocarray(table->cells, capacity, sizeof *larger);

        if (!larger) {
            table->is_failed = true;
            return;
        }
        table->cells = larger;
        table->capacity = capacity;
    }
    table->cells[table->n_cells] = strdup(text);
    table->is_failed |= !table->cells[table->n_cells];
    table->n_cells += table->cells[table->n_cells] != NULL;
}

struct table *table_create(const char *const *titles, uint32_t n_columns)
{
    struct table *table = calloc(1, sizeof *table);

    if (!table) {
        return NULL;
    }
    table->n_columns = n_columns;
    for (uint32_t i = 0; i < n_columns; i++) {
        add_cell(table, titles[i]);
    }
    return table;
}

void table_cell(struct table *table, const char *format, ...)
{
    char text[512];
    va_list args;

    if (!table) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    gems_text_line(text); /* what a user or a node sent must not move the cursor */
    add_cell(table, text);
}

static size_t column_width(const struct table *table, uint32_t column)
{
    size_t width = 0;

    for (size_t i = column; i < table->n_cells; i += table->n_columns) {
        size_t n = strlen(table->cells[i]);

        width = n > width ? n : width;
    }
    return width;
}

/* Only numbers (and - for none) below the title. */
static bool is_numeric(const struct table *table, uint32_t column)
{
    for (size_t i = column + table->n_columns; i < table->n_cells; i += table->n_columns) {
        const char *cell = table->cells[i];

        if (strcmp(cell, "-") != 0 && cell[strspn(cell, "0123456789.,/%")] != '\0') {
            return false;
        }
    }
    return true;
}

void table_print(const struct table *table)
{
    if (!table || table->is_failed) {
        fprintf(stderr, "gems-client: output: out of memory\n");
        return;
    }
    for (size_t i = 0; i < table->n_cells; i++) {
        uint32_t column = (uint32_t)(i % table->n_columns);
        bool is_last = column + 1 == table->n_columns;
        int width = (int)column_width(table, column);

        if (is_numeric(table, column)) {
            printf("%s%*s", column > 0 ? "  " : "", width, table->cells[i]);
        } else {
            printf("%s%*s", column > 0 ? "  " : "", is_last ? 0 : -width, table->cells[i]);
        }
        if (is_last) {
            printf("\n");
        }
    }
}

void table_destroy(struct table *table)
{
    if (!table) {
        return;
    }
    for (size_t i = 0; i < table->n_cells; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
    free(table);
}

bool output_is_terminal(void)
{
    const char *term = getenv("TERM");

    return isatty(STDERR_FILENO) == 1 && !(term && strcmp(term, "dumb") == 0);
}

bool output_is_coloured(void)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");

    return !(no_color && no_color[0]) && isatty(STDOUT_FILENO) == 1 &&
           !(term && strcmp(term, "dumb") == 0);
}

/* Appends; the line stays terminated and never grows above n. */
static void append(char *line, size_t n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *line, size_t n, const char *format, ...)
{
    size_t used = strlen(line);
    va_list args;

    va_start(args, format);
    vsnprintf(line + used, n - used, format, args);
    va_end(args);
}

static void append_bar(char *line, size_t n, double share, uint32_t cells)
{
    uint32_t filled = (uint32_t)(share * cells + 0.5);

    append(line, n, "[");
    for (uint32_t i = 0; i < cells; i++) {
        append(line, n, "%c", i < filled ? '=' : i == filled ? '>' : ' ');
    }
    append(line, n, "] ");
}

void output_progress(const struct progress *p, uint32_t width, char *ret_line, size_t n)
{
    char text[32];

    ret_line[0] = '\0';
    if (width + 1 < n) {
        n = width + 1;
    }
    if (p->steps_total == 0 || p->step == 0) {
        append(ret_line, n, "%s%s%s", p->state, p->reason && p->reason[0] ? ": " : "",
               p->reason ? p->reason : "");
        return;
    }
    if (width >= 100) {
        append_bar(ret_line, n, fmin(1, (double)p->step / (double)p->steps_total), 24);
    }
    append(ret_line, n, "step %" PRIu64 "/%" PRIu64 " epoch %u", p->step, p->steps_total,
           p->epoch + 1);
    if (p->samples_per_second > 0) {
        append(ret_line, n, "  %.*f/s", p->samples_per_second < 100 ? 1 : 0, p->samples_per_second);
    }
    if (!isnan(p->loss)) {
        append(ret_line, n, "  loss %.4f", p->loss);
    }
    if (!isnan(p->accuracy)) {
        append(ret_line, n, "  acc %.3f", p->accuracy);
    }
    if (!isnan(p->eval_accuracy)) {
        append(ret_line, n, "  eval %.4f", p->eval_accuracy);
    }
    if (!isnan(p->eta_seconds) && p->eta_seconds >= 0 && p->eta_seconds < 1e9) {
        append(ret_line, n, "  ETA %s",
               format_duration(1000 * (uint64_t)(p->eta_seconds + 0.5), text, sizeof text));
    }
    if (strcmp(p->state, "RUNNING") != 0) {
        append(ret_line, n, "  %s", p->state);
    }
}

void output_progress_show(const char *line)
{
    static bool is_shown;

    if (line) {
        fprintf(stderr, "\r\033[K%s", line);
    } else if (is_shown) {
        fprintf(stderr, "\r\033[K");
    }
    is_shown = line != NULL;
    fflush(stderr);
}
