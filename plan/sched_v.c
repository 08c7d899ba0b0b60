/* v-half and v-min: pipelines whose peak is chosen (Qi et al., "Pipeline Parallelism
 * with Controllable Memory", NeurIPS 2024).
 *
 *     rank 0  01.....02ak13bl2..ack3mbdlncm..dn    v-half, P = 4, N = 4
 *     rank 1  .01...0..21ak32blak.3cbmldcnm.dn.    0 1 2 3: forward
 *     rank 2  ..0..01..12.a2k3abk3lbclmcdmndn..    a b c d: gradient of the input
 *     rank 3  ...00..11..22aak3k3bbllccmmddnn..    k l m n: gradient of the weights
 *
 *     rank 0  01.....0a2k..1bal3k2cbml.3dcnm...dn  v-min
 *     rank 1  .0....01.ak.12abkl23bclm3.cdmn..dn.
 *     rank 2  ..0..0..1.a1ka2kb2lb3lc3mcm.dn.dn..
 *     rank 3  ...00....11aakk22bbll33ccmm..ddnn..
 *
 * Device d holds stages d and 2P-1-d, so the first and the last stage of the model
 * share a device, and backwards are split in halves as in zb-h1. One micro-batch is
 * six passes on a device: two forwards, two input halves, two weight halves. They are
 * placed once, as a pattern, and every next micro-batch follows six slots later; the
 * pattern is good if no two passes of it meet on a device modulo six. What a device
 * holds is how long its passes are apart in the pattern, over six.
 *
 * The pattern moves by `step` slots from device to device: forward down, forward up,
 * input halves down, up. v-min takes one slot everywhere, the least there is: 4P slots
 * over the whole way. v-half takes one slot down and two up, so that every device holds
 * its stages for 6P slots together. At each turn of the V a few slots are waited where
 * passes would meet otherwise (found by search). Then the pattern is run once with equal
 * times: a device takes its forwards and input halves in the order of the pattern, each
 * as soon as it can while no more is held than in the pattern, and runs weight halves
 * while it waits.
 *
 * Peak        at most P/2 + 1 (v-half) and (P + 4) / 3 (v-min) micro-batches of a
 *             device, where 1f1b holds P (paper, table 1: 1/2 and 1/3 of 1f1b's)
 * Idle time   of a device in a step, for equal times of all three and N >= 2P, in units
 *             of one of them for a whole device (measured by simulation; 1f1b has 3 (P-1)):
 *             v-half 1.5 (P-1), P odd: 1.5 P - 2    (paper: 1/2 of 1f1b's)
 *             v-min  2 P - 2.5, P a multiple of 3: 2 P - 1.5    (paper: 2/3)
 *             With other times the order stays, and both lose more (paper, section 4). */
#include <stdlib.h>

#include "common/error.h"
#include "plan/order.h"

enum { PERIOD = 6 };

/* Slots of micro-batch 0 on a device. */
struct pattern {
    int64_t forward[2], input[2], weight[2]; /* by chunk */
};

struct steps {
    uint32_t down, up;
};

static void place_passes(const struct steps *steps, uint32_t width, const uint32_t turns[3],
                         uint32_t device, struct pattern *ret)
{
    int64_t down = steps->down, up = steps->up, last = width - 1;

    ret->forward[0] = down * device;
    ret->forward[1] = down * last + 1 + turns[0] + up * (last - device);
    ret->input[1] = down * last + 1 + turns[0] + up * last + 1 + turns[1] + down * device;
    ret->input[0] = ret->input[1] + down * (last - device) + 1 + turns[2] + up * (last - device);
}

static bool is_apart(const struct pattern *p)
{
    const int64_t times[] = { p->forward[0], p->forward[1], p->input[0], p->input[1] };

    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < i; k++) {
            if (times[i] % PERIOD == times[k] % PERIOD) {
                return false;
            }
        }
    }
    return true;
}

/* The next slot after `time` that the pattern leaves free on the device. */
static int64_t find_free(const struct pattern *p, int64_t time, int64_t taken)
{
    for (time++;; time++) {
        int64_t slot = time % PERIOD;

        if (slot != p->forward[0] % PERIOD && slot != p->forward[1] % PERIOD &&
            slot != p->input[0] % PERIOD && slot != p->input[1] % PERIOD &&
            (taken < 0 || slot != taken % PERIOD)) {
            return time;
        }
    }
}

