#include <inttypes.h>

#include "client/args.h"
#include "client/call.h"
#include "client/output.h"
#include "common/clock.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

const struct command cmd_events = {
    .name = "events",
    .synopsis = "JOB",
    .summary = "show what happened to a job, when, by whom and why",
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};

static void print_json(const Gems__EventsReply *reply)
{
    json_t *list = json_array();

    for (size_t i = 0; i < reply->n_events; i++) {
        const Gems__EventInfo *event = reply->events[i];

        json_array_append_new(
            list, json_pack("{s:o, s:s, s:s, s:s, s:I, s:s}", "when", output_time(event->when_us),
                            "who", event->who, "event", event->event, "state", event->state,
                            "attempt", (json_int_t)event->attempt, "why", event->why));
    }
    output_json(json_pack("{s:o}", "events", list));
}

static void print_table(const Gems__EventsReply *reply)
{
    static const char *const titles[] = { "WHEN", "ATTEMPT", "WHO", "EVENT", "STATE", "WHY" };
    struct table *table = table_create(titles, 6);
    char when[CLOCK_TEXT_BYTES];

    for (size_t i = 0; i < reply->n_events; i++) {
        const Gems__EventInfo *event = reply->events[i];

        clock_format_utc(event->when_us, when);
        table_cell(table, "%s", when);
        table_cell(table, "%u", event->attempt);
        table_cell(table, "%s", event->who);
        table_cell(table, "%s", event->event);
        table_cell(table, "%s", event->state);
        table_cell(table, "%s", event->why);
    }
    table_print(table);
    table_destroy(table);
}

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    Gems__JobRequest request = GEMS__JOB_REQUEST__INIT;
    ProtobufCMessage *message;
    int status = args_job(args, 0, &request.job, err);

    if (status == 0) {
        status = call_once(client, MSG_EVENTS, &request.base, MSG_EVENTS_REPLY, CALL_TIMEOUT_MS,
                           &message, err);
    }
    if (status < 0) {
        return status;
    }
    if (client->is_json) {
        print_json((const Gems__EventsReply *)message);
    } else {
        print_table((const Gems__EventsReply *)message);
    }
    msg_free(message);
    return EXIT_OK;
}
