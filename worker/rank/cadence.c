/* When things happen in a job, and at which learning rate: functions of the
 * spec and the step alone, equal on every rank. Pure. */
#include "worker/rank/trainer.h"

#include <math.h>

bool trainer_eval_due(const struct job_spec *spec, const struct plan *plan, uint64_t step)
{
    (void)spec;
    if (plan->n_eval == 0 || step == 0) {
        return false;
    }
    return step % plan->steps_per_epoch == 0 || step == plan->steps_total;
}

bool trainer_checkpoint_due(const struct job_spec *spec, const struct plan *plan, uint64_t step)
{
    if (step == 0) {
        return false;
    }
    if (step == plan->steps_total) {
        return true;
    }
    if (spec->checkpoint_every_steps != 0 && step % spec->checkpoint_every_steps == 0) {
        return true;
    }
    return spec->checkpoint_every_epochs != 0 && step % plan->steps_per_epoch == 0 &&
           step / plan->steps_per_epoch % spec->checkpoint_every_epochs == 0;
}

/* Of the schedule without warm-up, for the step-th step (from 1). */
static double scheduled(const struct train_spec *train, const struct plan *plan, uint64_t step)
{
    double done = (double)(step - 1);

    switch (train->schedule) {
    case LR_STEP:
        if (train->lr_step_epochs == 0) {
            return train->lr;
        }
        return train->lr *
               pow(train->lr_gamma,
                   floor(done / ((double)plan->steps_per_epoch * train->lr_step_epochs)));
    case LR_COSINE:
        return train->lr * 0.5 * (1 + cos(M_PI * done / (double)plan->steps_total));
    default:
        return train->lr;
    }
}

double trainer_lr(const struct job_spec *spec, const struct plan *plan, uint64_t step)
{
    double warmup_steps = spec->train.warmup_epochs * (double)plan->steps_per_epoch;
    double lr = scheduled(&spec->train, plan, step);

    return (double)step < warmup_steps ? lr * (double)step / warmup_steps : lr;
}
