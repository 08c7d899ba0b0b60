/* Names and types here are the contract with scripts: add, never rename. */
#include "client/view.h"

#include <string.h>

#include "plan/timeline.h"

/* Text that is not there yet is null. */
static json_t *text_or_null(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

static json_t *whole(uint64_t value)
{
    return json_integer((json_int_t)value);
}

json_t *view_job_json(const Gems__JobInfo *job)
{
    json_t *object = json_object();

    json_object_set_new(object, "id", whole(job->id));
    json_object_set_new(object, "name", json_string(job->name));
    json_object_set_new(object, "user", json_string(job->user));
    json_object_set_new(object, "state", json_string(job->state));
    json_object_set_new(object, "reason", json_string(job->reason));
    json_object_set_new(object, "failure_class", text_or_null(job->failure_class));
    json_object_set_new(object, "advice", text_or_null(job->advice));
    json_object_set_new(object, "attempt", whole(job->attempt));
    json_object_set_new(object, "submitted", output_time(job->submitted_us));
    json_object_set_new(object, "started", output_time(job->started_us));
    json_object_set_new(object, "finished", output_time(job->finished_us));
    json_object_set_new(object, "epoch", whole(job->epoch));
    json_object_set_new(object, "step", whole(job->step));
    json_object_set_new(object, "steps_total", whole(job->steps_total));
    json_object_set_new(object, "samples", whole(job->samples));
    json_object_set_new(object, "loss", output_real(job->loss));
    json_object_set_new(object, "accuracy", output_real(job->accuracy));
    json_object_set_new(object, "eval_loss", output_real(job->eval_loss));
    json_object_set_new(object, "eval_accuracy", output_real(job->eval_accuracy));
    json_object_set_new(object, "samples_per_second", output_real(job->samples_per_second));
    json_object_set_new(object, "eta_seconds", output_real(job->eta_seconds));
    json_object_set_new(object, "schedule", text_or_null(job->schedule));
    json_object_set_new(object, "stages", whole(job->stages));
    json_object_set_new(object, "groups", whole(job->groups));
    json_object_set_new(object, "microbatch", whole(job->microbatch));
    json_object_set_new(object, "recompute", text_or_null(job->recompute));
    json_object_set_new(object, "weights_hash", text_or_null(job->weights_hash));
    return object;
}

/* Where the time of a training step goes; null before there was one. */
static json_t *times_json(const Gems__RankInfo *rank)
{
    json_t *object;

    if (rank->n_step_seconds != TIMELINE_SPENT) {
        return json_null();
    }
    object = json_object();
    for (int kind = 0; kind < TIMELINE_SPENT; kind++) {
        json_object_set_new(object, timeline_kind_name((enum timeline_kind)kind),
                            output_real(rank->step_seconds[kind]));
    }
    return object;
}

static json_t *rank_json(const Gems__RankInfo *rank)
{
    json_t *object = json_object(), *pairs = json_array();

    for (size_t i = 0; i < rank->n_chains && i < rank->n_stages; i++) {
        json_array_append_new(pairs,
                              json_pack("[i, i]", (int)rank->chains[i], (int)rank->stages[i]));
    }
    json_object_set_new(object, "rank", whole(rank->rank));
    json_object_set_new(object, "node", json_string(rank->node));
    json_object_set_new(object, "device", json_string(rank->device));
    json_object_set_new(object, "state", json_string(rank->state));
    json_object_set_new(object, "step", whole(rank->step));
    json_object_set_new(object, "chain_stages", pairs);
    json_object_set_new(object, "predicted_bytes", whole(rank->predicted_bytes));
    json_object_set_new(object, "allocated_bytes", whole(rank->allocated_bytes));
    json_object_set_new(object, "peak_rss_bytes", whole(rank->peak_rss_bytes));
    json_object_set_new(object, "busy_fraction", output_real(rank->busy_fraction));
    json_object_set_new(object, "step_seconds", times_json(rank));
    return object;
}

json_t *view_checkpoint_json(const Gems__CheckpointInfo *checkpoint)
{
    json_t *object = json_object();

    json_object_set_new(object, "step", whole(checkpoint->step));
    json_object_set_new(object, "epoch", whole(checkpoint->epoch));
    json_object_set_new(object, "bytes", whole(checkpoint->bytes));
    json_object_set_new(object, "when", output_time(checkpoint->when_us));
    json_object_set_new(object, "verified", json_boolean(checkpoint->verified));
    json_object_set_new(object, "eval_accuracy", output_real(checkpoint->eval_accuracy));
    json_object_set_new(object, "weights_hash", text_or_null(checkpoint->weights_hash));
    return object;
}

json_t *view_checkpoints_json(Gems__CheckpointInfo *const *checkpoints, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, view_checkpoint_json(checkpoints[i]));
    }
    return list;
}

json_t *view_status_json(const Gems__StatusReply *status)
{
    json_t *object = json_object(), *ranks = json_array();

    for (size_t i = 0; i < status->n_ranks; i++) {
        json_array_append_new(ranks, rank_json(status->ranks[i]));
    }
    json_object_set_new(object, "job", view_job_json(status->job));
    json_object_set_new(object, "ranks", ranks);
    json_object_set_new(object, "checkpoints",
                        view_checkpoints_json(status->checkpoints, status->n_checkpoints));
    return object;
}

json_t *view_jobs_json(Gems__JobInfo *const *jobs, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, view_job_json(jobs[i]));
    }
    return list;
}

json_t *view_nodes_json(Gems__NodeInfo *const *nodes, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        const Gems__NodeInfo *node = nodes[i];
        json_t *devices = json_array(), *object = json_object();

        for (size_t k = 0; k < node->n_devices; k++) {
            const Gems__DeviceInfo *device = node->devices[k];
            json_t *entry = json_object();

            json_object_set_new(entry, "id", json_string(device->id));
            json_object_set_new(entry, "kind", json_string(device->kind));
            json_object_set_new(entry, "memory_bytes", whole(device->memory_bytes));
            json_object_set_new(entry, "threads", whole(device->threads));
            json_object_set_new(entry, "job", device->job ? whole(device->job) : json_null());
            json_array_append_new(devices, entry);
        }
        json_object_set_new(object, "name", json_string(node->name));
        json_object_set_new(object, "state", json_string(node->state));
        json_object_set_new(object, "reason", json_string(node->reason));
        json_object_set_new(object, "version", json_string(node->version));
        json_object_set_new(object, "devices", devices);
        json_array_append_new(list, object);
    }
    return list;
}
