#include "worker/rank/feed.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "worker/rank/trainer.h"

uint64_t feed_samples(const struct plan *plan, enum program_kind kind)
{
    const struct program *program = plan_program(plan, kind);

    if (program->n_ranks == 0) {
        return 0;
    }
    return (uint64_t)(program->n_microbatches - 1) * program->microbatch + program->last_microbatch;
}

uint64_t feed_first_sample(const struct plan *plan, uint64_t step)
{
    return (step - 1) % plan->steps_per_epoch * feed_samples(plan, PROGRAM_TRAIN);
}

enum program_kind feed_train_kind(const struct plan *plan, uint64_t step)
{
    bool is_last = step % plan->steps_per_epoch == 0;

    return is_last && plan->train_last.n_ranks != 0 ? PROGRAM_TRAIN_LAST : PROGRAM_TRAIN;
}

enum program_kind feed_eval_kind(const struct plan *plan, uint64_t sample)
{
    uint64_t full = feed_samples(plan, PROGRAM_EVAL);

    return full != 0 && sample + full <= plan->n_eval ? PROGRAM_EVAL : PROGRAM_EVAL_LAST;
}

static int collect_loads(struct feed *feed, const struct program *program, uint32_t rank,
                         struct feed_program *ret_program, struct gems_error *err)
{
    const struct instr_list *list = &program->ranks[rank];

    ret_program->loads = calloc(list->n + 1, sizeof *ret_program->loads);
    if (!ret_program->loads) {
        return gems_error_set(err, GEMS_E_NOMEM, "loader: no host memory");
    }
    for (uint32_t i = 0; i < list->n; i++) {
        const struct instr *in = &list->items[i];
        struct feed_load load = {
            .first = (uint64_t)in->microbatch * program->microbatch,
            .has_images = in->stage == 0,
            .has_labels = in->stage + 1u == feed->plan->n_stages,
        };

        if (in->op != INSTR_LOAD) {
            continue;
        }
        load.n = program_samples(program, in->microbatch);
        feed->has_images |= load.has_images;
        feed->has_labels |= load.has_labels;
        ret_program->loads[ret_program->n++] = load;
    }
    return GEMS_OK;
}

int feed_init(struct feed *feed, const struct job_spec *spec, const struct plan *plan,
              uint32_t rank, struct gems_error *err)
{
    *feed = (struct feed){ .spec = spec, .plan = plan };
    for (int kind = 0; kind < PROGRAM_KIND_COUNT; kind++) {
        const struct program *program = plan_program(plan, (enum program_kind)kind);
        int status;

        if (program->n_ranks == 0) {
            continue;
        }
        feed->programs[kind].samples = feed_samples(plan, (enum program_kind)kind);
        status = collect_loads(feed, program, rank, &feed->programs[kind], err);
        if (status < 0) {
            return status;
        }
    }
    return GEMS_OK;
}

void feed_fini(struct feed *feed)
{
    for (int kind = 0; kind < PROGRAM_KIND_COUNT; kind++) {
        free(feed->programs[kind].loads);
    }
    memset(feed, 0, sizeof *feed);
}

static void start_step(struct feed *feed, uint64_t step)
{
    feed->step = step;
    feed->is_eval = false;
    feed->sample = feed_first_sample(feed->plan, step);
    feed->load_i = 0;
}

void feed_start(struct feed *feed, uint64_t step)
{
    start_step(feed, step + 1);
}

/* To the run behind the current one. */
static void advance(struct feed *feed, const struct feed_program *program)
{
    feed->load_i = 0;
    if (!feed->is_eval && trainer_eval_due(feed->spec, feed->plan, feed->step)) {
        feed->is_eval = true;
        feed->sample = 0;
        return;
    }
    if (feed->is_eval && feed->sample + program->samples < feed->plan->n_eval) {
        feed->sample += program->samples;
        return;
    }
    start_step(feed, feed->step + 1);
}

bool feed_next(void *arg, uint64_t i, struct loader_item *ret_item)
{
    struct feed *feed = arg;

    (void)i;
    while (feed->step <= feed->plan->steps_total) {
        enum program_kind kind = feed->is_eval ? feed_eval_kind(feed->plan, feed->sample)
                                               : feed_train_kind(feed->plan, feed->step);
        const struct feed_program *program = &feed->programs[kind];
        const struct feed_load *load;

        if (feed->load_i == program->n) {
            advance(feed, program);
            continue;
        }
        load = &program->loads[feed->load_i++];
        *ret_item = (struct loader_item){
            .epoch = feed->is_eval ? 0 : (feed->step - 1) / feed->plan->steps_per_epoch,
            .first = feed->sample + load->first,
            .n = load->n,
            .is_eval = feed->is_eval,
            .has_images = load->has_images,
            .has_labels = load->has_labels,
        };
        return true;
    }
    return false;
}
