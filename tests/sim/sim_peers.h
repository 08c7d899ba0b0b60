/* Scripted agents and ranks: what sim.c needs of them. */
#ifndef GEMS_TESTS_SIM_PEERS_H
#define GEMS_TESTS_SIM_PEERS_H

#include "common/error.h"
#include "tests/sim/sim.h"

/* NULL: nobody listens. */
struct rpc_conn *sim_connect(struct sim *sim, const struct rpc_handlers *handlers, void *arg);
void sim_hello(struct rpc_conn *conn, const char *role, const char *token);
/* Between two turns of the loop: connects what has lost gemsd. */
void sim_peers_turn(struct sim *sim);

void sim_agents_turn(struct sim *sim);

void sim_rank_start(struct sim_agent *agent, const Gems__Launch *launch);
/* Its agent tells gemsd. */
void sim_agent_exit(struct sim_agent *agent, const Gems__RankRef *ref, bool is_signal, int code);

#endif