/* Chunks that the device holds at once when one micro-batch follows the other. */
static uint32_t count_held(const struct pattern *p)
{
    uint32_t held[PERIOD] = { 0 }, most = 0;

    for (int chunk = 0; chunk < 2; chunk++) {
        int64_t length = p->weight[chunk] - p->forward[chunk] + 1;

        for (int64_t k = 0; k < PERIOD; k++) {
            held[(p->forward[chunk] + k) % PERIOD] += (uint32_t)((length - k - 1) / PERIOD + 1);
        }
    }
    for (int k = 0; k < PERIOD; k++) {
        most = held[k] > most ? held[k] : most;
    }
    return most;
}

/* Two slots are free: whichever way holds less, then ends sooner. */
static void place_weights(struct pattern *p)
{
    struct pattern other = *p;

    p->weight[1] = find_free(p, p->input[1], -1);
    p->weight[0] = find_free(p, p->input[0], p->weight[1]);
    other.weight[0] = find_free(p, p->input[0], -1);
    other.weight[1] = find_free(p, p->input[1], other.weight[0]);
    if (count_held(&other) < count_held(p) ||
        (count_held(&other) == count_held(p) &&
         other.weight[0] + other.weight[1] < p->weight[0] + p->weight[1])) {
        *p = other;
    }
}

/* Most chunks on any device; 0 if two passes meet somewhere. */
static uint32_t try_turns(const struct steps *steps, uint32_t width, const uint32_t turns[3])
{
    uint32_t most = 0;

    for (uint32_t d = 0; d < width; d++) {
        struct pattern pattern;
        uint32_t held;

        place_passes(steps, width, turns, d, &pattern);
        if (!is_apart(&pattern)) {
            return 0;
        }
        place_weights(&pattern);
        held = count_held(&pattern);
        most = held > most ? held : most;
    }
    return most;
}

/* Waits at the turns: the shortest that hold no more than one micro-batch (two chunks)
 * above the schedule's share; if there are none, those that hold least. */
static void find_turns(const struct steps *steps, uint32_t width, uint32_t ret_turns[3])
{
    uint32_t whole = 2 * width * (steps->down + steps->up);
    uint32_t limit = (whole + PERIOD - 1) / PERIOD + 2, best = UINT32_MAX, best_sum = 0;

    for (uint32_t i = 0; i < PERIOD * PERIOD * PERIOD; i++) {
        uint32_t turns[3] = { i % PERIOD, i / PERIOD % PERIOD, i / PERIOD / PERIOD };
        uint32_t held = try_turns(steps, width, turns), sum = turns[0] + turns[1] + turns[2];

        held = held && held < limit ? limit : held;
        if (held && (held < best || (held == best && sum < best_sum))) {
            best = held;
            best_sum = sum;
            for (int k = 0; k < 3; k++) {
                ret_turns[k] = turns[k];
            }
        }
    }
}

/* --- the pattern repeated, without its waits --- */

/* A device in a run of the pattern in which every pass takes one slot. */
struct device {
    struct order_pass *passes; /* forwards and input halves, by pattern; owned */
    uint32_t n, next;
    struct order_pass *weights; /* weight halves that may run, oldest first; owned */
    uint32_t n_weights, next_weight;
    uint32_t n_held, limit;
};

struct run {
    struct sched *s;
    struct order *order;
    uint32_t n; /* micro-batches */
    struct device *devices;
    uint32_t *forward_end, *input_end; /* by stage, micro-batch; 0: not yet */
    uint32_t now;
};

static int compare_times(const void *a, const void *b)
{
    const struct order_pass *x = a, *y = b;

    return x->time < y->time ? -1 : x->time > y->time;
}

static int start_device(struct run *run, uint32_t d, const struct pattern *pattern)
{
    struct device *device = &run->devices[d];

    device->limit = count_held(pattern);
    device->passes = calloc(4 * (size_t)run->n + 1, sizeof *device->passes);
    device->weights = calloc(2 * (size_t)run->n + 1, sizeof *device->weights);
    if (!device->passes || !device->weights) {
        return gems_error_set(run->s->err, GEMS_E_NOMEM, "order of device %u: no memory", d);
    }
    for (uint32_t i = 0; i < 2 * run->n; i++) {
        uint32_t chunk = i % 2;
        struct order_pass pass = {
            .kind = ORDER_FORWARD,
            .stage = chunk ? 2 * run->s->width - 1 - d : d,
            .microbatch = i / 2,
            .time = PERIOD * (int64_t)(i / 2) + pattern->forward[chunk],
        };

        device->passes[device->n++] = pass;
        pass.kind = ORDER_INPUT;
        pass.time = PERIOD * (int64_t)(i / 2) + pattern->input[chunk];
        device->passes[device->n++] = pass;
    }
    qsort(device->passes, device->n, sizeof *device->passes, compare_times);
    return GEMS_OK;
}

