#include "client/jobfile.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/jobkey.h"
#include "common/error.h"

enum { FILE_LIMIT = 1 << 20 };
_Static_assert((int)JOBKEY_COUNT <= (int)JOBFILE_MAX_KEYS, "marks for every key");

static int syntax_error(const yaml_parser_t *parser, const char *label, bool has_lines,
                        struct gems_error *err)
{
    const char *problem = parser->problem ? parser->problem : "cannot be read";

    if (parser->error == YAML_MEMORY_ERROR) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: out of memory", label);
    }
    if (!has_lines) {
        return gems_error_set(err, GEMS_E_INVALID, "%s %s", label, problem);
    }
    if (parser->error == YAML_READER_ERROR) {
        return gems_error_set(err, GEMS_E_INVALID, "%s: byte %zu: %s", label,
                              parser->problem_offset, problem);
    }
    return gems_error_set(err, GEMS_E_INVALID, "%s:%zu:%zu: %s%s%s", label,
                          parser->problem_mark.line + 1, parser->problem_mark.column + 1, problem,
                          parser->context ? ", " : "", parser->context ? parser->context : "");
}

static int unknown_key(const struct jobkey_source *source, const yaml_node_t *node,
                       const char *section, const char *path, const char *name,
                       struct gems_error *err)
{
    const char *nearest = jobkey_nearest(section, name);
    char list[200];

    jobkey_list(section, list, sizeof list);
    jobkey_error(source, node, GEMS_E_INVALID, path, err, "unknown key");
    if (nearest) {
        gems_error_hint(err, "did you mean %s? allowed here: %s", nearest, list);
    } else {
        gems_error_hint(err, "allowed here: %s", list);
    }
    return GEMS_E_INVALID;
}

static int store_key(struct jobfile *job, int key, const struct jobkey_source *source,
                     const yaml_node_t *name, yaml_node_t *value, struct gems_error *err)
{
    struct jobfile_mark *mark = &job->marks[key];

    /* A later --set takes the place of an earlier one; a file says it once. */
    if (mark->is_given && source->has_lines) {
        return jobkey_error(source, name, GEMS_E_INVALID, jobkey_path(key), err,
                            "given twice, first on line %u", mark->line);
    }
    mark->is_given = true;
    mark->is_option = !source->has_lines;
    mark->line = (uint32_t)name->start_mark.line + 1;
    mark->column = (uint32_t)name->start_mark.column + 1;
    return jobkey_read(key, source, value, &job->spec, err);
}

