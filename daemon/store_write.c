/* Everything that changes gems.db after it is opened. */
#include "daemon/store_private.h"

#include <string.h>

#include "common/error.h"

static const char *const trust_names[] = { "written", "verified", "damaged" };

static int add_event(struct store *store, uint64_t job, int64_t when_us, const char *who,
                     const char *event, enum job_state state, uint32_t attempt, const char *why,
                     struct gems_error *err)
{
    return sql_run(store->db, err,
                   "INSERT INTO events(job, when_us, who, event, state, attempt, why)"
                   " VALUES(?, ?, ?, ?, ?, ?, ?)",
                   "iisssis", (int64_t)job, when_us, who ? who : "gemsd", event,
                   job_state_name(state), (int64_t)attempt, why ? why : "");
}

struct submit {
    const struct store_job *job;
    uint64_t id;
    bool is_new;
};

static int find_key(struct store *store, const struct store_job *job, uint64_t *ret_id,
                    struct gems_error *err)
{
    sqlite3_stmt *stmt = NULL;
    int status;

    if (!job->key[0]) {
        return 0;
    }
    status = sql_query(store->db, &stmt, err, "SELECT id FROM jobs WHERE user=? AND key=?", "ss",
                       job->user, job->key);
    if (status >= 0) {
        status = sql_row(stmt, err);
        if (status > 0) {
            *ret_id = (uint64_t)sql_int(stmt, 0);
        }
    }
    sql_done(stmt);
    return status;
}

static int submit_body(struct store *store, void *arg, struct gems_error *err)
{
    struct submit *submit = arg;
    const struct store_job *job = submit->job;
    int status = find_key(store, job, &submit->id, err);

    submit->is_new = status == 0;
    if (status != 0) {
        return status;
    }
    status = sql_run(
        store->db, err,
        "INSERT INTO jobs(name, user, key, state, attempt, restarts, ending, failure, reason,"
        " submitted_us, started_us, finished_us, used_ms, spec, status)"
        " VALUES(?, ?, ?, ?, ?, 0, '', '', ?, ?, 0, 0, 0, ?, ?)",
        "ssssisibb", job->name, job->user, job->key, job_state_name(job->core.state),
        (int64_t)job->core.attempt, job->core.reason, job->submitted_us, job->spec.data,
        job->spec.n, job->status.data, job->status.n);
    if (status < 0) {
        return status;
    }
    submit->id = (uint64_t)sqlite3_last_insert_rowid(store->db);
    return add_event(store, submit->id, job->submitted_us, job->user, "submit", job->core.state,
                     job->core.attempt, "", err);
}

int store_submit(struct store *store, const struct store_job *job, uint64_t *ret_id,
                 bool *ret_is_new, struct gems_error *err)
{
    struct submit submit = { .job = job };
    int status = store_transact(store, submit_body, &submit, err);

    if (status < 0) {
        return status;
    }
    *ret_id = submit.id;
    *ret_is_new = submit.is_new;
    return GEMS_OK;
}

static int add_attempt(struct store *store, uint64_t job, uint32_t number,
                       const struct store_attempt *attempt, struct gems_error *err)
{
    int status = sql_run(store->db, err,
                         "INSERT INTO attempts(job, attempt, plan, secret, token, restore_step)"
                         " VALUES(?, ?, ?, ?, ?, CASE WHEN ? THEN ? END)",
                         "iibbsii", (int64_t)job, (int64_t)number, attempt->plan.data,
                         attempt->plan.n, attempt->secret, sizeof attempt->secret, attempt->token,
                         (int64_t)attempt->has_restore, (int64_t)attempt->restore_step);

    for (uint32_t i = 0; status >= 0 && i < attempt->n_ranks; i++) {
        const struct store_rank *rank = &attempt->ranks[i];

        status =
            sql_run(store->db, err, "INSERT INTO ranks VALUES(?, ?, ?, ?, ?, ?, ?, ?)", "iiisssii",
                    (int64_t)job, (int64_t)number, (int64_t)i, rank->node, rank->device,
                    rank->backend, (int64_t)rank->threads, (int64_t)rank->memory_bytes);
    }
    return status;
}

static int move_body(struct store *store, void *arg, struct gems_error *err)
{
    const struct store_move *move = arg;
    const struct job_core *to = &move->to;
    int status =
        sql_run(store->db, err,
                "UPDATE jobs SET state=?, attempt=?, restarts=?, ending=?, failure=?, reason=?,"
                " started_us=?, finished_us=?, used_ms=? WHERE id=? AND state=? AND attempt=?",
                "siisssiiiisi", job_state_name(to->state), (int64_t)to->attempt,
                (int64_t)to->restarts, job_ending_name(to->ending), failure_name(to->failure),
                to->reason, move->started_us, move->finished_us, move->used_ms, (int64_t)move->job,
                job_state_name(move->from.state), (int64_t)move->from.attempt);

    if (status >= 0 && sqlite3_changes(store->db) != 1) {
        return gems_error_set(err, GEMS_E_STATE, "job %llu is not %s in attempt %u any more",
                              (unsigned long long)move->job, job_state_name(move->from.state),
                              move->from.attempt);
    }
    if (status >= 0 && move->status.n > 0) {
        status = sql_run(store->db, err, "UPDATE jobs SET status=? WHERE id=?", "bi",
                         move->status.data, move->status.n, (int64_t)move->job);
    }
    if (status >= 0 && move->spec.n > 0) {
        status = sql_run(store->db, err, "UPDATE jobs SET spec=? WHERE id=?", "bi", move->spec.data,
                         move->spec.n, (int64_t)move->job);
    }
    if (status >= 0 && move->attempt) {
        status = add_attempt(store, move->job, to->attempt, move->attempt, err);
    }
    if (status >= 0) {
        status = add_event(store, move->job, move->when_us, move->who, job_event_name(move->event),
                           to->state, to->attempt, move->why ? move->why : to->reason, err);
    }
    return status;
}

