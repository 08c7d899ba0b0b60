/* A random network with a random job over it and the facts both need. */
#ifndef GEMS_TESTS_SIM_RANDOM_JOB_H
#define GEMS_TESTS_SIM_RANDOM_JOB_H

#include "tests/sim/random_graph.h"

enum { RANDOM_MAX_DEVICES = 12 };

struct random_job {
    struct graph graph;
    struct job_spec spec; /* settled, passes spec_check but for the name of the model */
    struct fact_set facts;
    struct plan_device devices[RANDOM_MAX_DEVICES];
    uint32_t n_devices; /* of each group at most as many as the graph has layers */
};

void random_job(uint64_t seed, struct random_job *ret_job);
void random_job_fini(struct random_job *job);

#endif