/* The keys of one section, or of the top level (section ""). */
static int read_mapping(struct jobfile *job, const struct jobkey_source *source, yaml_node_t *node,
                        const char *section, struct gems_error *err)
{
    unsigned seen = 0;

    if (node->type != YAML_MAPPING_NODE) {
        return jobkey_error(source, node, GEMS_E_INVALID, section, err,
                            "wanted are keys with values");
    }
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        yaml_node_t *name = yaml_document_get_node(source->document, pair->key);
        yaml_node_t *value = yaml_document_get_node(source->document, pair->value);
        const char *text =
            name->type == YAML_SCALAR_NODE ? (const char *)name->data.scalar.value : "";
        char path[JOBKEY_PATH_BYTES];
        int key, status;

        snprintf(path, sizeof path, "%s%s%s", section, section[0] ? "." : "", text);
        /* A dot in a name would look like a path: that is for --set alone. */
        key = strchr(text, '.') ? -1 : jobkey_find(path);
        if (key >= 0) {
            status = store_key(job, key, source, name, value, err);
        } else if (section[0] == '\0' && jobkey_section(text) >= 0) {
            unsigned bit = 1u << jobkey_section(text);

            if (seen & bit) {
                return jobkey_error(source, name, GEMS_E_INVALID, path, err, "given twice");
            }
            seen |= bit;
            status = read_mapping(job, source, value, text, err);
        } else {
            status = unknown_key(source, name, section, path, text, err);
        }
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

static int read_document(struct jobfile *job, yaml_parser_t *parser, const char *base,
                         struct gems_error *err)
{
    yaml_document_t document, rest;
    struct jobkey_source source = { &document, job->label, true, base };
    yaml_node_t *root, *more;
    int status;

    if (!yaml_parser_load(parser, &document)) {
        return syntax_error(parser, job->label, true, err);
    }
    root = yaml_document_get_root_node(&document);
    if (!root) {
        yaml_document_delete(&document);
        return gems_error_set(err, GEMS_E_INVALID, "%s: the file is empty", job->label);
    }
    status = read_mapping(job, &source, root, "", err);
    yaml_document_delete(&document);
    if (status < 0) {
        return status;
    }
    if (!yaml_parser_load(parser, &rest)) {
        return syntax_error(parser, job->label, true, err);
    }
    more = yaml_document_get_root_node(&rest);
    if (more) {
        status = jobkey_error(&source, more, GEMS_E_INVALID, "", err,
                              "a second document; one job a file");
    }
    yaml_document_delete(&rest);
    return status;
}

/* A job file that cannot be read is a mistake in the command, whatever the
 * system's reason. */
static int unreadable(const char *label, int errno_value, struct gems_error *err)
{
    gems_error_errno(err, errno_value, "%s", label);
    if (err) {
        err->status = GEMS_E_INVALID;
    }
    return GEMS_E_INVALID;
}

static int read_bytes(const char *label, FILE *file, char **ret_bytes, size_t *ret_n,
                      struct gems_error *err)
{
    char *bytes = malloc(FILE_LIMIT + 1);
    size_t n;

    if (!bytes) {
        return gems_error_set(err, GEMS_E_NOMEM, "%s: out of memory", label);
    }
    n = fread(bytes, 1, FILE_LIMIT + 1, file);
    if (ferror(file)) {
        free(bytes);
        return unreadable(label, errno, err);
    }
    if (n > FILE_LIMIT) {
        free(bytes);
        return gems_error_set(err, GEMS_E_INVALID, "%s: larger than 1 MiB: not a job file", label);
    }
    *ret_bytes = bytes;
    *ret_n = n;
    return GEMS_OK;
}

/* Absolute folder of a file; the current one for the standard input. */
static int base_of(const char *file, char ret_base[PATH_MAX], struct gems_error *err)
{
    char folder[PATH_MAX] = ".";
    const char *slash = strrchr(file, '/');

    if (slash) {
        snprintf(folder, sizeof folder, "%.*s", slash == file ? 1 : (int)(slash - file), file);
    }
    return realpath(folder, ret_base) ? GEMS_OK : unreadable(file, errno, err);
}

static int read_file(struct jobfile *job, const char *file, struct gems_error *err)
{
    bool is_stdin = strcmp(file, "-") == 0;
    FILE *stream = is_stdin ? stdin : fopen(file, "re");
    yaml_parser_t parser;
    char base[PATH_MAX], *bytes = NULL;
    size_t n = 0;
    int status;

    if (!stream) {
        return unreadable(file, errno, err);
    }
    job->label = is_stdin ? "standard input" : file;
    status = base_of(is_stdin ? "." : file, base, err);
    if (status == GEMS_OK) {
        status = read_bytes(job->label, stream, &bytes, &n, err);
    }
    if (!is_stdin) {
        fclose(stream);
    }
    if (status == GEMS_OK && !yaml_parser_initialize(&parser)) {
        status = gems_error_set(err, GEMS_E_NOMEM, "%s: out of memory", job->label);
    } else if (status == GEMS_OK) {
        yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, n);
        status = read_document(job, &parser, base, err);
        yaml_parser_delete(&parser);
    }
    free(bytes);
    return status;
}

/* epochs and steps exclude each other: --set of one takes back the file's
 * other, and defaults give way to what is given. */
static void choose_length(struct jobfile *job)
{
    const struct jobfile_mark *epochs = &job->marks[jobkey_find("train.epochs")];
    const struct jobfile_mark *steps = &job->marks[jobkey_find("train.steps")];

    if (steps->is_given && (!epochs->is_given || (steps->is_option && !epochs->is_option))) {
        job->spec.train.epochs = 0;
    } else if (epochs->is_given && epochs->is_option && !steps->is_option) {
        job->spec.train.steps = 0;
    }
}