/* Has what the pass waits for ended by now? */
static bool is_ready(const struct run *run, const struct order_pass *pass)
{
    uint32_t last = run->s->plan->n_stages - 1, end;

    if (pass->kind == ORDER_FORWARD) {
        end = pass->stage ? run->forward_end[(pass->stage - 1) * run->n + pass->microbatch] : 1;
    } else if (pass->stage == last) {
        end = run->forward_end[pass->stage * run->n + pass->microbatch];
    } else {
        end = run->input_end[(pass->stage + 1) * run->n + pass->microbatch];
    }
    return end && end <= run->now;
}

/* The next pass of the pattern if it can run; while it waits, a weight half. A forward
 * also waits while the device holds all that the pattern holds. */
static int run_device(struct run *run, struct device *device, uint32_t *inout_n_left)
{
    struct order_pass *pass = device->next < device->n ? &device->passes[device->next] : NULL;

    if (pass && is_ready(run, pass) &&
        (pass->kind != ORDER_FORWARD || device->n_held < device->limit)) {
        uint32_t at = pass->stage * run->n + pass->microbatch;

        device->next++;
        if (pass->kind == ORDER_FORWARD) {
            run->forward_end[at] = run->now + 1;
            device->n_held++;
        } else {
            run->input_end[at] = run->now + 1;
            device->weights[device->n_weights] = *pass;
            device->weights[device->n_weights++].kind = ORDER_WEIGHT;
        }
    } else if (device->next_weight < device->n_weights) {
        pass = &device->weights[device->next_weight++];
        device->n_held--;
    } else {
        return GEMS_OK;
    }
    pass->time = run->now;
    --*inout_n_left;
    return order_add(run->order, pass, run->s->err);
}

static int run_devices(struct run *run)
{
    uint32_t n_left = 6 * run->n * run->s->width;
    int status = GEMS_OK;

    for (run->now = 1; n_left && status == GEMS_OK; run->now++) {
        for (uint32_t d = 0; d < run->s->width && status == GEMS_OK; d++) {
            status = run_device(run, &run->devices[d], &n_left);
        }
    }
    return status;
}

static int order_passes(struct run *run, const struct steps *steps)
{
    size_t n = (size_t)run->s->plan->n_stages * run->n + 1;
    uint32_t turns[3] = { 0 };
    int status = GEMS_OK;

    run->devices = calloc(run->s->width, sizeof *run->devices);
    run->forward_end = calloc(2 * n, sizeof *run->forward_end);
    if (!run->devices || !run->forward_end) {
        return gems_error_set(run->s->err, GEMS_E_NOMEM, "order of %u devices: no memory",
                              run->s->width);
    }
    run->input_end = run->forward_end + n;
    find_turns(steps, run->s->width, turns);
    for (uint32_t d = 0; d < run->s->width && status == GEMS_OK; d++) {
        struct pattern pattern;

        place_passes(steps, run->s->width, turns, d, &pattern);
        place_weights(&pattern);
        status = start_device(run, d, &pattern);
    }
    return status == GEMS_OK ? run_devices(run) : status;
}

static int generate(struct sched *s, const struct steps *steps)
{
    struct order order = { 0 };
    struct run run = { .s = s, .order = &order, .n = s->last - s->first };
    int status = order_passes(&run, steps);

    if (status == GEMS_OK) {
        status = order_write(&order, s);
    }
    for (uint32_t d = 0; run.devices && d < s->width; d++) {
        free(run.devices[d].passes);
        free(run.devices[d].weights);
    }
    free(run.devices);
    free(run.forward_end);
    order_fini(&order);
    return status;
}

int sched_v_half(struct sched *s)
{
    return generate(s, &(struct steps){ 1, 2 });
}

int sched_v_min(struct sched *s)
{
    return generate(s, &(struct steps){ 1, 1 });
}
