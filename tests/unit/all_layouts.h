/* Every layout in which a small job of the trainer lab can run: schedules, stages,
 * groups and recomputation. For tests that hold for all of them. */
#ifndef GEMS_TESTS_ALL_LAYOUTS_H
#define GEMS_TESTS_ALL_LAYOUTS_H

#include "plan/spec.h"

struct any_layout {
    enum schedule_kind schedule;
    uint32_t stages, groups, chunks, replications;
    enum recompute recompute;
};

enum { ALL_LAYOUTS_MAX = 256 };

/* Pipelines of 1 to 4 devices in 1 and 2 groups, as far as the job's gradient blocks
 * can be dealt to the copies; `single` comes first. Returns their number. */
uint32_t all_layouts(const struct job_spec *spec, struct any_layout ret_layouts[ALL_LAYOUTS_MAX]);

void any_layout_set(struct job_spec *spec, const struct any_layout *layout);

/* "gems-mast on 3 in 2 groups"; static. */
const char *any_layout_name(const struct any_layout *layout);

#endif
