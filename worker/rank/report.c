#include "worker/rank/report.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/gems.pb-c.h"
#include "proto/messages.h"

void report_fini(struct report *report)
{
    free(report->kept);
    report->kept = NULL;
}

void report_push(struct report *report, const struct trainer_step *step)
{
    uint32_t written = atomic_load_explicit(&report->written, memory_order_relaxed);

    while (written - atomic_load_explicit(&report->read, memory_order_acquire) == REPORT_RING) {
        sched_yield();
    }
    report->ring[written % REPORT_RING] = *step;
    atomic_store_explicit(&report->written, written + 1, memory_order_release);
}

/* Drops the older half of the training steps. */
static void thin_out(struct report *report)
{
    uint32_t n = 0, half = report->n_kept / 2;

    for (uint32_t i = 0; i < report->n_kept; i++) {
        if (i >= half || report->kept[i].is_eval) {
            report->kept[n++] = report->kept[i];
        }
    }
    report->n_kept = n;
}

static bool make_room(struct report *report)
{
    uint32_t capacity = report->capacity ? 2 * report->capacity : 256;
    struct trainer_step *kept;

    if (report->first_kept > 0) {
        report->n_kept -= report->first_kept;
        memmove(report->kept, report->kept + report->first_kept,
                report->n_kept * sizeof *report->kept);
        report->first_kept = 0;
    }
    if (report->n_kept == REPORT_MAX_KEPT) {
        thin_out(report);
    }
    if (report->n_kept < report->capacity) {
        return true;
    }
    kept = reallocarray(report->kept, capacity, sizeof *kept);
    if (!kept) {
        return false;
    }
    report->kept = kept;
    report->capacity = capacity;
    return true;
}

bool report_collect(struct report *report)
{
    uint32_t read = atomic_load_explicit(&report->read, memory_order_relaxed);

    while (read != atomic_load_explicit(&report->written, memory_order_acquire)) {
        if (report->n_kept == report->capacity && !make_room(report)) {
            return false;
        }
        report->kept[report->n_kept++] = report->ring[read % REPORT_RING];
        atomic_store_explicit(&report->read, ++read, memory_order_release);
    }
    return true;
}

void report_send(struct report *report, struct rpc_conn *conn)
{
    int status = 0;

    while (report->first_kept < report->n_kept && status == 0) {
        const struct trainer_step *step = &report->kept[report->first_kept];
        Gems__Progress message = GEMS__PROGRESS__INIT;

        message.step = step->step;
        message.epoch = step->epoch;
        message.samples = step->samples;
        message.loss_sum = step->loss_sum;
        message.correct = step->n_correct;
        message.counted = step->counted;
        message.eval = step->is_eval;
        message.step_seconds = step->seconds;
        status = msg_send(conn, MSG_PROGRESS, 0, 0, &message.base);
        if (status >= 0) {
            report->first_kept++;
        }
    }
    if (report->first_kept == report->n_kept) {
        report->first_kept = report->n_kept = 0;
    }
}

size_t report_step_seconds(const struct trainer_watch *watch, double ret_seconds[TIMELINE_SPENT])
{
    double sum = 0;

    for (int kind = 0; kind < TIMELINE_SPENT; kind++) {
        ret_seconds[kind] =
            1e-9 * (double)atomic_load_explicit(&watch->step_ns[kind], memory_order_relaxed);
        sum += ret_seconds[kind];
    }
    return sum > 0 ? TIMELINE_SPENT : 0;
}

void report_heartbeat(const struct report_pulse *pulse, struct rpc_conn *conn)
{
    const struct trainer_watch *watch = pulse->watch;
    Gems__Heartbeat message = GEMS__HEARTBEAT__INIT;
    double seconds[TIMELINE_SPENT];

    message.phase = (char *)pulse->phase;
    if (watch) {
        message.step = atomic_load_explicit(&watch->step, memory_order_relaxed);
        message.microbatch = atomic_load_explicit(&watch->microbatch, memory_order_relaxed);
        message.phase =
            (char *)instr_name(atomic_load_explicit(&watch->phase, memory_order_relaxed));
        message.step_seconds = seconds;
        message.n_step_seconds = report_step_seconds(watch, seconds);
        message.watermark = atomic_load_explicit(&watch->watermark, memory_order_relaxed);
    }
    message.bytes_in = pulse->bytes_in;
    message.bytes_out = pulse->bytes_out;
    message.busy_fraction = pulse->busy_fraction;
    message.allocated_bytes = pulse->allocated_bytes;
    message.rss_bytes = report_rss_bytes();
    msg_send(conn, MSG_HEARTBEAT, 0, 0, &message.base);
}

uint64_t report_rss_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file) {
        if (fscanf(file, "%*u %lu", &pages) != 1) {
            pages = 0;
        }
        fclose(file);
    }
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t report_peak_rss_bytes(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss << 10 : 0;
}
