/* gems-client: one command, one answer, one exit code.
 *
 * Single thread. Commands return a status and an error; only main prints
 * errors and decides the exit code.
 */
#include <config.h>

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/args.h"
#include "client/output.h"
#include "common/error.h"

static const struct command *const commands[] = {
    &cmd_submit,      &cmd_status,  &cmd_list,  &cmd_watch,     &cmd_events,
    &cmd_logs,        &cmd_cancel,  &cmd_pause, &cmd_resume,    &cmd_checkpoint,
    &cmd_checkpoints, &cmd_fetch,   &cmd_plan,  &cmd_schedules, &cmd_nodes,
    &cmd_drain,       &cmd_undrain, &cmd_trace, &cmd_version,   NULL,
};

static int fail(const struct client *client, const struct gems_error *err)
{
    fprintf(stderr, "gems-client: %s\n", err->text);
    if (err->hint[0]) {
        fprintf(stderr, "%s\n", err->hint);
    }
    if (client->is_json) {
        output_json(json_pack("{s:{s:s, s:s, s:s}}", "error", "code", gems_status_name(err->status),
                              "message", err->text, "hint", err->hint));
    }
    return command_exit(err->status);
}

int main(int argc, char **argv)
{
    struct client client = { .connect = getenv("GEMS_CONNECT") };
    struct gems_error err = { 0 };
    struct args args;
    int status;

    signal(SIGPIPE, SIG_IGN);
    if (client.connect && client.connect[0] == '\0') {
        client.connect = NULL;
    }
    status = args_parse(argc, argv, commands, &client, &args, &err);
    if (status < 0) {
        return fail(&client, &err);
    }
    if (args.is_version) {
        args.command = &cmd_version;
        status = cmd_version.run(&client, &args, &err);
    } else if (args.is_help && args.command && args.command->summary) {
        args_print_help(args.command);
    } else if (args.is_help || !args.command) {
        args_print_overview(commands);
        status = args.is_help ? EXIT_OK : EXIT_USAGE;
    } else {
        status = args.command->run(&client, &args, &err);
    }
    if (status < 0) {
        status = fail(&client, &err);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "gems-client: standard output: cannot be written\n");
        return status == EXIT_OK ? EXIT_FAILED : status;
    }
    return status;
}
