#include "daemon/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void progress_init(struct progress *progress)
{
    memset(progress, 0, sizeof *progress);
    progress->loss = progress->accuracy = progress->eval_loss = progress->eval_accuracy = NAN;
    progress->eval_seconds = progress->checkpoint_seconds = NAN;
}

void progress_begin(struct progress *progress, uint32_t n_sources, uint64_t step)
{
    progress->n_sources = n_sources;
    progress->step = step;
    progress->done_step = progress->eval_step = 0;
    progress->n_pending = 0;
    progress->n_times = 0;
    progress->first_step = 0;
    progress->epoch_correct = progress->epoch_counted = 0;
}

/* What gives way if there is no room: the oldest step, an evaluation only if
 * there are no steps. */
static uint32_t find_victim(const struct progress *progress)
{
    const struct progress_pending *pending = progress->pending;
    uint32_t victim = 0;

    for (uint32_t i = 1; i < progress->n_pending; i++) {
        const struct progress_report *a = &pending[i].sum, *b = &pending[victim].sum;

        if (a->is_eval != b->is_eval ? b->is_eval : a->step < b->step) {
            victim = i;
        }
    }
    return victim;
}

/* A rank may be more steps ahead of another than there is room, or a report was
 * lost with a connection. Then the newest steps are kept, for they are those
 * that the others will report last. NULL: the report is too old. */
static struct progress_pending *find_pending(struct progress *progress,
                                             const struct progress_report *report)
{
    struct progress_pending *pending = progress->pending;
    uint32_t n = progress->n_pending;

    for (uint32_t i = 0; i < n; i++) {
        if (pending[i].sum.step == report->step && pending[i].sum.is_eval == report->is_eval) {
            return &pending[i];
        }
    }
    if (n == PROGRESS_PENDING) {
        uint32_t victim = find_victim(progress);
        const struct progress_report *sum = &pending[victim].sum;

        if (sum->is_eval != report->is_eval ? sum->is_eval : report->step < sum->step) {
            return NULL;
        }
        pending[victim] = pending[--n];
    }
    memset(&pending[n], 0, sizeof pending[n]);
    pending[n].sum.step = report->step;
    pending[n].sum.is_eval = report->is_eval;
    progress->n_pending = n + 1;
    return &pending[n];
}

static void publish_eval(struct progress *progress, const struct progress_report *sum)
{
    if (sum->n_counted > 0) {
        progress->eval_loss = sum->loss_sum / (double)sum->n_counted;
        progress->eval_accuracy = (double)sum->n_correct / (double)sum->n_counted;
    }
    progress->eval_step = sum->step;
    progress->eval_seconds = sum->seconds;
}

static void publish_step(struct progress *progress, const struct progress_report *sum)
{
    if (progress->first_step == 0) {
        progress->first_step = sum->step;
    }
    if (sum->epoch != progress->epoch) {
        progress->epoch_correct = progress->epoch_counted = 0;
    }
    progress->epoch = sum->epoch;
    progress->done_step = sum->step;
    progress->step = sum->step > progress->step ? sum->step : progress->step;
    progress->samples = sum->samples;
    if (sum->n_counted > 0) {
        progress->loss = sum->loss_sum / (double)sum->n_counted;
        progress->epoch_correct += sum->n_correct;
        progress->epoch_counted += sum->n_counted;
        progress->accuracy = (double)progress->epoch_correct / (double)progress->epoch_counted;
    }
    if (sum->step >= progress->first_step + PROGRESS_SKIP) {
        progress->times[progress->n_times++ % PROGRESS_TIMES] = sum->seconds;
    }
}

/* Drops a complete entry and all steps before it. */
static void drop_until(struct progress *progress, const struct progress_report *sum)
{
    uint64_t step = sum->step;
    bool is_eval = sum->is_eval;
    uint32_t n = 0;

    for (uint32_t i = 0; i < progress->n_pending; i++) {
        const struct progress_report *other = &progress->pending[i].sum;

        if (other->is_eval != is_eval || other->step > step) {
            progress->pending[n++] = progress->pending[i];
        }
    }
    progress->n_pending = n;
}

bool progress_add(struct progress *progress, uint32_t source, const struct progress_report *report)
{
    uint64_t known = report->is_eval ? progress->eval_step : progress->done_step;
    struct progress_pending *pending;
    struct progress_report *sum;

    if (source >= progress->n_sources || source >= PROGRESS_SOURCES || report->step <= known) {
        return false;
    }
    pending = find_pending(progress, report);
    if (!pending || (pending->seen[source / 64] >> (source % 64) & 1)) {
        return false;
    }
    pending->seen[source / 64] |= 1ull << (source % 64);
    sum = &pending->sum;
    sum->epoch = report->epoch;
    sum->samples = report->samples > sum->samples ? report->samples : sum->samples;
    sum->loss_sum += report->loss_sum;
    sum->n_correct += report->n_correct;
    sum->n_counted += report->n_counted;
    sum->seconds = report->seconds > sum->seconds ? report->seconds : sum->seconds;
    if (++pending->n_seen < progress->n_sources) {
        return false;
    }
    if (sum->is_eval) {
        publish_eval(progress, sum);
    } else {
        publish_step(progress, sum);
    }
    drop_until(progress, sum);
    return true;
}

bool progress_step(struct progress *progress, uint64_t step)
{
    if (step <= progress->step) {
        return false;
    }
    progress->step = step;
    return true;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

double progress_median(const struct progress *progress)
{
    double sorted[PROGRESS_TIMES];
    uint32_t n = progress->n_times < PROGRESS_TIMES ? progress->n_times : PROGRESS_TIMES;

    if (n == 0) {
        return NAN;
    }
    memcpy(sorted, progress->times, n * sizeof sorted[0]);
    qsort(sorted, n, sizeof sorted[0], compare_doubles);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* How many multiples of `every` lie in (step, total]. */
static uint64_t multiples(uint64_t step, uint64_t total, uint64_t every)
{
    return every ? total / every - step / every : 0;
}

double progress_eta(const struct progress *progress, const struct progress_rest *rest)
{
    double median = progress_median(progress), seconds;
    uint64_t n_checkpoints;

    if (isnan(median) || progress->step >= rest->steps_total) {
        return progress->step >= rest->steps_total && rest->steps_total > 0 ? 0 : NAN;
    }
    seconds = (double)(rest->steps_total - progress->step) * median;
    if (rest->has_eval && !isnan(progress->eval_seconds)) {
        seconds += (double)multiples(progress->step, rest->steps_total, rest->steps_per_epoch) *
                   progress->eval_seconds;
    }
    n_checkpoints = multiples(progress->step, rest->steps_total, rest->checkpoint_every_steps) +
                    multiples(progress->step, rest->steps_total,
                              rest->checkpoint_every_epochs * rest->steps_per_epoch) +
                    1;
    if (!isnan(progress->checkpoint_seconds)) {
        seconds += (double)n_checkpoints * progress->checkpoint_seconds;
    }
    return seconds;
}
