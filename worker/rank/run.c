/* The step loop: steps, evaluation passes, checkpoints, wishes. */
#include "worker/rank/state.h"

#include <time.h>

#include "common/error.h"

/* Where the loop is; what exec's question about the next program needs. */
struct run {
    struct trainer *trainer;
    uint64_t first; /* step after which the run started */
    uint64_t step;  /* running or just done, from 1 */
    uint64_t samples;
    bool is_eval;
};

static double now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint32_t epoch_of(const struct trainer *trainer, uint64_t step)
{
    return step == 0 ? 0 : (uint32_t)((step - 1) / trainer->config.plan->steps_per_epoch);
}

/* Adds up the micro-batches whose loss this rank knows, in their order. */
static void add_losses(const struct exec_program *program, struct trainer_step *inout_step)
{
    for (uint32_t m = 0; m < program->program->n_microbatches; m++) {
        if (program->has_loss[m]) {
            inout_step->loss_sum += program->loss_sum[m];
            inout_step->n_correct += program->n_correct[m];
            inout_step->counted += program_samples(program->program, m);
        }
    }
}

static bool has_last_stage(const struct trainer *trainer)
{
    return trainer->residents[trainer->n_residents - 1].stage.index + 1 ==
           trainer->config.plan->n_stages;
}

static int report(const struct trainer *trainer, const struct trainer_step *step,
                  struct gems_error *err)
{
    const struct trainer_events *events = trainer->config.events;
    int status = has_last_stage(trainer) && events->step
                     ? events->step(trainer->config.events_arg, step)
                     : GEMS_OK;

    return status < 0 ? gems_error_set(err, (enum gems_status)status,
                                       "step %llu: its report was not taken",
                                       (unsigned long long)step->step)
                      : GEMS_OK;
}

static bool is_next_step_certain(void *arg)
{
    const struct run *run = arg;

    return run->is_eval || wish_goes_on(&run->trainer->wish, run->step == run->first + 1);
}

/* The program behind a training step; a receive for it may be posted early. */
static bool program_after_step(const struct run *run, enum program_kind *ret_kind)
{
    const struct trainer_config *c = &run->trainer->config;

    if (trainer_eval_due(c->spec, c->plan, run->step)) {
        *ret_kind = feed_eval_kind(c->plan, 0);
        return true;
    }
    if (run->step == c->plan->steps_total || trainer_checkpoint_due(c->spec, c->plan, run->step)) {
        return false;
    }
    *ret_kind = feed_train_kind(c->plan, run->step + 1);
    return true;
}

static int train_step(struct run *run, struct gems_error *err)
{
    struct trainer *trainer = run->trainer;
    const struct trainer_config *c = &trainer->config;
    enum program_kind kind = feed_train_kind(c->plan, run->step);
    uint64_t samples = feed_samples(c->plan, kind);
    struct trainer_step done = { .step = run->step, .epoch = epoch_of(trainer, run->step) };
    struct exec_run pass = {
        .grad_scale = 1.0 / (double)samples,
        .draw = { .seed = c->spec->train.seed,
                  .epoch = epoch_of(trainer, run->step),
                  .first_sample = feed_first_sample(c->plan, run->step) },
        .step = { .lr = trainer_lr(c->spec, c->plan, run->step),
                  .step = run->step,
                  .n_microbatches = plan_program(c->plan, kind)->n_microbatches },
        .arg = run,
    };
    double start = now_seconds();
    int status;

    if (program_after_step(run, &pass.next)) {
        pass.is_next_certain = is_next_step_certain;
    }
    status = exec_program_run(&trainer->exec, kind, &pass, err);
    if (status < 0) {
        return status;
    }
    run->samples += samples;
    done.samples = run->samples;
    done.seconds = now_seconds() - start;
    add_losses(&trainer->exec.programs[kind], &done);
    atomic_store_explicit(&trainer->exec.watch.step, run->step, memory_order_relaxed);
    return report(trainer, &done, err);
}

static int evaluate(struct run *run, struct gems_error *err)
{
    struct trainer *trainer = run->trainer;
    const struct plan *plan = trainer->config.plan;
    struct trainer_step done = { .step = run->step,
                                 .epoch = epoch_of(trainer, run->step),
                                 .samples = run->samples,
                                 .is_eval = true };
    double start = now_seconds();
    uint64_t sample = 0;

    while (sample < plan->n_eval) {
        enum program_kind kind = feed_eval_kind(plan, sample);
        struct exec_run pass = { .step = { .step = run->step }, .arg = run };
        int status;

        sample += feed_samples(plan, kind);
        if (sample < plan->n_eval) {
            pass.next = feed_eval_kind(plan, sample);
            pass.is_next_certain = is_next_step_certain;
        }
        status = exec_program_run(&trainer->exec, kind, &pass, err);
        if (status < 0) {
            return status;
        }
        add_losses(&trainer->exec.programs[kind], &done);
    }
    done.seconds = now_seconds() - start;
    return report(trainer, &done, err);
}

