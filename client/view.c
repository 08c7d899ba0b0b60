#include "client/view.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/command.h"
#include "common/clock.h"
#include "common/units.h"
#include "plan/plan.h"
#include "plan/timeline.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof(array)[0]))

bool view_is_over(const Gems__JobInfo *job)
{
    return strcmp(job->state, "SUCCEEDED") == 0 || strcmp(job->state, "FAILED") == 0 ||
           strcmp(job->state, "CANCELLED") == 0;
}

int view_exit(const Gems__JobInfo *job)
{
    return strcmp(job->state, "SUCCEEDED") == 0 ? EXIT_OK : EXIT_FAILED;
}

struct progress view_progress(const Gems__JobInfo *job)
{
    return (struct progress){ .state = job->state,
                              .reason = job->reason,
                              .step = job->step,
                              .steps_total = job->steps_total,
                              .epoch = job->epoch,
                              .samples_per_second = job->samples_per_second,
                              .loss = job->loss,
                              .accuracy = job->accuracy,
                              .eval_accuracy = job->eval_accuracy,
                              .eta_seconds = job->eta_seconds };
}

/* A number, or - if there is none yet. */
static void cell_real(struct table *table, double value, int digits)
{
    if (isnan(value)) {
        table_cell(table, "-");
    } else {
        table_cell(table, "%.*f", digits, value);
    }
}

/* Green, red or yellow on a terminal that wants it. */
static void print_state(const char *state)
{
    const char *colour = strcmp(state, "SUCCEEDED") == 0 || strcmp(state, "RUNNING") == 0 ? "32"
                         : strcmp(state, "FAILED") == 0                                   ? "31"
                                                                                          : "33";

    if (output_is_coloured()) {
        printf("\033[%sm%s\033[0m", colour, state);
    } else {
        printf("%s", state);
    }
}

static void print_time(const char *title, int64_t time_us)
{
    char text[CLOCK_TEXT_BYTES];

    if (time_us) {
        clock_format_utc(time_us, text);
        printf("  %-12s %s\n", title, text);
    }
}

static void print_number(const char *title, double value, int digits)
{
    if (!isnan(value)) {
        printf("  %-12s %.*f\n", title, digits, value);
    }
}

static void print_job(const Gems__JobInfo *job)
{
    char text[32];

    printf("job %" PRIu64 "  %s  ", job->id, job->name);
    print_state(job->state);
    printf("%s%s\n", job->reason[0] ? ": " : "", job->reason);
    if (job->failure_class[0]) {
        printf("  %-12s %s%s%s\n", "failure", job->failure_class, job->advice[0] ? ": " : "",
               job->advice);
    }
    printf("  %-12s %s\n", "user", job->user);
    print_time("submitted", job->submitted_us);
    print_time("started", job->started_us);
    print_time("finished", job->finished_us);
    printf("  %-12s %u\n", "attempt", job->attempt);
    if (job->steps_total) {
        printf("  %-12s %" PRIu64 " of %" PRIu64 " (epoch %u, %" PRIu64 " samples)\n", "step",
               job->step, job->steps_total, job->epoch + 1, job->samples);
    }
    print_number("loss", job->loss, 4);
    print_number("accuracy", job->accuracy, 4);
    print_number("eval loss", job->eval_loss, 4);
    print_number("eval acc.", job->eval_accuracy, 4);
    print_number("samples/s", job->samples_per_second, 1);
    if (!view_is_over(job) && job->eta_seconds >= 0 && job->eta_seconds < 1e9) {
        printf("  %-12s %s\n", "time left",
               format_duration((uint64_t)(1000 * job->eta_seconds), text, sizeof text));
    }
    if (job->stages > 0) { /* placed at least once */
        printf("  %-12s %s, %u stages, %u groups, micro-batch %u, recompute %s\n", "layout",
               job->schedule, job->stages, job->groups, job->microbatch, job->recompute);
    }
    if (job->weights_hash[0]) {
        printf("  %-12s %s\n", "weights", job->weights_hash);
    }
}

/* Shares of a training step, or - before there was one. */
static void cell_times(struct table *table, const Gems__RankInfo *rank)
{
    double sum = 0;

    for (size_t i = 0; i < rank->n_step_seconds; i++) {
        sum += rank->step_seconds[i];
    }
    for (size_t i = 0; i < TIMELINE_SPENT; i++) {
        if (rank->n_step_seconds == TIMELINE_SPENT && sum > 0) {
            table_cell(table, "%.1f%%", 100 * rank->step_seconds[i] / sum);
        } else {
            table_cell(table, "-");
        }
    }
}

