#include "common/conf.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/buf.h"
#include "common/error.h"
#include "common/fsutil.h"

enum { CONF_FILE_BYTES = 1 << 20, CONF_LINE_BYTES = 4096, CONF_MAX_ITEMS = 1024 };

/* Where we are in a file, for messages. */
struct reader {
    const char *name;
    const struct conf_table *table;
    void *settings;
    bool *is_given; /* by key */
    char section[64];
    int line;
};

static void *member(void *settings, const struct conf_key *key)
{
    return (char *)settings + key->offset;
}

static void list_fini(struct conf_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->items[i]);
    }
    free(list->items);
    *list = (struct conf_list){ 0 };
}

static int set_string(char **string, const char *value, struct gems_error *err)
{
    char *copy = strdup(value);

    if (!copy) {
        return gems_error_set(err, GEMS_E_NOMEM, "no memory");
    }
    free(*string);
    *string = copy;
    return GEMS_OK;
}

static int set_path(char **path, const char *value, struct gems_error *err)
{
    if (value[0] != '/') {
        return gems_error_set(err, GEMS_E_INVALID, "'%s' is not an absolute path", value);
    }
    return set_string(path, value, err);
}

static int set_list(struct conf_list *list, const char *value, struct gems_error *err)
{
    static const char separators[] = " \t,";
    struct conf_list items = { 0 };

    for (const char *at = value + strspn(value, separators); *at; at += strspn(at, separators)) {
        size_t n = strcspn(at, separators);
        char **more = items.n < CONF_MAX_ITEMS ?
                          realloc(items.items, (items.n + 1) * sizeof *items.items) :
                          NULL;

        if (more) {
            items.items = more;
            items.items[items.n] = strndup(at, n);
        }
        if (!more || !items.items[items.n]) {
            list_fini(&items);
            return gems_error_set(err, GEMS_E_NOMEM, "too many items or no memory");
        }
        items.n++;
        at += n;
    }
    list_fini(list);
    *list = items;
    return GEMS_OK;
}

static int set_bool(bool *is_on, const char *value, struct gems_error *err)
{
    static const char *const words[] = { "no", "yes", "false", "true", "off", "on" };

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(words[i], value) == 0) {
            *is_on = i % 2 == 1;
            return GEMS_OK;
        }
    }
    gems_error_set(err, GEMS_E_INVALID, "'%s' is neither yes nor no", value);
    gems_error_hint(err, "yes, no, true, false, on or off");
    return GEMS_E_INVALID;
}

static void format_number(enum conf_kind kind, uint64_t value, char *text, size_t room)
{
    if (kind == CONF_SIZE) {
        format_size(value, text, room);
    } else if (kind == CONF_DURATION) {
        format_duration(value, text, room);
    } else {
        snprintf(text, room, "%llu", (unsigned long long)value);
    }
}

static int set_number(uint64_t *number, const struct conf_key *key, const char *value,
                      struct gems_error *err)
{
    uint64_t max = key->max ? key->max : UINT64_MAX;
    uint64_t parsed = 0;
    char low[32];
    char high[32];
    int st;

    if (key->kind == CONF_SIZE) {
        st = parse_size(value, &parsed, err);
    } else if (key->kind == CONF_DURATION) {
        st = parse_duration(value, &parsed, err);
    } else {
        st = parse_u64(value, &parsed, err);
    }
    if (st < 0) {
        return st;
    }
    if (parsed < key->min || parsed > max) {
        format_number(key->kind, key->min, low, sizeof low);
        format_number(key->kind, max, high, sizeof high);
        gems_error_set(err, GEMS_E_INVALID, "%s is out of range", value);
        if (key->max) {
            gems_error_hint(err, "from %s to %s", low, high);
        } else {
            gems_error_hint(err, "at least %s", low);
        }
        return GEMS_E_INVALID;
    }
    *number = parsed;
    return GEMS_OK;
}

static int set_choice(int *choice, const struct conf_key *key, const char *value,
                      struct gems_error *err)
{
    struct buf names = { 0 };

    for (int i = 0; key->choices[i]; i++) {
        if (strcmp(key->choices[i], value) == 0) {
            buf_fini(&names);
            *choice = i;
            return GEMS_OK;
        }
        buf_printf(&names, "%s%s", i ? ", " : "", key->choices[i]);
    }
    gems_error_set(err, GEMS_E_INVALID, "'%s' is not known here", value);
    gems_error_hint(err, "one of %.*s", (int)names.n, (const char *)names.data);
    buf_fini(&names);
    return GEMS_E_INVALID;
}

