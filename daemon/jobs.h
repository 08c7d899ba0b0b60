/* Jobs in memory: those that are not ended, and those whose ranks are not all
 * gone. What has ended is read from the store.
 *
 * Asynchronous work keeps (job, attempt) numbers, never pointers, and looks
 * the job up again: NULL means that nobody waits for the result any more.
 * Thread: the loop.
 */
#ifndef GEMS_DAEMON_JOBS_H
#define GEMS_DAEMON_JOBS_H

#include "daemon/daemon.h"
#include "daemon/job.h"
#include "daemon/progress.h"
#include "daemon/store.h"
#include "plan/plan.h"
#include "plan/timeline.h"

struct peer;

enum rank_state {
    RANK_PLACED,   /* has a device */
    RANK_LAUNCHED, /* its agent was told */
    RANK_JOINED,   /* waits for its Start */
    RANK_RUNNING,
    RANK_ENDED, /* has said how it ended */
    RANK_GONE,  /* no process is left */
    RANK_STATE_COUNT
};
const char *rank_state_name(enum rank_state state);

struct rank {
    struct store_rank place;
    enum rank_state state;
    struct peer *peer;            /* control connection, or NULL */
    uint32_t join_call, end_call; /* to be answered; 0: none */
    bool has_started;             /* has its Start */
    bool is_good;                 /* ended well */
    uint8_t *address;             /* owned */
    size_t n_address;
    char net_version[64], kind[128], phase[32];
    int64_t seen_us;    /* last sign of life */
    int64_t moved_us;   /* last growth of the watermark */
    int64_t missing_us; /* 0, or since when its agent does not know it */
    uint64_t watermark, step, allocated_bytes, rss_bytes, peak_bytes;
    double busy_fraction;
    double step_seconds[TIMELINE_SPENT]; /* where a training step's time goes */
    bool has_times;
    int source; /* index among the ranks with a last stage, or -1 */
};

/* One try to run a job; exists from the reservation of devices on. */
struct attempt {
    uint32_t number;
    struct plan plan;
    bool has_plan;
    uint8_t secret[32];
    char token[65];
    bool has_restore;
    uint64_t restore_step;
    uint32_t n_ranks;
    struct rank *ranks; /* owned */
    int64_t begun_us;   /* launched or adopted */
    int64_t stop_us;    /* STOPPING: since when; KILL follows */
    int64_t killed_us;  /* last Kill */
    /* A lost peer is often the echo of another failure: it is held back for a
     * moment, so that the cause can arrive. */
    int64_t echo_us;
    char echo[JOB_REASON_BYTES];
    struct list sessions; /* of checkpoints.c: checkpoints on their way */
    uint64_t failed_step; /* its checkpoint could not be written */
};

struct job {
    struct list link;
    uint64_t id;
    char name[STORE_NAME_BYTES], user[STORE_NAME_BYTES];
    struct job_core core;
    struct job_spec spec;                          /* settled */
    int64_t submitted_us, started_us, finished_us; /* UTC */
    int64_t used_ms;                               /* running time of earlier attempts */
    int64_t running_us;                            /* monotonic: since when RUNNING, 0: not */
    int64_t retry_us;                              /* monotonic: not placed before */
    struct graph graph;                            /* fused; n_nodes 0: not built yet */
    struct attempt *attempt;
    struct progress progress;
    struct list moves; /* of flow.c: events that wait */
    bool is_moving;    /* one of them is on its way to the disk */
    int64_t move_retry_us;
    uint32_t n_place_failures;
    uint64_t place_serial; /* counts placements, so that late answers are known */
    struct list watches;   /* of watch.c */
    uint64_t version;      /* grows with every visible change */
    uint64_t saved_version;
    int64_t saved_us;
    char weights_hash[STORE_HASH_BYTES];
    char schedule[32]; /* of the last plan, shown after the attempt too */
    uint32_t stages, groups;
    enum recompute recompute;
    struct store_checkpoint *checkpoints; /* owned; newest first */
    size_t n_checkpoints;
    struct bytes ranks_blob; /* ranks of the last attempt, packed StatusReply */
};

struct job *jobs_find(struct daemon *daemon, uint64_t id);
/* NULL also when the job is in another attempt. */
struct job *jobs_find_attempt(struct daemon *daemon, uint64_t id, uint32_t attempt);
/* From a stored row; takes nothing. NULL with err. */
struct job *jobs_add(struct daemon *daemon, const struct store_job *row, struct gems_error *err);
void jobs_remove(struct job *job);
size_t jobs_count(const struct daemon *daemon);

/* The fused graph, built when first asked for. */
int jobs_graph(struct job *job, struct gems_error *err);
/* Builds and fuses the network of a spec. Any thread. */
int spec_graph(const struct job_spec *spec, struct graph *ret_graph, struct gems_error *err);

void jobs_changed(struct job *job);

/* Attempt with n ranks; number is the job's. GEMS_E_NOMEM. */
int attempt_create(struct job *job, uint32_t n_ranks, struct gems_error *err);
void attempt_destroy(struct job *job);
/* Takes the plan; finds out which ranks report progress. */
void attempt_set_plan(struct job *job, struct plan *plan);
bool attempt_is_gone(const struct attempt *attempt);
/* "rank 2 on node-a/cpu:1" */
const char *rank_name(const struct attempt *attempt, uint32_t rank, char *text, size_t n);

#endif