static int read_set_value(struct jobfile *job, const char *path, const char *value,
                          const char *base, struct gems_error *err)
{
    yaml_parser_t parser;
    yaml_document_t document;
    struct jobkey_source source = { &document, "--set", false, base };
    yaml_node_t *root;
    int key = jobkey_find(path), status;

    if (!yaml_parser_initialize(&parser)) {
        return gems_error_set(err, GEMS_E_NOMEM, "--set %s: out of memory", path);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)value, strlen(value));
    if (!yaml_parser_load(&parser, &document)) {
        char label[JOBKEY_PATH_BYTES + 8];

        snprintf(label, sizeof label, "--set %s:", path);
        status = syntax_error(&parser, label, false, err);
        yaml_parser_delete(&parser);
        return status;
    }
    root = yaml_document_get_root_node(&document);
    if (!root) {
        status = gems_error_set(err, GEMS_E_INVALID, "--set %s: no value behind the =", path);
    } else if (key >= 0) {
        status = store_key(job, key, &source, root, root, err);
    } else if (jobkey_section(path) >= 0) {
        status = read_mapping(job, &source, root, path, err);
    } else {
        const char *dot = strrchr(path, '.');
        char section[JOBKEY_PATH_BYTES];

        snprintf(section, sizeof section, "%.*s", dot ? (int)(dot - path) : 0, path);
        if (jobkey_section(section) < 0) {
            section[0] = '\0';
        }
        status = unknown_key(&source, root, section, path, section[0] ? dot + 1 : path, err);
    }
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    return status;
}

static int read_set(struct jobfile *job, const char *set, struct gems_error *err)
{
    const char *equals = strchr(set, '=');
    char path[JOBKEY_PATH_BYTES], base[PATH_MAX];

    if (!equals || equals == set) {
        return gems_error_set(err, GEMS_E_INVALID, "--set %.80s: wanted is KEY=VALUE", set);
    }
    if ((size_t)(equals - set) >= sizeof path) {
        return gems_error_set(err, GEMS_E_INVALID, "--set %.80s: unknown key", set);
    }
    snprintf(path, sizeof path, "%.*s", (int)(equals - set), set);
    if (!getcwd(base, sizeof base)) {
        return gems_error_errno(err, errno, "current folder");
    }
    return read_set_value(job, path, equals + 1, base, err);
}

/* Combinations, and whether there is such a network. */
static int check_job(const struct job_spec *spec, struct gems_error *err)
{
    int status = spec_check(spec, err);

    if (status == GEMS_OK) {
        struct graph graph;

        status = zoo_build(&spec->model, &graph, err);
        if (status == GEMS_OK) {
            graph_fini(&graph);
        }
    }
    return status;
}

int jobfile_load(const char *file, const char *const *sets, size_t n_sets, struct jobfile *ret_job,
                 struct gems_error *err)
{
    int status;

    memset(ret_job, 0, sizeof *ret_job);
    spec_init(&ret_job->spec);
    status = read_file(ret_job, file, err);
    for (size_t i = 0; status == GEMS_OK && i < n_sets; i++) {
        status = read_set(ret_job, sets[i], err);
    }
    if (status < 0) {
        return status;
    }
    choose_length(ret_job);
    ret_job->spec.model.channels = ret_job->spec.data.channels;
    ret_job->spec.model.height = ret_job->spec.data.height;
    ret_job->spec.model.width = ret_job->spec.data.width;
    status = check_job(&ret_job->spec, err);
    if (status < 0) {
        jobfile_locate(ret_job, err);
    }
    return status;
}

void jobfile_locate(const struct jobfile *job, struct gems_error *err)
{
    char path[JOBKEY_PATH_BYTES], text[sizeof err->text];
    size_t n = strcspn(err->text, ":[ ");
    const struct jobfile_mark *mark;
    int key;

    /* "data.size[0]: ..." speaks of the key data.size. */
    if (n >= sizeof path || (err->text[n] != ':' && err->text[n] != '[')) {
        return;
    }
    memcpy(path, err->text, n);
    path[n] = '\0';
    key = jobkey_find(path);
    if (key < 0 && jobkey_section(path) < 0) {
        return;
    }
    mark = key >= 0 ? &job->marks[key] : NULL;
    if (mark && mark->is_given && mark->is_option) {
        n = (size_t)snprintf(text, sizeof text, "--set %s", err->text);
    } else if (mark && mark->is_given) {
        n = (size_t)snprintf(text, sizeof text, "%s:%u:%u: %s", job->label, mark->line,
                             mark->column, err->text);
    } else {
        n = (size_t)snprintf(text, sizeof text, "%s: %s", job->label, err->text);
    }
    if (n < sizeof text) {
        memcpy(err->text, text, n + 1);
    }
}