static int start_loader(struct trainer *trainer, const struct trainer_position *from,
                        struct gems_error *err)
{
    const struct trainer_config *c = &trainer->config;
    const struct data_spec *data = &c->spec->data;
    struct loader_config config = {
        .train = c->train,
        .eval = c->eval,
        .has_images = trainer->feed.has_images,
        .has_labels = trainer->feed.has_labels,
        .is_f64 = c->spec->train.precision == PRECISION_F64,
        .is_flip = data->is_flip,
        .is_shift = data->is_shift,
        .mean = data->mean,
        .std = data->std,
        .seed = c->spec->train.seed,
        .max_batch = trainer->loader_batch,
        .n_threads = 1,
        .sequence = feed_next,
        .sequence_arg = &trainer->feed,
        .buffers = trainer->loader_buffers,
        .depth = LOADER_DEPTH,
    };
    int status;

    if (!config.has_images && !config.has_labels) {
        return GEMS_OK;
    }
    if (!c->train || (c->plan->n_eval != 0 && !c->eval)) {
        return gems_error_set(err, GEMS_E_INTERNAL,
                              "trainer: rank %u loads data and was given none", c->rank);
    }
    feed_start(&trainer->feed, from->step);
    status = loader_create(&config, &trainer->loader, err);
    trainer->exec.loader = trainer->loader;
    return status;
}

/* Nothing is in flight after it: a rank that has written its last checkpoint
 * needs no peer any more, and none needs it. */
static int finish_messages(struct trainer *trainer, struct gems_error *err)
{
    int status = exec_finish(&trainer->exec, err);

    return status < 0 ? status : wish_finish(&trainer->wish, err);
}

/* Rank 0's wish for the end of this step. */
static int exchange_wishes(struct run *run, bool has_next, enum trainer_wish *ret_wish,
                           struct gems_error *err)
{
    const struct trainer_config *c = &run->trainer->config;
    enum trainer_wish answer = TRAINER_GO_ON;

    if (c->rank == 0 && has_next && c->events->wish) {
        answer = c->events->wish(c->events_arg);
    }
    return wish_exchange(&run->trainer->wish, run->step, run->step == run->first + 1, has_next,
                         answer, ret_wish, err);
}

/* What follows a step: evaluation, wishes, checkpoint. *ret_is_over: by wish. */
static int finish_step(struct run *run, bool *ret_is_over, struct gems_error *err)
{
    struct trainer *trainer = run->trainer;
    const struct trainer_config *c = &trainer->config;
    bool has_next = run->step < c->plan->steps_total, is_final;
    struct trainer_position position = { run->step, run->samples };
    enum trainer_wish wish = TRAINER_GO_ON;
    int status = GEMS_OK;

    if (trainer_eval_due(c->spec, c->plan, run->step)) {
        run->is_eval = true;
        status = evaluate(run, err);
        run->is_eval = false;
    }
    if (status == GEMS_OK) {
        status = exchange_wishes(run, has_next, &wish, err);
    }
    if (status < 0) {
        return status;
    }
    *ret_is_over = has_next && wish == TRAINER_CHECKPOINT_AND_STOP;
    is_final = !has_next || *ret_is_over;
    if (is_final) {
        status = finish_messages(trainer, err);
    }
    if (status < 0 ||
        (wish == TRAINER_GO_ON && !trainer_checkpoint_due(c->spec, c->plan, run->step))) {
        return status;
    }
    return tensors_checkpoint(trainer, &position, epoch_of(trainer, run->step), is_final, err);
}

/* 1: stopped by wish. */
static int run_steps(struct run *run, struct gems_error *err)
{
    uint64_t n_steps = run->trainer->config.plan->steps_total;
    bool is_over = false;

    if (run->step + 1 < n_steps) {
        wish_start(&run->trainer->wish);
    }
    while (run->step < n_steps && !is_over) {
        int status;

        run->step++;
        status = train_step(run, err);
        if (status == GEMS_OK) {
            status = finish_step(run, &is_over, err);
        }
        if (status < 0) {
            return status;
        }
    }
    return is_over ? 1 : GEMS_OK;
}

static void count_waits(struct trainer *trainer, struct ledger *ledger)
{
    if (trainer->config.link) {
        link_count_waits(trainer->config.link, ledger);
    }
}

int trainer_run(struct trainer *trainer, const struct trainer_position *from,
                struct gems_error *err)
{
    struct run run = {
        .trainer = trainer, .first = from->step, .step = from->step, .samples = from->samples
    };
    uint64_t n_steps = trainer->config.plan->steps_total;
    int status = start_loader(trainer, from, err);

    if (status < 0) {
        return status;
    }
    atomic_store_explicit(&trainer->exec.watch.step, from->step, memory_order_relaxed);
    if (from->step >= n_steps) { /* only its last checkpoint was missing */
        return tensors_checkpoint(trainer, from, epoch_of(trainer, from->step), true, err);
    }
    count_waits(trainer, &trainer->exec.ledger);
    status = run_steps(&run, err);
    count_waits(trainer, NULL);
    loader_destroy(trainer->loader);
    trainer->loader = trainer->exec.loader = NULL;
    if (status > 0) {
        return gems_error_set(err, GEMS_E_CANCELLED, "stopped after step %llu, as asked",
                              (unsigned long long)run.step);
    }
    return status;
}
