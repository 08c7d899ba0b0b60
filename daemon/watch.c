#include "daemon/watch.h"

#include <stdlib.h>

#include "common/error.h"
#include "daemon/handlers.h"
#include "daemon/status.h"

enum { WATCH_OUTPUT_BYTES = 1 << 20 };

struct watch {
    struct stream stream;
    struct list link; /* of the job */
    uint64_t version; /* sent last */
};

static void watch_free(struct stream *stream)
{
    struct watch *watch = list_item(stream, struct watch, stream);

    list_remove(&watch->link);
    free(watch);
}

void on_watch(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    uint64_t id = ((const Gems__WatchRequest *)base)->job;
    struct job *job = jobs_find(peer->daemon, id);
    struct gems_error err;
    struct watch *watch;

    if (!job || job_is_ended(job->core.state)) {
        Gems__JobRequest request = GEMS__JOB_REQUEST__INIT;

        request.job = id;
        on_status(peer, call, &request.base); /* one frame, the last */
        return;
    }
    watch = calloc(1, sizeof *watch);
    if (!watch || stream_begin(&watch->stream, peer, call, &err) < 0) {
        if (!watch) {
            gems_error_set(&err, GEMS_E_NOMEM, "watch: no memory");
        }
        free(watch);
        peer_error(peer, call, &err);
        return;
    }
    watch->stream.ended = watch_free;
    list_push(&job->watches, &watch->link);
    watch->version = job->version;
    status_send(peer, call, RPC_REPLY, job);
}

void watch_tick(struct daemon *daemon)
{
    list_each(&daemon->jobs, job_link)
    {
        struct job *job = list_item(job_link, struct job, link);

        list_each(&job->watches, link)
        {
            struct watch *watch = list_item(link, struct watch, link);
            struct peer *peer = watch->stream.peer;

            /* A slow reader gets fewer, never older ones. */
            if (watch->version != job->version && rpc_pending(peer->conn) < WATCH_OUTPUT_BYTES) {
                watch->version = job->version;
                status_send(peer, watch->stream.call, RPC_REPLY, job);
            }
        }
    }
}

void watch_ended(struct job *job)
{
    list_each(&job->watches, link)
    {
        struct watch *watch = list_item(link, struct watch, link);

        status_send(watch->stream.peer, watch->stream.call, RPC_REPLY | RPC_LAST, job);
        stream_end(&watch->stream);
    }
}
