#include "plan/gantt.h"

#include "common/buf.h"
#include "common/error.h"

static char letter_of(const struct instr *instr)
{
    char digit = (char)(instr->microbatch % 10);

    switch ((enum instr_op)instr->op) {
    case INSTR_FORWARD:
    case INSTR_EVALUATE:
        return (char)('0' + digit);
    case INSTR_BACKWARD:
    case INSTR_BACKWARD_INPUT:
        return (char)('a' + digit);
    case INSTR_BACKWARD_WEIGHT:
        return (char)('k' + digit);
    case INSTR_RECOMPUTE:
        return '*';
    case INSTR_REDUCE:
        return 'R';
    case INSTR_UPDATE:
        return 'U';
    case INSTR_GATHER:
        return 'G';
    default:
        return '\0';
    }
}

/* Letter of what the rank runs at a time; *inout_i is the instruction to look from,
 * times are asked for in ascending order. */
static char letter_at(const struct instr_list *list, const struct sim_span *spans, double time,
                      uint32_t *inout_i)
{
    for (uint32_t i = *inout_i; i < list->n; i++) {
        char letter = letter_of(&list->items[i]);

        if (!letter || spans[i].end <= time) {
            continue;
        }
        *inout_i = i;
        return spans[i].start <= time ? letter : '.';
    }
    *inout_i = list->n;
    return '.';
}

int gantt_text(const struct program *program, const struct sim_result *result, uint32_t width,
               struct buf *out)
{
    int status = buf_reserve(out, (size_t)program->n_ranks * (width + 16));

    for (uint32_t rank = 0; rank < program->n_ranks && status == GEMS_OK; rank++) {
        uint32_t i = 0;

        status = buf_printf(out, "rank %-3u |", rank);
        for (uint32_t x = 0; x < width && status == GEMS_OK; x++) {
            double time = (x + 0.5) * result->step_seconds / width;
            char letter = letter_at(&program->ranks[rank], result->spans[rank], time, &i);

            status = buf_add(out, &letter, 1);
        }
        if (status == GEMS_OK) {
            status = buf_add_string(out, "|\n");
        }
    }
    return status;
}
