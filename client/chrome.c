#include "client/chrome.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/output.h"
#include "common/error.h"
#include "plan/match.h"

enum { THREAD_INSTRUCTIONS, THREAD_MESSAGES };

/* Microseconds, to the nanosecond. */
static json_t *time_json(double seconds)
{
    return json_real(round(seconds * 1e9) / 1e3);
}

static void add_meta(json_t *events, uint32_t rank, int thread, const char *what, const char *key,
                     json_t *value)
{
    json_array_append_new(events,
                          json_pack("{s:s, s:s, s:i, s:i, s:{s:o}}", "ph", "M", "name", what, "pid",
                                    (int)rank, "tid", thread, "args", key, value));
}

static void add_names(json_t *events, const struct timeline_rank *rank, uint32_t r)
{
    char name[32];

    snprintf(name, sizeof name, "rank %u", r);
    add_meta(events, r, 0, "process_name", "name", json_string(name));
    add_meta(events, r, 0, "process_sort_index", "sort_index", json_integer(r));
    if (rank->label[0]) {
        add_meta(events, r, 0, "process_labels", "labels",
                 output_text(rank->label, strlen(rank->label)));
    }
    add_meta(events, r, THREAD_INSTRUCTIONS, "thread_name", "name", json_string("instructions"));
    add_meta(events, r, THREAD_MESSAGES, "thread_name", "name", json_string("messages"));
}

static json_t *args_json(const struct timeline_span *span)
{
    const struct instr *instr = &span->instr;
    bool is_message = instr_is_send(instr) || instr_is_recv(instr);
    json_t *args = json_pack("{s:s, s:i, s:i, s:i}", "instruction",
                             instr_name((enum instr_op)instr->op), "chain", (int)instr->chain,
                             "stage", (int)instr->stage, "microbatch", (int)instr->microbatch);

    if (is_message) {
        json_object_set_new(args, "edge", json_integer(instr->edge));
        json_object_set_new(args, "peer", json_integer(instr->peer));
    }
    return args;
}

static json_t *event_json(const struct timeline_span *span, const char *ph, uint32_t rank,
                          int thread, double time)
{
    char name[TIMELINE_NAME_BYTES];

    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:o}", "ph", ph, "name", timeline_name(span, name),
                     "cat", timeline_kind_name(span->kind), "pid", (int)rank, "tid", thread, "ts",
                     time_json(time));
}

/* Messages overlap: they begin and end as a pair with a number of their own. */
static void add_message(json_t *events, const struct timeline_span *span, uint32_t rank,
                        uint32_t number)
{
    json_t *begin = event_json(span, "b", rank, THREAD_MESSAGES, fmax(span->start, 0));
    json_t *end = event_json(span, "e", rank, THREAD_MESSAGES, fmax(span->end, 0));
    char id[32];

    snprintf(id, sizeof id, "0x%x", number);
    json_object_set_new(begin, "id", json_string(id));
    json_object_set_new(end, "id", json_string(id));
    json_object_set_new(begin, "args", args_json(span));
    json_array_append_new(events, begin);
    json_array_append_new(events, end);
}

static void add_span(json_t *events, const struct timeline_span *span, uint32_t rank)
{
    json_t *event = event_json(span, "X", rank, THREAD_INSTRUCTIONS, span->start);

    json_object_set_new(event, "dur", time_json(span->end - span->start));
    json_object_set_new(event, "args", args_json(span));
    json_array_append_new(events, event);
}

json_t *chrome_json(const struct timeline *timeline, json_t *about)
{
    json_t *events = json_array();
    uint32_t number = 0;

    for (uint32_t r = 0; r < timeline->n_ranks; r++) {
        const struct timeline_rank *rank = &timeline->ranks[r];

        add_names(events, rank, r);
        for (uint32_t i = 0; i < rank->n; i++) {
            if (rank->spans[i].kind == TIMELINE_MESSAGE) {
                add_message(events, &rank->spans[i], r, ++number);
            } else {
                add_span(events, &rank->spans[i], r);
            }
        }
    }
    return json_pack("{s:o, s:s, s:o}", "traceEvents", events, "displayTimeUnit", "ms", "otherData",
                     about);
}

int chrome_write(const struct timeline *timeline, json_t *about, const char *path,
                 struct gems_error *err)
{
    json_t *trace = chrome_json(timeline, about);
    char *text = trace ? json_dumps(trace, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    int status = text ? output_file(path, text, strlen(text), err)
                      : gems_error_set(err, GEMS_E_NOMEM, "trace: out of memory");

    free(text);
    json_decref(trace);
    return status;
}
