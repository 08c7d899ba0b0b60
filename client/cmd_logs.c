#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/args.h"
#include "client/call.h"
#include "client/output.h"
#include "common/buf.h"
#include "common/error.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

static const struct option_entry options[] = {
    { "follow", 'f', NULL, "go on with what is written until the job ends" },
    { "rank", 0, "N", "only this rank, without a mark in front of the lines" },
    { "tail", 'n', "N", "only the last N lines of each rank" },
    { NULL, 0, NULL, NULL },
};

const struct command cmd_logs = {
    .name = "logs",
    .synopsis = "JOB [-f] [--rank N] [--tail N]",
    .summary = "show what the ranks of a job wrote",
    .details = "Lines of several ranks are marked with [RANK]. If gemsd goes away, -f waits for it "
               "and goes\n"
               "on where it was.\n",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .run = run,
};

/* What has been shown of one rank of one attempt. */
struct stream {
    uint32_t rank, attempt;
    uint64_t next;   /* offset of the first byte not seen */
    struct buf line; /* a line that has no end yet */
};

struct printer {
    bool is_json, is_marked, is_heard;
    struct stream *streams;
    size_t n_streams;
};

static struct stream *find_stream(struct printer *printer, uint32_t rank, uint32_t attempt)
{
    struct stream *larger;

    for (size_t i = 0; i < printer->n_streams; i++) {
        if (printer->streams[i].rank == rank && printer->streams[i].attempt == attempt) {
            return &printer->streams[i];
        }
    }
    larger = reallocarray(printer->streams, printer->n_streams + 1, sizeof *larger);
    if (!larger) {
        return NULL;
    }
    printer->streams = larger;
    larger[printer->n_streams] = (struct stream){ .rank = rank, .attempt = attempt };
    return &larger[printer->n_streams++];
}

static void flush_line(struct stream *stream)
{
    if (stream->line.n > 0) {
        printf("[%u] ", stream->rank);
        fwrite(stream->line.data, 1, stream->line.n, stdout);
        if (stream->line.data[stream->line.n - 1] != '\n') {
            printf("\n");
        }
        buf_clear(&stream->line);
    }
}

/* Whole lines with the rank in front; the rest is kept for the next chunk. */
static int print_marked(struct stream *stream, const uint8_t *data, size_t n)
{
    while (n > 0) {
        const uint8_t *end = memchr(data, '\n', n);
        size_t part = end ? (size_t)(end - data) + 1 : n;

        if (buf_add(&stream->line, data, part) < 0) {
            return GEMS_E_NOMEM;
        }
        if (end) {
            flush_line(stream);
        }
        data += part;
        n -= part;
    }
    return GEMS_OK;
}

static int on_chunk(void *arg, const ProtobufCMessage *message, struct gems_error *err)
{
    struct printer *printer = arg;
    const Gems__LogChunk *chunk = (const Gems__LogChunk *)message;
    struct stream *stream = find_stream(printer, chunk->rank, chunk->attempt);
    const uint8_t *data = chunk->data.data;
    size_t n = chunk->data.len;
    uint64_t offset = chunk->offset;

    printer->is_heard = true;
    if (!stream) {
        return gems_error_set(err, GEMS_E_NOMEM, "logs: out of memory");
    }
    if (offset < stream->next) { /* shown before the connection broke */
        uint64_t seen = stream->next - offset;

        seen = seen < n ? seen : n;
        data += seen;
        n -= (size_t)seen;
        offset += seen;
    }
    if (n > 0) {
        stream->next = offset + n;
        if (printer->is_json) {
            output_json(json_pack("{s:I, s:I, s:I, s:o}", "rank", (json_int_t)chunk->rank,
                                  "attempt", (json_int_t)chunk->attempt, "offset",
                                  (json_int_t)offset, "data", output_text((const char *)data, n)));
        } else if (!printer->is_marked) {
            fwrite(data, 1, n, stdout);
        } else if (print_marked(stream, data, n) < 0) {
            return gems_error_set(err, GEMS_E_NOMEM, "logs: out of memory");
        }
        fflush(stdout);
    }
    return chunk->last ? 1 : 0;
}

static int stream_once(const struct client *client, const Gems__LogsRequest *request,
                       struct printer *printer, struct gems_error *err)
{
    struct call *call;
    int status = call_open(client, &call, err);

    if (status < 0) {
        return status;
    }
    printer->is_heard = true;
    status = call_stream(call, MSG_LOGS, &request->base, MSG_LOG_CHUNK,
                         request->follow ? 0 : CALL_TIMEOUT_MS, on_chunk, printer, err);
    call_close(call);
    return status;
}

enum { RETRY_MS = 500, MAX_RETRIES = 240 };

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    Gems__LogsRequest request = GEMS__LOGS_REQUEST__INIT;
    struct printer printer = { .is_json = client->is_json, .is_marked = !args_has(args, "rank") };
    uint64_t rank = 0, tail = 0;
    uint32_t retries = 0;
    int status = args_job(args, 0, &request.job, err);

    if (status < 0 || (status = args_number(args, "rank", 0, UINT16_MAX, &rank, err)) < 0 ||
        (status = args_number(args, "tail", 1, UINT32_MAX, &tail, err)) < 0) {
        return status;
    }
    request.follow = args_has(args, "follow");
    request.has_rank = args_has(args, "rank");
    request.rank = (uint32_t)rank;
    request.tail = (uint32_t)tail;
    for (;;) {
        bool was_heard = printer.is_heard;

        printer.is_heard = false;
        status = stream_once(client, &request, &printer, err);
        retries = printer.is_heard ? 0 : retries + 1;
        printer.is_heard |= was_heard;
        if (status != GEMS_E_PEER || !request.follow || !printer.is_heard ||
            retries > MAX_RETRIES) {
            break;
        }
        request.tail = 0; /* from here on by offset */
        status = call_sleep(RETRY_MS, err);
        if (status < 0) {
            break;
        }
    }
    for (size_t i = 0; i < printer.n_streams; i++) {
        flush_line(&printer.streams[i]);
        buf_fini(&printer.streams[i].line);
    }
    free(printer.streams);
    return status;
}
