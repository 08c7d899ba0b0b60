#include "worker/rank/ledger.h"

#include <string.h>
#include <time.h>

enum { N_FIRST_STEPS = 2 /* with first touches and cold caches */ };

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Books the time since the last border. */
static void book(struct ledger *ledger)
{
    uint64_t now = now_ns();

    ledger->program_ns[ledger->kind] += now - ledger->since_ns;
    ledger->total_ns[ledger->kind] += now - ledger->since_ns;
    ledger->since_ns = now;
}

void ledger_begin(struct ledger *ledger)
{
    ledger->is_open = true;
    ledger->kind = TIMELINE_COMPUTE;
    ledger->since_ns = now_ns();
    memset(ledger->program_ns, 0, sizeof ledger->program_ns);
}

void ledger_next(struct ledger *ledger, enum instr_op op)
{
    ledger_turn(ledger, timeline_kind_of(op));
}

enum timeline_kind ledger_turn(struct ledger *ledger, enum timeline_kind kind)
{
    enum timeline_kind before = ledger->kind;

    if (ledger->is_open) {
        book(ledger);
        ledger->kind = kind;
    }
    return before;
}

void ledger_end(struct ledger *ledger, bool is_step)
{
    book(ledger);
    ledger->is_open = false;
    for (int kind = 0; kind < TIMELINE_SPENT; kind++) {
        if (is_step && ledger->n_steps <= N_FIRST_STEPS) {
            ledger->steps_ns[kind] = ledger->program_ns[kind];
        } else if (is_step) {
            ledger->steps_ns[kind] += ledger->program_ns[kind];
        }
    }
    ledger->n_steps += is_step;
}

uint64_t ledger_step_ns(const struct ledger *ledger, enum timeline_kind kind)
{
    uint64_t n = ledger->n_steps > N_FIRST_STEPS ? ledger->n_steps - N_FIRST_STEPS : 1;

    return ledger->steps_ns[kind] / n;
}
