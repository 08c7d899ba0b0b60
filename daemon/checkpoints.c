#include "daemon/checkpoints.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bg.h"
#include "common/error.h"
#include "common/log.h"
#include "daemon/checkpoint_file.h"
#include "daemon/flow.h"
#include "daemon/retention.h"

void checkpoints_dir(const struct daemon *daemon, uint64_t job, char *ret_path, size_t n)
{
    daemon_path(daemon, ret_path, n, "checkpoints/%llu", (unsigned long long)job);
}

/* ---- the catalogue in memory and on disk ---- */

/* One change of the catalogue, in the store thread. */
struct entry {
    struct daemon *daemon;
    struct store_checkpoint row;
    char path[1024];
    enum entry_change { ENTRY_TRUST, ENTRY_EVAL, ENTRY_DROP } change;
    struct gems_error err;
    int result;
};

static void entry_work(void *arg)
{
    struct entry *entry = arg;
    const struct store_checkpoint *row = &entry->row;
    struct store *store = entry->daemon->store;

    if (entry->change == ENTRY_TRUST) {
        entry->result = store_checkpoint_trust(store, row->job, row->step, row->trust, &entry->err);
    } else if (entry->change == ENTRY_EVAL) {
        entry->result =
            store_checkpoint_eval(store, row->job, row->step, row->eval_accuracy, &entry->err);
    } else {
        entry->result = store_checkpoint_remove(store, row->job, row->step, &entry->err);
        if (entry->result >= 0) {
            unlink(entry->path); /* a file without a row is removed at the next start */
        }
    }
}

static void entry_done(void *arg, bool is_run)
{
    struct entry *entry = arg;

    if (is_run && entry->result < 0) {
        log_warning("job %llu checkpoint %llu: %s", (unsigned long long)entry->row.job,
                    (unsigned long long)entry->row.step, entry->err.text);
    }
    free(entry);
}

static void change_entry(struct daemon *daemon, const struct store_checkpoint *row,
                         enum entry_change change)
{
    struct entry *entry = calloc(1, sizeof *entry);
    char dir[900];

    if (!entry) {
        return;
    }
    entry->daemon = daemon;
    entry->row = *row;
    entry->change = change;
    checkpoints_dir(daemon, row->job, dir, sizeof dir);
    checkpoint_path(dir, row->step, entry->path, sizeof entry->path);
    if (bg_submit(daemon->store_bg, entry_work, entry_done, entry, &entry->err) < 0) {
        entry->result = entry->err.status;
        entry_done(entry, true);
    }
}

struct store_checkpoint *checkpoints_row(struct job *job, uint64_t step)
{
    for (size_t i = 0; i < job->n_checkpoints; i++) {
        if (job->checkpoints[i].step == step) {
            return &job->checkpoints[i];
        }
    }
    return NULL;
}

static void drop_old(struct daemon *daemon, struct job *job)
{
    size_t n = job->n_checkpoints, k = 0;
    bool *drop = calloc(n + 1, sizeof *drop);

    if (!drop) {
        return;
    }
    retention_pick(job->checkpoints, n, job->spec.checkpoint_keep, job->spec.checkpoint_keep_best,
                   drop);
    for (size_t i = 0; i < n; i++) {
        if (drop[i]) {
            change_entry(daemon, &job->checkpoints[i], ENTRY_DROP);
        } else {
            job->checkpoints[k++] = job->checkpoints[i];
        }
    }
    job->n_checkpoints = k;
    free(drop);
}

/* Newest first; a step that is there already is replaced. */
static int insert_row(struct job *job, const struct store_checkpoint *row)
{
    struct store_checkpoint *old = checkpoints_row(job, row->step), *grown;
    size_t i = 0;

    if (old) {
        *old = *row;
        return GEMS_OK;
    }
    grown = realloc(job->checkpoints, (job->n_checkpoints + 1) * sizeof *grown);
    if (!grown) {
        return GEMS_E_NOMEM;
    }
    job->checkpoints = grown;
    while (i < job->n_checkpoints && grown[i].step > row->step) {
        i++;
    }
    memmove(&grown[i + 1], &grown[i], (job->n_checkpoints - i) * sizeof *grown);
    grown[i] = *row;
    job->n_checkpoints++;
    return GEMS_OK;
}

void checkpoints_evaluated(struct daemon *daemon, struct job *job, uint64_t step, double accuracy)
{
    struct store_checkpoint *row = checkpoints_row(job, step);

    if (row) {
        row->eval_accuracy = accuracy;
        change_entry(daemon, row, ENTRY_EVAL);
    }
}

/* ---- verification ---- */

struct verify {
    struct daemon *daemon;
    uint64_t job, serial;
    size_t n;
    uint64_t *steps; /* owned, newest first */
    char **damage;   /* owned texts; NULL: whole */
    size_t n_looked; /* ends at the first whole one when picking */
    bool is_picking;
    checkpoints_pick_fn *done;
};

static void verify_free(struct verify *verify)
{
    for (size_t i = 0; verify->damage && i < verify->n; i++) {
        free(verify->damage[i]);
    }
    free(verify->damage);
    free(verify->steps);
    free(verify);
}