static void print_ranks(Gems__RankInfo *const *ranks, size_t n)
{
    static const char *const titles[] = { "RANK",     "NODE",       "DEVICE",    "STATE",
                                          "STEP",     "BUSY",       "COMPUTE",   "WAIT",
                                          "REDUCE",   "COPY",       "PREDICTED", "ALLOCATED",
                                          "PEAK RSS", "CHAIN:STAGE" };
    struct table *table = table_create(titles, COUNT(titles));
    char size[32];

    for (size_t i = 0; i < n; i++) {
        const Gems__RankInfo *rank = ranks[i];
        char pairs[2 * PLAN_MAX_RESIDENT * sizeof "1:255 "] = "";

        for (size_t k = 0; k < rank->n_chains && k < rank->n_stages; k++) {
            size_t used = strlen(pairs);

            snprintf(pairs + used, sizeof pairs - used, "%s%u:%u", k ? " " : "", rank->chains[k],
                     rank->stages[k]);
        }
        table_cell(table, "%u", rank->rank);
        table_cell(table, "%s", rank->node);
        table_cell(table, "%s", rank->device);
        table_cell(table, "%s", rank->state);
        table_cell(table, "%" PRIu64, rank->step);
        table_cell(table, "%.0f%%", 100 * rank->busy_fraction);
        cell_times(table, rank);
        table_cell(table, "%s", format_size(rank->predicted_bytes, size, sizeof size));
        table_cell(table, "%s", format_size(rank->allocated_bytes, size, sizeof size));
        table_cell(table, "%s", format_size(rank->peak_rss_bytes, size, sizeof size));
        table_cell(table, "%s", pairs);
    }
    table_print(table);
    table_destroy(table);
}

void view_status(const Gems__StatusReply *status)
{
    print_job(status->job);
    if (status->n_ranks > 0) {
        printf("\n");
        print_ranks(status->ranks, status->n_ranks);
    }
    if (status->n_checkpoints > 0) {
        printf("\n");
        view_checkpoints(status->checkpoints, status->n_checkpoints);
    }
}

void view_jobs(Gems__JobInfo *const *jobs, size_t n)
{
    static const char *const titles[] = { "JOB",  "NAME", "USER", "STATE",
                                          "STEP", "LOSS", "ACC.", "REASON" };
    struct table *table = table_create(titles, COUNT(titles));

    for (size_t i = 0; i < n; i++) {
        const Gems__JobInfo *job = jobs[i];
        double accuracy = isnan(job->eval_accuracy) ? job->accuracy : job->eval_accuracy;

        table_cell(table, "%" PRIu64, job->id);
        table_cell(table, "%s", job->name);
        table_cell(table, "%s", job->user);
        table_cell(table, "%s", job->state);
        table_cell(table, "%" PRIu64 "/%" PRIu64, job->step, job->steps_total);
        cell_real(table, job->loss, 4);
        cell_real(table, accuracy, 4);
        table_cell(table, "%s", job->reason);
    }
    table_print(table);
    table_destroy(table);
}

void view_checkpoints(Gems__CheckpointInfo *const *checkpoints, size_t n)
{
    static const char *const titles[] = { "STEP",     "EPOCH",     "SIZE",   "WHEN",
                                          "VERIFIED", "EVAL ACC.", "WEIGHTS" };
    struct table *table = table_create(titles, COUNT(titles));
    char text[CLOCK_TEXT_BYTES];

    for (size_t i = 0; i < n; i++) {
        const Gems__CheckpointInfo *checkpoint = checkpoints[i];

        table_cell(table, "%" PRIu64, checkpoint->step);
        table_cell(table, "%u", checkpoint->epoch);
        table_cell(table, "%s", format_size(checkpoint->bytes, text, sizeof text));
        clock_format_utc(checkpoint->when_us, text);
        table_cell(table, "%s", text);
        table_cell(table, "%s", checkpoint->verified ? "yes" : "no");
        cell_real(table, checkpoint->eval_accuracy, 4);
        table_cell(table, "%s", checkpoint->weights_hash[0] ? checkpoint->weights_hash : "-");
    }
    table_print(table);
    table_destroy(table);
}

void view_nodes(Gems__NodeInfo *const *nodes, size_t n)
{
    static const char *const titles[] = { "NODE",    "STATE",  "DEVICE", "KIND",
                                          "THREADS", "MEMORY", "JOB",    "REASON" };
    struct table *table = table_create(titles, COUNT(titles));
    char size[32];

    for (size_t i = 0; i < n; i++) {
        const Gems__NodeInfo *node = nodes[i];

        for (size_t k = 0; k < node->n_devices; k++) {
            const Gems__DeviceInfo *device = node->devices[k];

            table_cell(table, "%s", node->name);
            table_cell(table, "%s", node->state);
            table_cell(table, "%s", device->id);
            table_cell(table, "%s", device->kind);
            table_cell(table, "%u", device->threads);
            table_cell(table, "%s", format_size(device->memory_bytes, size, sizeof size));
            if (device->job) {
                table_cell(table, "%" PRIu64, device->job);
            } else {
                table_cell(table, "-");
            }
            table_cell(table, "%s", node->reason);
        }
    }
    table_print(table);
    table_destroy(table);
}
