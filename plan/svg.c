#include "plan/svg.h"

#include <math.h>
#include <string.h>

#include "common/buf.h"
#include "common/error.h"

enum {
    CHART_WIDTH = 1120,
    LEFT = 76,
    RIGHT = 32,
    TOP = 44,
    ROW = 30,
    BAR = 24,
    AXIS = 40,
    LEGEND = 22,
    LEGEND_COLUMN = 150,
    CHAR_WIDTH = 7
};

/* What is coloured alike, in the order of the legend. */
enum look {
    LOOK_FORWARD, LOOK_FORWARD_MIRRORED, LOOK_BACKWARD, LOOK_BACKWARD_MIRRORED, LOOK_WEIGHT,
    LOOK_RECOMPUTE, LOOK_UPDATE, LOOK_REDUCE, LOOK_COPY, LOOK_WAIT, LOOK_COUNT
};

static const struct {
    const char *name, *fill, *text;
} looks[LOOK_COUNT] = {
    [LOOK_FORWARD] = { "forward", "#56b4e9", "#10202c" },
    [LOOK_FORWARD_MIRRORED] = { "forward, chain 1", "#0072b2", "#ffffff" },
    [LOOK_BACKWARD] = { "backward", "#f0a830", "#2c1c00" },
    [LOOK_BACKWARD_MIRRORED] = { "backward, chain 1", "#c04a00", "#ffffff" },
    [LOOK_WEIGHT] = { "weight gradients", "#f0e442", "#2c2800" },
    [LOOK_RECOMPUTE] = { "forward again", "#cc79a7", "#2c0a1c" },
    [LOOK_UPDATE] = { "update", "#6a6a6a", "#ffffff" },
    [LOOK_REDUCE] = { "reduce", "#009e73", "#ffffff" },
    [LOOK_COPY] = { "copy", "#b0b0b0", "#202020" },
    [LOOK_WAIT] = { "wait", "url(#wait)", "#606060" },
};

static enum look look_of(const struct timeline_span *span)
{
    bool is_mirrored = span->instr.chain == 1;

    if (span->kind == TIMELINE_WAIT) {
        return LOOK_WAIT;
    }
    if (span->kind == TIMELINE_REDUCE) {
        return LOOK_REDUCE;
    }
    switch ((enum instr_op)span->instr.op) {
    case INSTR_FORWARD:
    case INSTR_EVALUATE:
        return is_mirrored ? LOOK_FORWARD_MIRRORED : LOOK_FORWARD;
    case INSTR_BACKWARD:
    case INSTR_BACKWARD_INPUT:
        return is_mirrored ? LOOK_BACKWARD_MIRRORED : LOOK_BACKWARD;
    case INSTR_BACKWARD_WEIGHT:
        return LOOK_WEIGHT;
    case INSTR_RECOMPUTE:
        return LOOK_RECOMPUTE;
    case INSTR_UPDATE:
        return LOOK_UPDATE;
    default:
        return LOOK_COPY;
    }
}

struct unit {
    double factor; /* of a second */
    const char *name;
};

static struct unit unit_of(double seconds, bool has_unit)
{
    if (!has_unit) {
        return (struct unit){ 1, "" };
    }
    return seconds >= 1      ? (struct unit){ 1, " s" }
           : seconds >= 1e-3 ? (struct unit){ 1e3, " ms" }
                             : (struct unit){ 1e6, " us" };
}

/* Text of an element: what XML keeps for itself is written out, what it forbids is
 * left out. */
static void add_text(struct buf *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            buf_add_string(out, "&amp;");
            break;
        case '<':
            buf_add_string(out, "&lt;");
            break;
        case '>':
            buf_add_string(out, "&gt;");
            break;
        default:
            if ((unsigned char)*text >= ' ' && *text != 0x7f) {
                buf_add(out, text, 1);
            }
        }
    }
}

static void add_head(struct buf *out, int width, int height, const char *title)
{
    buf_printf(out,
               "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
               "height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n<title>",
               width, height, width, height);
    add_text(out, title);
    buf_printf(out,
               "</title>\n<defs><pattern id=\"wait\" width=\"6\" height=\"6\" "
               "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
               "<rect width=\"6\" height=\"6\" fill=\"#f4f4f4\"/>"
               "<rect width=\"2\" height=\"6\" fill=\"#cfcfcf\"/></pattern></defs>\n"
               "<rect width=\"%d\" height=\"%d\" rx=\"6\" fill=\"#ffffff\"/>\n"
               "<text x=\"%d\" y=\"26\" font-size=\"15\" fill=\"#202020\">",
               width, height, LEFT);
    add_text(out, title);
    buf_add_string(out, "</text>\n");
}

/* The number of the micro-batch where there is room for it. */
static bool has_number(const struct timeline_span *span, enum look look, double width)
{
    uint32_t digits = 1;

    for (uint32_t n = span->instr.microbatch; n >= 10; n /= 10) {
        digits++;
    }
    return look <= LOOK_RECOMPUTE && width >= CHAR_WIDTH * digits + 2;
}

