/* A timeline as a drawing: standalone SVG, one row a rank, time to the right. Pure.
 *
 * Passes are coloured by what they are and by their chain and carry the number of
 * their micro-batch; waits are hatched. The drawing has a ground of its own, so it
 * can be read on light and dark pages, and its colours differ for the colour-blind
 * too. Names and times of every span show where a viewer has tool tips. */
#ifndef GEMS_PLAN_SVG_H
#define GEMS_PLAN_SVG_H

#include "plan/timeline.h"

struct buf;

/* Appends the drawing. title: UTF-8, any characters. has_unit: times are seconds;
 * otherwise bare numbers. GEMS_E_NOMEM. */
int svg_write(const struct timeline *timeline, const char *title, bool has_unit, struct buf *out);

#endif
