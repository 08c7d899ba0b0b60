/* Runs a program on a model of the machine: when does what happen.
 *
 * The rules are those of the executor (plan/program.h): a list is run in order;
 * a message starts when its tensor is there and its receive is posted, and takes
 * latency + bytes / bandwidth; links do not slow each other down. So every time
 * is a maximum of earlier ones, and a program that stops here stops on any
 * machine, whatever its times: is_strict, which posts receives only when the list
 * reaches them, proves it for every executor that is at least as eager. */
#ifndef GEMS_PLAN_SIM_H
#define GEMS_PLAN_SIM_H

#include "plan/memory.h"
#include "plan/plan.h"

/* Times by stage, for a micro-batch of program->microbatch samples; a shorter one
 * takes its share. NULL: no time. */
struct sim_costs {
    const double *forward, *backward;
    const double *weight; /* part of backward that is its weight half; NULL: half of it */
    const double *combine, *reduce, *update, *gather;
    const uint64_t *edge_bytes;   /* by edge, of a whole micro-batch */
    double latency, bytes_second; /* of a link; 0 bytes_second: no time for bytes */
    const double *speed;          /* by rank, 1 as the costs say */
    double delay;                 /* each pass and message takes up to this longer */
    uint64_t delay_seed;
    const struct memory_map *maps; /* by rank; NULL: slots of different numbers are apart */
    bool is_strict;
};

struct sim_span {
    double start, end; /* of a SEND: handed over, arrived; of a RECV: posted, arrived */
};

struct sim_result {
    double step_seconds;
    double idle_fraction; /* of ranks x step without a pass, a sum or an update */
    uint32_t n_ranks;
    double *busy_seconds;    /* by rank */
    struct sim_span **spans; /* by rank, instruction */
    struct sim_span *storage;
};

/* GEMS_E_INTERNAL if the program stops: who waits for what. */
int sim_run(const struct plan *plan, const struct program *program, const struct sim_costs *costs,
            struct sim_result *ret_result, struct gems_error *err);
void sim_result_fini(struct sim_result *result);

#endif
