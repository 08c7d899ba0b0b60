#include "tests/unit/all_layouts.h"

#include <check.h>
#include <stdio.h>

#include "plan/sched.h"
#include "tests/unit/trainer_lab.h"

static uint32_t count_layers(const struct job_spec *spec)
{
    struct graph graph;
    uint32_t n;

    lab_graph(spec, &graph);
    n = graph.n_layers;
    graph_fini(&graph);
    return n;
}

static bool is_possible(const struct schedule *schedule, const struct job_spec *spec,
                        const struct any_layout *layout, uint32_t n_layers)
{
    uint32_t chunks = schedule->chunks ? schedule->chunks : layout->chunks;

    return layout->stages * chunks <= n_layers && (!schedule->is_even || layout->stages % 2 == 0) &&
           (!schedule->is_one_stage || layout->stages == 1) &&
           layout->groups * schedule->n_chains <= spec->parallel.gradient_blocks;
}

static uint32_t add_sizes(const struct job_spec *spec, enum schedule_kind kind, uint32_t n,
                          struct any_layout *layouts)
{
    const struct schedule *schedule = schedule_find(kind);
    uint32_t n_layers = count_layers(spec);

    for (uint32_t groups = 1; groups <= 2; groups++) {
        for (uint32_t stages = 1; stages <= 4; stages++) {
            struct any_layout layout = { .schedule = kind,
                                         .stages = stages,
                                         .groups = groups,
                                         .chunks = schedule->chunks ? 0 : 2,
                                         .replications = kind == SCHEDULE_GEMS_MASTER ? 3 : 0,
                                         .recompute = RECOMPUTE_NONE };

            if (is_possible(schedule, spec, &layout, n_layers)) {
                ck_assert_uint_lt(n, ALL_LAYOUTS_MAX);
                layouts[n++] = layout;
            }
        }
    }
    return n;
}

uint32_t all_layouts(const struct job_spec *spec, struct any_layout ret_layouts[ALL_LAYOUTS_MAX])
{
    uint32_t n = 0;

    for (int kind = SCHEDULE_SINGLE; kind < SCHEDULE_COUNT; kind++) {
        if (schedule_is_available(kind)) {
            n = add_sizes(spec, kind, n, ret_layouts);
        }
    }
    return n;
}

void any_layout_set(struct job_spec *spec, const struct any_layout *layout)
{
    spec->parallel.schedule = layout->schedule;
    spec->parallel.stages = layout->stages;
    spec->parallel.groups = layout->groups;
    spec->parallel.chunks = layout->chunks;
    spec->parallel.replications = layout->replications;
    spec->parallel.recompute = layout->recompute;
}

const char *any_layout_name(const struct any_layout *layout)
{
    static char text[96];

    snprintf(text, sizeof text, "%s on %u in %u groups, recompute %d",
             schedule_name(layout->schedule), layout->stages, layout->groups, layout->recompute);
    return text;
}
