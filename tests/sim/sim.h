/* A whole gemsd in one process, with scripted agents and ranks around it.
 *
 * The daemon is the real one, on a real socket in a folder of its own. Agents
 * and ranks speak the protocol but train nothing: a rank's "weights" are a
 * function of the step, so a disturbed run can be compared with an undisturbed
 * one by weights_hash. Ranks go on while gemsd is away and join again.
 * One loop, one thread of ours.
 */
#ifndef GEMS_TESTS_SIM_H
#define GEMS_TESTS_SIM_H

#include <event2/event.h>

#include "common/list.h"
#include "daemon/daemon.h"
#include "daemon/settings.h"
#include "proto/gems.pb-c.h"
#include "proto/messages.h"

#define SIM_DATA "/sim/data"
enum { SIM_AGENTS = 2, SIM_DEVICES = 2 };

struct sim_agent {
    struct sim *sim;
    char name[32];
    struct rpc_conn *conn;
    bool is_alive;      /* its process runs */
    struct list unsent; /* exits that gemsd has not taken */
    int n_launched;
};

/* One rank process. */
struct sim_rank {
    struct list link;
    struct sim *sim;
    struct sim_agent *agent;
    Gems__RankRef ref;
    char token[80];
    struct rpc_conn *conn;
    struct event *timer;
    bool is_started, is_restoring, is_waiting; /* for the ack of its checkpoint */
    bool is_ending;
    uint32_t n_ranks, batch;
    uint64_t step, steps_total, steps_per_epoch, n_train;
    uint64_t checkpoint_step; /* due; 0: none */
    bool is_final, is_stopping;
    bool has_last_stage;
    uint32_t n_tensors;
    char (*names)[64]; /* all tensors of the model */
    int end_status;
    uint64_t watermark;
};

struct sim {
    char dir[32], socket[64], state[64];
    struct event_base *base;
    struct settings settings;
    struct daemon *daemon;
    struct sim_agent agents[SIM_AGENTS];
    struct list ranks;
    uint64_t stop_step; /* agreed by the ranks of the running attempt */
    uint64_t n_turns;   /* of the loop */
    /* Faults. */
    int hang_rank; /* that rank stands still at hang_step; -1: none */
    int nan_rank;  /* ends with a NaN at hang_step */
    uint64_t hang_step;
    uint64_t memory_bytes;  /* of a device */
    int inspect_status;     /* answer of gems-inspect */
    uint64_t restored_step; /* what ranks restored last */
    int n_refused_joins;
    int step_ms;
};

void sim_init(struct sim *sim); /* makes folder and loop; no gemsd yet */
void sim_fini(struct sim *sim);
void sim_start(struct sim *sim); /* gemsd */
void sim_kill(struct sim *sim);  /* gemsd, between two transactions */
void sim_agent_start(struct sim *sim, int agent);
void sim_agent_kill(struct sim *sim, int agent); /* and with it its ranks */
struct sim_rank *sim_find_rank(struct sim *sim, uint32_t rank);
void sim_rank_kill(struct sim_rank *rank, int signal);

/* Turns the loop until the condition holds; fails the test after 20 s. */
typedef bool sim_condition_fn(struct sim *sim, void *arg);
void sim_wait(struct sim *sim, sim_condition_fn *condition, void *arg, const char *what);
void sim_turn(struct sim *sim, int ms);
void sim_step(struct sim *sim); /* one turn */

/* A client's question; the reply is owned by the caller (msg_free). MSG_ERROR
 * is a reply too. */
ProtobufCMessage *sim_ask(struct sim *sim, enum msg_type type, const ProtobufCMessage *message,
                          enum msg_type *ret_type);
/* Same, collecting a stream: bytes of LOG_CHUNK or FETCH_CHUNK. */
size_t sim_stream(struct sim *sim, enum msg_type type, const ProtobufCMessage *message,
                  int *ret_status);
uint64_t sim_submit(struct sim *sim, uint32_t steps,
                    const char *key); /* 0 and sim_error on failure */
extern struct gems_error sim_error;
Gems__StatusReply *sim_status(struct sim *sim, uint64_t job); /* owned by the caller */
void sim_wait_state(struct sim *sim, uint64_t job, const char *state);
void sim_wait_step(struct sim *sim, uint64_t job, uint64_t step);
/* 0, or the negative status of the error. */
int sim_verb(struct sim *sim, enum msg_type verb, uint64_t job);
bool sim_has_event(struct sim *sim, uint64_t job, const char *event, const char *word);

#endif