static void verify_work(void *arg)
{
    struct verify *verify = arg;
    char dir[900], path[1024];
    struct gems_error err;

    checkpoints_dir(verify->daemon, verify->job, dir, sizeof dir);
    for (size_t i = 0; i < verify->n; i++) {
        checkpoint_path(dir, verify->steps[i], path, sizeof path);
        verify->n_looked = i + 1;
        if (checkpoint_verify(path, &err) < 0) {
            verify->damage[i] = strdup(err.text);
        } else if (verify->is_picking) {
            return;
        }
    }
}

void checkpoints_verdict(struct daemon *daemon, struct job *job, uint64_t step, const char *damage)
{
    struct store_checkpoint *row = checkpoints_row(job, step);
    enum checkpoint_trust trust = damage ? CHECKPOINT_DAMAGED : CHECKPOINT_VERIFIED;

    if (!row || row->trust == trust) {
        return;
    }
    row->trust = trust;
    change_entry(daemon, row, ENTRY_TRUST);
    jobs_changed(job);
    if (damage) {
        log_error("job %llu: checkpoint of step %llu is not used: %s", (unsigned long long)job->id,
                  (unsigned long long)step, damage);
        flow_note(daemon, job, "gemsd", "damaged", "checkpoint of step %llu is not used: %s",
                  (unsigned long long)step, damage);
    }
}

static void verify_done(void *arg, bool is_run)
{
    struct verify *verify = arg;
    struct daemon *daemon = verify->daemon;
    struct job *job = is_run ? jobs_find(daemon, verify->job) : NULL;

    if (job) {
        bool has_step = false;
        uint64_t step = 0;

        for (size_t i = 0; i < verify->n_looked; i++) {
            checkpoints_verdict(daemon, job, verify->steps[i], verify->damage[i]);
            if (!verify->damage[i] && !has_step) {
                has_step = true;
                step = verify->steps[i];
            }
        }
        if (verify->done) {
            verify->done(daemon, job->id, verify->serial, has_step, step);
        }
    }
    verify_free(verify);
}

static struct verify *verify_create(struct daemon *daemon, const struct job *job, size_t n)
{
    struct verify *verify = calloc(1, sizeof *verify);

    if (verify) {
        verify->daemon = daemon;
        verify->job = job->id;
        verify->n = n;
        verify->steps = calloc(n + 1, sizeof *verify->steps);
        verify->damage = calloc(n + 1, sizeof *verify->damage);
    }
    if (verify && (!verify->steps || !verify->damage)) {
        verify_free(verify);
        verify = NULL;
    }
    return verify;
}

static void verify_later(struct daemon *daemon, struct job *job, const struct store_checkpoint *row)
{
    struct verify *verify = verify_create(daemon, job, 1);
    struct gems_error err;

    if (!verify) {
        return;
    }
    verify->steps[0] = row->step;
    if (bg_submit(daemon->read_bg, verify_work, verify_done, verify, &err) < 0) {
        verify_free(verify);
    }
}

void checkpoints_add(struct daemon *daemon, struct job *job, const struct store_checkpoint *row)
{
    if (insert_row(job, row) < 0) {
        log_warning("job %llu: no memory for the catalogue", (unsigned long long)job->id);
    }
    verify_later(daemon, job, row);
    drop_old(daemon, job);
}

int checkpoints_pick(struct daemon *daemon, struct job *job, uint64_t serial,
                     checkpoints_pick_fn *done, struct gems_error *err)
{
    struct verify *verify = verify_create(daemon, job, job->n_checkpoints);
    int status;

    if (!verify) {
        return gems_error_set(err, GEMS_E_NOMEM, "checkpoints: no memory");
    }
    verify->is_picking = true;
    verify->serial = serial;
    verify->done = done;
    verify->n = 0;
    for (size_t i = 0; i < job->n_checkpoints; i++) {
        if (job->checkpoints[i].trust != CHECKPOINT_DAMAGED) {
            verify->steps[verify->n++] = job->checkpoints[i].step;
        }
    }
    status = bg_submit(daemon->read_bg, verify_work, verify_done, verify, err);
    if (status < 0) {
        verify_free(verify);
    }
    return status;
}

/* ---- start ---- */

/* What has no row was never promised to anybody. */
static void remove_unknown(struct job *job, const char *dir)
{
    DIR *handle = opendir(dir);
    struct dirent *item;

    while (handle && (item = readdir(handle))) {
        char *end;
        uint64_t step = strtoull(item->d_name, &end, 10);
        bool is_known = end != item->d_name && !strcmp(end, ".ckpt") && checkpoints_row(job, step);

        if (!is_known && strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0) {
            unlinkat(dirfd(handle), item->d_name, 0);
        }
    }
    if (handle) {
        closedir(handle);
    }
}

int checkpoints_load(struct daemon *daemon, struct job *job, struct gems_error *err)
{
    char dir[900];
    int status =
        store_checkpoints(daemon->store, job->id, &job->checkpoints, &job->n_checkpoints, err);

    if (status >= 0) {
        checkpoints_dir(daemon, job->id, dir, sizeof dir);
        remove_unknown(job, dir);
    }
    return status;
}
