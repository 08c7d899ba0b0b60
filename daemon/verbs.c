/* What users ask of a job: cancel, pause, resume, checkpoint. The answer comes
 * when the wish is accepted; the way of the job shows in its status. */
#include "common/error.h"
#include "daemon/flow.h"
#include "daemon/handlers.h"
#include "daemon/launch.h"
#include "daemon/status.h"

static struct job *check(struct peer *peer, uint32_t call, const ProtobufCMessage *base,
                         enum job_verb verb)
{
    uint64_t id = ((const Gems__JobRequest *)base)->job;
    struct job *job = jobs_find(peer->daemon, id);
    struct gems_error err;
    int status = GEMS_OK;

    if (!job) {
        return NULL;
    }
    status = peer_may_act(peer, job->user, &err);
    if (status >= 0) {
        status = job_verb_check(id, verb, job->core.state, &err);
    }
    if (status < 0) {
        peer_error(peer, call, &err);
        return NULL;
    }
    return job;
}

static void act(struct peer *peer, uint32_t call, const ProtobufCMessage *base, enum job_verb verb,
                enum job_event event, const char *word)
{
    uint64_t id = ((const Gems__JobRequest *)base)->job;
    struct job *job = check(peer, call, base, verb);

    if (job) {
        flow_post(peer->daemon, job, event, peer->user, "%s by %s", word, peer->user);
        peer_ok(peer, call);
    } else if (!jobs_find(peer->daemon, id)) {
        status_refuse_verb(peer, call, id, verb);
    }
}

void on_cancel(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    act(peer, call, base, VERB_CANCEL, ON_CANCEL, "cancelled");
}

void on_pause(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    act(peer, call, base, VERB_PAUSE, ON_PAUSE, "paused");
}

void on_resume(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    act(peer, call, base, VERB_RESUME, ON_RESUME, "resumed");
}

void on_checkpoint(struct peer *peer, uint32_t call, const ProtobufCMessage *base)
{
    uint64_t id = ((const Gems__JobRequest *)base)->job;
    struct job *job = check(peer, call, base, VERB_CHECKPOINT);

    if (job) {
        launch_command(job, false, true, "asked for");
        flow_note(peer->daemon, job, peer->user, "checkpoint", "asked for");
        peer_ok(peer, call);
    } else if (!jobs_find(peer->daemon, id)) {
        status_refuse_verb(peer, call, id, VERB_CHECKPOINT);
    }
}