static int set_value(const struct conf_key *key, void *settings, const char *value,
                     struct gems_error *err)
{
    void *at = member(settings, key);

    switch (key->kind) {
    case CONF_STRING:
        return set_string(at, value, err);
    case CONF_PATH:
        return set_path(at, value, err);
    case CONF_LIST:
        return set_list(at, value, err);
    case CONF_BOOL:
        return set_bool(at, value, err);
    case CONF_UINT:
    case CONF_SIZE:
    case CONF_DURATION:
        return set_number(at, key, value, err);
    case CONF_CHOICE:
        return set_choice(at, key, value, err);
    }
    return gems_error_set(err, GEMS_E_INTERNAL, "key %s has no kind", key->name);
}

static const struct conf_key *find_key(const struct conf_table *table, const char *section,
                                       size_t n_section, const char *name)
{
    for (size_t i = 0; i < table->n_keys; i++) {
        const struct conf_key *key = &table->keys[i];

        if (strlen(key->section) == n_section && memcmp(key->section, section, n_section) == 0 &&
            strcmp(key->name, name) == 0) {
            return key;
        }
    }
    return NULL;
}

/* "one of a, b, c": the keys of a section, or all sections if it has none. */
static void hint_keys(const struct conf_table *table, const char *section, struct gems_error *err)
{
    struct buf names = { 0 };

    for (size_t i = 0; i < table->n_keys; i++) {
        if (strcmp(table->keys[i].section, section) == 0) {
            buf_printf(&names, "%s%s", names.n ? ", " : "", table->keys[i].name);
        }
    }
    gems_error_hint(err, "known here: %.*s", (int)names.n, names.n ? (const char *)names.data : "");
    buf_fini(&names);
}

static void hint_sections(const struct conf_table *table, struct gems_error *err)
{
    struct buf names = { 0 };
    const char *last = "";

    for (size_t i = 0; i < table->n_keys; i++) {
        if (strcmp(table->keys[i].section, last) != 0) {
            last = table->keys[i].section;
            buf_printf(&names, "%s[%s]", names.n ? ", " : "", last);
        }
    }
    gems_error_hint(err, "known: %.*s", (int)names.n, names.n ? (const char *)names.data : "");
    buf_fini(&names);
}

static bool has_section(const struct conf_table *table, const char *section)
{
    for (size_t i = 0; i < table->n_keys; i++) {
        if (strcmp(table->keys[i].section, section) == 0) {
            return true;
        }
    }
    return false;
}

static int fail_at(const struct reader *in, size_t column, struct gems_error *err, const char *format,
                   ...) __attribute__((format(printf, 4, 5)));

static int fail_at(const struct reader *in, size_t column, struct gems_error *err, const char *format,
                   ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return gems_error_set(err, GEMS_E_INVALID, "%s:%d:%zu: %s", in->name, in->line, column + 1, text);
}

/* Removes quotes in place. Text must begin with one. */
static int unquote(char *text)
{
    char *to = text;
    char *at = text + 1;

    for (; *at && *at != '"'; at++) {
        if (*at == '\\' && (at[1] == '"' || at[1] == '\\')) {
            at++;
        }
        *to++ = *at;
    }
    if (*at != '"' || at[1]) {
        return GEMS_E_INVALID;
    }
    *to = '\0';
    return GEMS_OK;
}

static int read_heading(struct reader *in, const char *line, size_t start, struct gems_error *err)
{
    size_t n = strlen(line);

    if (line[n - 1] != ']' || n - start < 3 || n - start - 2 >= sizeof in->section) {
        return fail_at(in, start, err, "a heading is [section]");
    }
    snprintf(in->section, sizeof in->section, "%.*s", (int)(n - start - 2), line + start + 1);
    if (!has_section(in->table, in->section)) {
        int st = fail_at(in, start, err, "unknown section [%s]", in->section);

        hint_sections(in->table, err);
        return st;
    }
    return GEMS_OK;
}