static void add_span(struct buf *out, const struct timeline_span *span, double y, double scale,
                     struct unit unit)
{
    enum look look = look_of(span);
    double x = LEFT + scale * span->start, width = scale * (span->end - span->start);
    char name[TIMELINE_NAME_BYTES];

    buf_printf(out,
               "<g><title>%s: %.6g to %.6g%s</title><rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
               "height=\"%d\" fill=\"%s\" stroke=\"#ffffff\" stroke-width=\"0.5\"/>",
               timeline_name(span, name), unit.factor * span->start, unit.factor * span->end,
               unit.name, x, y, width, BAR, looks[look].fill);
    if (has_number(span, look, width)) {
        buf_printf(out,
                   "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"%s\">%u</text>",
                   x + width / 2, y + BAR / 2 + 4.0, looks[look].text, span->instr.microbatch);
    }
    buf_add_string(out, "</g>\n");
}

static void add_rank(struct buf *out, const struct timeline *timeline, uint32_t r, double scale,
                     struct unit unit, bool *inout_used)
{
    const struct timeline_rank *rank = &timeline->ranks[r];
    double y = TOP + (double)ROW * r;

    buf_printf(out,
               "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#202020\">rank %u</text>\n"
               "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"#fafafa\"/>\n",
               LEFT - 8, y + BAR / 2 + 4.0, r, LEFT, y, CHART_WIDTH, BAR);
    for (uint32_t i = 0; i < rank->n; i++) {
        const struct timeline_span *span = &rank->spans[i];

        if (span->kind != TIMELINE_MESSAGE && span->end > span->start) {
            add_span(out, span, y, scale, unit);
            inout_used[look_of(span)] = true;
        }
    }
}

/* About ten ticks at round times. */
static double tick_of(double length)
{
    double raw = length / 10, power = pow(10, floor(log10(raw))), rest = raw / power;

    return power * (rest > 5 ? 10 : rest > 2 ? 5 : rest > 1 ? 2 : 1);
}

static void add_axis(struct buf *out, double seconds, double y, double scale, struct unit unit)
{
    double length = unit.factor * seconds, tick = length > 0 ? tick_of(length) : 1;

    buf_printf(out, "<path d=\"M%d %.1fh%d\" stroke=\"#808080\" fill=\"none\"/>\n", LEFT, y,
               CHART_WIDTH);
    for (double i = 0; i * tick <= length * (1 + 1e-9); i++) {
        double x = LEFT + scale * i * tick / unit.factor;

        buf_printf(out,
                   "<path d=\"M%.2f %.1fv5\" stroke=\"#808080\" fill=\"none\"/>"
                   "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#404040\">%.6g%s"
                   "</text>\n",
                   x, y, x, y + 18, i * tick, unit.name);
    }
}

static int legend_rows(const bool *used, int columns)
{
    int n = 0;

    for (int look = 0; look < LOOK_COUNT; look++) {
        n += used[look];
    }
    return (n + columns - 1) / columns;
}

static void add_legend(struct buf *out, const bool *used, int columns, double y)
{
    int n = 0;

    for (int look = 0; look < LOOK_COUNT; look++) {
        double x = LEFT + (double)LEGEND_COLUMN * (n % columns);
        double top = y + (double)LEGEND * (n / columns);

        if (!used[look]) {
            continue;
        }
        buf_printf(out,
                   "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"%s\"/>"
                   "<text x=\"%.1f\" y=\"%.1f\" fill=\"#202020\">%s</text>\n",
                   x, top, looks[look].fill, x + 20, top + 11.5, looks[look].name);
        n++;
    }
}

int svg_write(const struct timeline *timeline, const char *title, bool has_unit, struct buf *out)
{
    double scale = timeline->seconds > 0 ? CHART_WIDTH / timeline->seconds : 0;
    struct unit unit = unit_of(timeline->seconds, has_unit);
    int columns = CHART_WIDTH / LEGEND_COLUMN, bottom = TOP + ROW * (int)timeline->n_ranks;
    bool used[LOOK_COUNT] = { false };
    struct buf rows = { 0 };
    int status;

    for (uint32_t r = 0; r < timeline->n_ranks; r++) {
        add_rank(&rows, timeline, r, scale, unit, used);
    }
    add_head(out, LEFT + CHART_WIDTH + RIGHT,
             bottom + AXIS + LEGEND * legend_rows(used, columns) + 6, title);
    buf_add(out, rows.data, rows.n);
    add_axis(out, timeline->seconds, bottom, scale, unit);
    add_legend(out, used, columns, bottom + AXIS - 8);
    status = rows.is_failed ? GEMS_E_NOMEM : buf_add_string(out, "</svg>\n");
    buf_fini(&rows);
    return status;
}
