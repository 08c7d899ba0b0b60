#include "tests/sim/random_job.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "plan/planner.h"
#include "plan/sched.h"

/* Two chains or one, whichever the planner takes. */
static bool can_deal(const struct job_spec *spec)
{
    struct plan plan = {
        .n_groups = spec->parallel.groups,
        .n_chains = 2,
        .n_blocks = spec->parallel.gradient_blocks,
    };

    return plan_keeps_sums(&plan);
}

static void random_spec(struct draw *draw, struct job_spec *spec)
{
    static const enum schedule_kind kinds[] = {
        SCHEDULE_AUTO,      SCHEDULE_LAYER,       SCHEDULE_GPIPE,  SCHEDULE_1F1B,
        SCHEDULE_GEMS_MAST, SCHEDULE_GEMS_MAST,   SCHEDULE_ZB_H1,  SCHEDULE_1F1B_INTERLEAVED,
        SCHEDULE_CHIMERA,   SCHEDULE_GEMS_MASTER, SCHEDULE_V_HALF, SCHEDULE_V_MIN,
    };
    enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

    spec_init(spec);
    spec->parallel.schedule = kinds[draw_between(draw, 0, N_KINDS - 1)];
    spec->parallel.groups = draw_chance(draw, 60) ? 1 : draw_between(draw, 2, 4);
    spec->parallel.replications = draw_between(draw, 0, 6);
    spec->parallel.chunks = draw_between(draw, 0, 3);
    spec->parallel.recompute = (enum recompute)draw_between(draw, RECOMPUTE_NONE, RECOMPUTE_AUTO);
    do {
        spec->parallel.gradient_blocks = draw_between(draw, 1, 12);
    } while (!can_deal(spec));
    spec->train.batch = draw_between(draw, 1, 16);
    if (draw_chance(draw, 70)) {
        spec->parallel.microbatch = draw_between(draw, 1, spec->train.batch);
    }
    if (draw_chance(draw, 30)) {
        spec->train.optimizer = OPTIMIZER_ADAM;
    }
    spec->train.epochs = 2;
}

/* Devices of a group: what the model's layers and the schedule allow. A model too small
 * for the schedule goes without it. */
static uint32_t random_width(struct draw *draw, struct random_job *job)
{
    struct parallel_spec *parallel = &job->spec.parallel;
    const struct schedule *schedule = schedule_find(parallel->schedule);
    uint32_t chunks = schedule ? schedule_chunks(schedule, parallel) : 1;
    uint32_t most = RANDOM_MAX_DEVICES / parallel->groups, width;

    most = job->graph.n_layers / chunks < most ? job->graph.n_layers / chunks : most;
    if (!most || (schedule && schedule->is_even && most < 2)) {
        parallel->schedule = SCHEDULE_LAYER;
        return 1;
    }
    width = draw_between(draw, 1, most);
    return schedule && schedule->is_even && width % 2 ? width > 1 ? width - 1 : 2 : width;
}

void random_job(uint64_t seed, struct random_job *ret_job)
{
    struct draw draw = { seed, 0 };
    struct gems_error err = { 0 };
    uint32_t sizes[FACTS_MAX_SIZES];

    *ret_job = (struct random_job){ 0 };
    random_graph(&draw, &ret_job->graph);
    random_spec(&draw, &ret_job->spec);
    if (planner_settle(&ret_job->graph, &ret_job->spec, &err) < 0) {
        fprintf(stderr, "random job: %s\n", err.text);
        abort();
    }
    ret_job->facts.n_train = draw_chance(&draw, 80) ? draw_between(&draw, 1, 50) : 0;
    ret_job->facts.n_eval = draw_chance(&draw, 60) ? draw_between(&draw, 1, 50) : 0;
    ret_job->facts.n_sizes =
        planner_batch_sizes(&ret_job->spec, ret_job->facts.n_train, ret_job->facts.n_eval, sizes);
    for (uint32_t i = 0; i < ret_job->facts.n_sizes; i++) {
        random_facts(&ret_job->graph, sizes[i], &ret_job->facts.sizes[i]);
    }
    ret_job->n_devices = random_width(&draw, ret_job) * ret_job->spec.parallel.groups;
    for (uint32_t i = 0; i < ret_job->n_devices; i++) {
        ret_job->devices[i] = (struct plan_device){ .kind = DEVICE_REF, .speed = 1 };
    }
}

void random_job_fini(struct random_job *job)
{
    fact_set_fini(&job->facts);
    graph_fini(&job->graph);
}