static int read_setting(struct reader *in, char *line, size_t start, struct gems_error *err)
{
    char *equals = strchr(line, '=');
    const struct conf_key *key;
    size_t name_end;
    char *value;
    struct gems_error why = { 0 };

    if (!equals) {
        return fail_at(in, start, err, "'key = value' expected");
    }
    name_end = (size_t)(equals - line);
    while (name_end > start && isspace((unsigned char)line[name_end - 1])) {
        name_end--;
    }
    value = equals + 1;
    value += strspn(value, " \t");
    line[name_end] = '\0';
    key = find_key(in->table, in->section, strlen(in->section), line + start);
    if (!key) {
        int st = fail_at(in, start, err, "unknown key '%s'", line + start);

        hint_keys(in->table, in->section, err);
        return st;
    }
    if (in->is_given[key - in->table->keys]) {
        return fail_at(in, start, err, "'%s' is given twice", key->name);
    }
    in->is_given[key - in->table->keys] = true;
    if (value[0] == '"' && unquote(value) < 0) {
        return fail_at(in, (size_t)(value - line), err, "bad quotes: \"text\" with \\\" and \\\\ inside");
    }
    if (set_value(key, in->settings, value, &why) < 0) {
        int st = fail_at(in, (size_t)(value - line), err, "%s: %s", key->name, why.text);

        if (err) {
            err->status = why.status;
            memcpy(err->hint, why.hint, sizeof err->hint);
        }
        return why.status < 0 ? (int)why.status : st;
    }
    return GEMS_OK;
}

static int read_line(struct reader *in, char *line, struct gems_error *err)
{
    size_t n = strlen(line);
    size_t start;

    while (n > 0 && isspace((unsigned char)line[n - 1])) {
        line[--n] = '\0';
    }
    start = strspn(line, " \t");
    if (!line[start] || line[start] == '#' || line[start] == ';') {
        return GEMS_OK;
    }
    return line[start] == '[' ? read_heading(in, line, start, err) : read_setting(in, line, start, err);
}

int conf_parse(const char *text, size_t n, const char *name, const struct conf_table *table,
               void *settings, struct gems_error *err)
{
    struct reader in = { .name = name, .table = table, .settings = settings };
    const char *at = text;
    const char *end = text + n;
    int st = GEMS_OK;

    in.is_given = calloc(table->n_keys + 1, sizeof *in.is_given);
    if (!in.is_given) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: no memory", name);
    }
    while (st == GEMS_OK && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        char line[CONF_LINE_BYTES];

        in.line++;
        if (length >= sizeof line || memchr(at, '\0', length)) {
            st = fail_at(&in, 0, err, "line too long or not text");
            break;
        }
        memcpy(line, at, length);
        line[length] = '\0';
        st = read_line(&in, line, err);
        at += length + 1;
    }
    free(in.is_given);
    return st;
}

int conf_load(const char *path, const struct conf_table *table, void *settings, struct gems_error *err)
{
    struct buf text = { 0 };
    int st = fs_read(path, CONF_FILE_BYTES, &text, err);

    if (st == GEMS_OK) {
        st = conf_parse((const char *)text.data, text.n, path, table, settings, err);
    }
    buf_fini(&text);
    return st;
}

int conf_set(const struct conf_table *table, void *settings, const char *key, const char *value,
             struct gems_error *err)
{
    const char *dot = strchr(key, '.');
    size_t n_section = dot ? (size_t)(dot - key) : 0;
    const struct conf_key *found = find_key(table, key, n_section, dot ? dot + 1 : key);
    struct gems_error why = { 0 };
    int st;

    if (!found) {
        return gems_error_set(err, GEMS_E_INVALID, "unknown key '%s'", key);
    }
    st = set_value(found, settings, value, &why);
    if (st < 0) {
        gems_error_set(err, (enum gems_status)st, "%s: %s", key, why.text);
        if (err) {
            memcpy(err->hint, why.hint, sizeof err->hint);
        }
    }
    return st;
}

void conf_fini(const struct conf_table *table, void *settings)
{
    for (size_t i = 0; i < table->n_keys; i++) {
        const struct conf_key *key = &table->keys[i];

        if (key->kind == CONF_STRING || key->kind == CONF_PATH) {
            char **string = member(settings, key);

            free(*string);
            *string = NULL;
        } else if (key->kind == CONF_LIST) {
            list_fini(member(settings, key));
        }
    }
}