int store_move(struct store *store, const struct store_move *move, struct gems_error *err)
{
    return store_transact(store, move_body, (void *)(uintptr_t)move, err);
}

struct note {
    uint64_t job;
    uint32_t attempt;
    enum job_state state;
    const char *who, *event, *why;
    int64_t when_us;
};

static int note_body(struct store *store, void *arg, struct gems_error *err)
{
    const struct note *note = arg;

    return add_event(store, note->job, note->when_us, note->who, note->event, note->state,
                     note->attempt, note->why, err);
}

int store_note(struct store *store, uint64_t job, uint32_t attempt, enum job_state state,
               const char *who, const char *event, const char *why, int64_t when_us,
               struct gems_error *err)
{
    struct note note = { job, attempt, state, who, event, why, when_us };

    return store_transact(store, note_body, &note, err);
}

struct status_row {
    uint64_t job;
    const struct bytes *status;
};

static int status_body(struct store *store, void *arg, struct gems_error *err)
{
    const struct status_row *row = arg;

    return sql_run(store->db, err, "UPDATE jobs SET status=? WHERE id=?", "bi", row->status->data,
                   row->status->n, (int64_t)row->job);
}

int store_status(struct store *store, uint64_t job, const struct bytes *status,
                 struct gems_error *err)
{
    struct status_row row = { job, status };

    return store_transact(store, status_body, &row, err);
}

static int checkpoint_body(struct store *store, void *arg, struct gems_error *err)
{
    const struct store_checkpoint *row = arg;

    return sql_run(store->db, err,
                   "INSERT OR REPLACE INTO checkpoints VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                   "iiiiiiiissd", (int64_t)row->job, (int64_t)row->step, (int64_t)row->epoch,
                   (int64_t)row->samples, (int64_t)row->bytes, row->when_us, (int64_t)row->attempt,
                   (int64_t)row->is_final, trust_names[row->trust], row->weights_hash,
                   row->eval_accuracy);
}

int store_checkpoint_put(struct store *store, const struct store_checkpoint *row,
                         struct gems_error *err)
{
    return store_transact(store, checkpoint_body, (void *)(uintptr_t)row, err);
}

static int trust_body(struct store *store, void *arg, struct gems_error *err)
{
    const struct store_checkpoint *row = arg;

    return sql_run(store->db, err, "UPDATE checkpoints SET trust=? WHERE job=? AND step=?", "sii",
                   trust_names[row->trust], (int64_t)row->job, (int64_t)row->step);
}

int store_checkpoint_trust(struct store *store, uint64_t job, uint64_t step,
                           enum checkpoint_trust trust, struct gems_error *err)
{
    struct store_checkpoint row = { .job = job, .step = step, .trust = trust };

    return store_transact(store, trust_body, &row, err);
}

static int eval_body(struct store *store, void *arg, struct gems_error *err)
{
    const struct store_checkpoint *row = arg;

    return sql_run(store->db, err, "UPDATE checkpoints SET eval_accuracy=? WHERE job=? AND step=?",
                   "dii", row->eval_accuracy, (int64_t)row->job, (int64_t)row->step);
}

int store_checkpoint_eval(struct store *store, uint64_t job, uint64_t step, double accuracy,
                          struct gems_error *err)
{
    struct store_checkpoint row = { .job = job, .step = step, .eval_accuracy = accuracy };

    return store_transact(store, eval_body, &row, err);
}

static int remove_body(struct store *store, void *arg, struct gems_error *err)
{
    const struct store_checkpoint *row = arg;

    return sql_run(store->db, err, "DELETE FROM checkpoints WHERE job=? AND step=?", "ii",
                   (int64_t)row->job, (int64_t)row->step);
}

int store_checkpoint_remove(struct store *store, uint64_t job, uint64_t step,
                            struct gems_error *err)
{
    struct store_checkpoint row = { .job = job, .step = step };

    return store_transact(store, remove_body, &row, err);
}

static int node_body(struct store *store, void *arg, struct gems_error *err)
{
    const struct store_node *node = arg;

    return sql_run(store->db, err, "INSERT OR REPLACE INTO nodes VALUES(?, ?, ?)", "sis",
                   node->name, (int64_t)node->is_drained, node->reason);
}

int store_node_put(struct store *store, const struct store_node *node, struct gems_error *err)
{
    return store_transact(store, node_body, (void *)(uintptr_t)node, err);
}
