#include "client/request.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/args.h"
#include "client/output.h"

int request_job(const struct client *client, const struct args *args, enum msg_type type,
                const char *done, struct gems_error *err)
{
    Gems__JobRequest request = GEMS__JOB_REQUEST__INIT;
    int status = args_job(args, 0, &request.job, err);

    if (status == 0) {
        status = call_once(client, type, &request.base, MSG_OK, CALL_TIMEOUT_MS, NULL, err);
    }
    if (status < 0) {
        return status;
    }
    if (client->is_json) {
        output_json(json_pack("{s:I}", "job", (json_int_t)request.job));
    } else {
        printf("job %" PRIu64 ": %s\n", request.job, done);
    }
    return EXIT_OK;
}
