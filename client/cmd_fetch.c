#include <stdio.h>

#include "client/args.h"
#include "client/fetch.h"
#include "client/output.h"
#include "common/error.h"
#include "common/units.h"

static int run(const struct client *client, const struct args *args, struct gems_error *err);

static const struct option_entry options[] = {
    { "output", 'o', "FILE", "safetensors file to write" },
    { "step", 0, "N", "the checkpoint of this step; default the newest" },
    { "best", 0, NULL, "the checkpoint with the best evaluation" },
    { NULL, 0, NULL, NULL },
};

const struct command cmd_fetch = {
    .name = "fetch",
    .synopsis = "JOB -o FILE.safetensors [--step N | --best]",
    .summary = "write the weights of a job to a safetensors file",
    .details = "FILE appears when it is complete and checked. Its notes name the model, the "
               "normalisation\n"
               "of the images (mean, std), the number of classes and the hash of the weights.\n",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .run = run,
};

static int receive(const struct client *client, const Gems__FetchRequest *request,
                   struct fetch *fetch, struct gems_error *err)
{
    struct call *call;
    int status = call_open(client, &call, err);

    if (status < 0) {
        return status;
    }
    status = call_stream(call, MSG_FETCH, &request->base, MSG_FETCH_CHUNK, CALL_TIMEOUT_MS,
                         fetch_chunk, fetch, err);
    call_close(call);
    return status < 0 ? status : fetch_commit(fetch, err);
}

static void print_answer(const struct client *client, const struct fetch *fetch, const char *path)
{
    char size[32];

    if (client->is_json) {
        output_json(json_pack("{s:s, s:I, s:I, s:s, s:s}", "file", path, "bytes",
                              (json_int_t)fetch_bytes(fetch), "tensors",
                              (json_int_t)fetch_tensors(fetch), "step", fetch_note(fetch, "gems.step"),
                              "weights_hash", fetch_note(fetch, "gems.weights_hash")));
    } else {
        printf("%s: %u tensors, %s, weights %s\n", path, fetch_tensors(fetch),
               format_size(fetch_bytes(fetch), size, sizeof size),
               fetch_note(fetch, "gems.weights_hash"));
    }
}

static int run(const struct client *client, const struct args *args, struct gems_error *err)
{
    Gems__FetchRequest request = GEMS__FETCH_REQUEST__INIT;
    const char *path = args_value(args, "output");
    struct fetch *fetch;
    int status = args_job(args, 0, &request.job, err);

    if (status < 0 || (status = args_number(args, "step", 0, INT64_MAX, &request.step, err)) < 0) {
        return status;
    }
    request.has_step = args_has(args, "step");
    request.best = args_has(args, "best");
    if (!path || path[0] == '\0') {
        return gems_error_set(err, GEMS_E_INVALID, "fetch: -o FILE is missing");
    }
    if (request.has_step && request.best) {
        return gems_error_set(err, GEMS_E_INVALID, "fetch: --step and --best exclude each other");
    }
    fetch = fetch_create(path, err);
    if (!fetch) {
        return err->status;
    }
    status = receive(client, &request, fetch, err);
    if (status == GEMS_OK) {
        print_answer(client, fetch, path);
    }
    fetch_destroy(fetch);
    return status;
}
