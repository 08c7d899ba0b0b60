/* gemsd's memory: STATE/gems.db, the truth about jobs.
 *
 * One connection, used by one thread at a time (the store thread once the
 * daemon runs), opened EXCLUSIVE before WAL so that no second connection can
 * exist, synchronous FULL: what returned GEMS_OK survives a power cut. A move
 * of a job is one transaction: compare-and-swap on (state, attempt), the event
 * row, and what belongs to the new state.
 *
 * A full disk wedges SQLite (it cannot even delete), so a ballast file lies
 * beside the database: it is given up for one retry and made again later.
 * All calls block; all return GEMS_E_DISKFULL, GEMS_E_IO, GEMS_E_DATA (damaged)
 * or GEMS_E_NOMEM beside what they name.
 */
#ifndef GEMS_DAEMON_STORE_H
#define GEMS_DAEMON_STORE_H

#include "daemon/job.h"

struct gems_error;
struct store;

enum { STORE_NAME_BYTES = 64, STORE_KEY_BYTES = 128, STORE_WHO_BYTES = 96, STORE_HASH_BYTES = 33 };
enum { STORE_SCHEMA = 1 };

struct bytes {
    uint8_t *data; /* owned */
    size_t n;
};

/* A row of jobs. */
struct store_job {
    uint64_t id;
    char name[STORE_NAME_BYTES], user[STORE_NAME_BYTES], key[STORE_KEY_BYTES];
    struct job_core core;
    int64_t submitted_us, started_us, finished_us; /* UTC, 0: not yet */
    int64_t used_ms;     /* running time of earlier attempts, for limits.time */
    struct bytes spec;   /* JobSpec */
    struct bytes status; /* StatusReply without checkpoints: as last seen */
};
void store_job_fini(struct store_job *job);

/* Where a rank of an attempt runs. */
struct store_rank {
    char node[STORE_NAME_BYTES], device[STORE_NAME_BYTES], backend[16];
    uint32_t threads;
    uint64_t memory_bytes;
};

/* A row of attempts and its ranks: written once, when the job is placed. */
struct store_attempt {
    struct bytes plan; /* Plan, all ranks */
    uint8_t secret[32];
    char token[65];
    bool has_restore;
    uint64_t restore_step;
    uint32_t n_ranks;
    struct store_rank *ranks; /* owned */
};
void store_attempt_fini(struct store_attempt *attempt);

/* One move of a job. */
struct store_move {
    uint64_t job;
    struct job_core from, to;
    enum job_event event;
    const char *who, *why;
    int64_t when_us;
    int64_t started_us, finished_us, used_ms;
    struct bytes status;                 /* borrowed; n 0: unchanged */
    struct bytes spec;                   /* borrowed; n 0: unchanged */
    const struct store_attempt *attempt; /* with ON_PLACED, else NULL */
};

struct store_event {
    int64_t when_us;
    uint32_t attempt;
    char who[STORE_WHO_BYTES], event[32], state[16], why[JOB_REASON_BYTES];
};

enum checkpoint_trust { CHECKPOINT_WRITTEN, CHECKPOINT_VERIFIED, CHECKPOINT_DAMAGED };

struct store_checkpoint {
    uint64_t job, step, samples, bytes;
    uint32_t epoch, attempt;
    int64_t when_us;
    bool is_final;
    enum checkpoint_trust trust;
    char weights_hash[STORE_HASH_BYTES];
    double eval_accuracy; /* NaN: none */
};

struct store_node {
    char name[STORE_NAME_BYTES], reason[256];
    bool is_drained;
};

/* Opens or makes DIR/gems.db, brings an older schema forward and checks the
 * file. GEMS_E_STATE: another gemsd has it. GEMS_E_UNSUPPORTED: written by a
 * newer version. GEMS_E_DATA: damaged; nothing is changed then. */
int store_open(const char *dir, uint64_t ballast_bytes, struct store **ret_store,
               struct gems_error *err);
void store_close(struct store *store);
/* Makes the ballast again if it is gone and there is room for it. */
void store_keep(struct store *store);

/* Inserts a job with its first event. Same user and same non-empty key as an
 * earlier job: *ret_id is that one's and *ret_is_new false. */
int store_submit(struct store *store, const struct store_job *job, uint64_t *ret_id,
                 bool *ret_is_new, struct gems_error *err);
/* GEMS_E_STATE if the row is not in (from.state, from.attempt). */
int store_move(struct store *store, const struct store_move *move, struct gems_error *err);
/* An event row without a move. */
int store_note(struct store *store, uint64_t job, uint32_t attempt, enum job_state state,
               const char *who, const char *event, const char *why, int64_t when_us,
               struct gems_error *err);
/* Status as last seen, between moves. */
int store_status(struct store *store, uint64_t job, const struct bytes *status,
                 struct gems_error *err);

/* GEMS_E_NOTFOUND. */
int store_job(struct store *store, uint64_t id, struct store_job *ret_job, struct gems_error *err);
int store_attempt(struct store *store, uint64_t job, uint32_t attempt,
                  struct store_attempt *ret_attempt, struct gems_error *err);

/* Rows as an array, owned by the caller; *ret_n may be 0. */
int store_live_jobs(struct store *store, struct store_job **ret_jobs, size_t *ret_n,
                    struct gems_error *err);
/* Newest first, at most limit; states is a mask of 1 << job_state, 0: all. */
int store_list(struct store *store, unsigned states, size_t limit, struct store_job **ret_jobs,
               size_t *ret_n, struct gems_error *err);
int store_events(struct store *store, uint64_t job, struct store_event **ret_events, size_t *ret_n,
                 struct gems_error *err);
/* Newest first. */
int store_checkpoints(struct store *store, uint64_t job, struct store_checkpoint **ret_rows,
                      size_t *ret_n, struct gems_error *err);
int store_nodes(struct store *store, struct store_node **ret_nodes, size_t *ret_n,
                struct gems_error *err);

int store_checkpoint_put(struct store *store, const struct store_checkpoint *row,
                         struct gems_error *err);
int store_checkpoint_trust(struct store *store, uint64_t job, uint64_t step,
                           enum checkpoint_trust trust, struct gems_error *err);
int store_checkpoint_eval(struct store *store, uint64_t job, uint64_t step, double accuracy,
                          struct gems_error *err);
int store_checkpoint_remove(struct store *store, uint64_t job, uint64_t step,
                            struct gems_error *err);
int store_node_put(struct store *store, const struct store_node *node, struct gems_error *err);

#endif
