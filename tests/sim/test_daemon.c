/* The way of a job through gemsd, undisturbed and disturbed in every way that
 * SERVICE promises to survive. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "tests/sim/sim.h"

static struct sim sim;

static void setup(void)
{
    sim_init(&sim);
}

static void teardown(void)
{
    sim_fini(&sim);
}

static void start_all(void)
{
    sim_start(&sim);
    sim_agent_start(&sim, 0);
    sim_turn(&sim, 50);
}

/* Ends the job well; its weights_hash and attempt. */
static void expect_success(uint64_t job, char ret_hash[64], uint32_t *ret_attempt)
{
    Gems__StatusReply *status;

    sim_wait_state(&sim, job, "SUCCEEDED");
    status = sim_status(&sim, job);
    ck_assert_uint_eq(strlen(status->job->weights_hash), 32);
    snprintf(ret_hash, 64, "%s", status->job->weights_hash);
    *ret_attempt = status->job->attempt;
    msg_free(&status->base);
}

/* Hash of an undisturbed run of that many steps. */
static void undisturbed(uint32_t steps, char ret_hash[64])
{
    uint32_t attempt;
    uint64_t job = sim_submit(&sim, steps, "");

    ck_assert_msg(job > 0, "%s", sim_error.text);
    expect_success(job, ret_hash, &attempt);
    ck_assert_uint_eq(attempt, 1);
}

static bool has_no_rank(struct sim *s, void *arg)
{
    (void)arg;
    return list_is_empty(&s->ranks);
}

START_TEST(a_job_runs_to_its_end)
{
    Gems__StatusReply *status;
    Gems__FetchRequest fetch = GEMS__FETCH_REQUEST__INIT;
    char hash[64];
    uint32_t attempt;
    uint64_t job;
    int result;

    start_all();
    job = sim_submit(&sim, 25, "k");
    ck_assert_msg(job == 1, "%s", sim_error.text);
    ck_assert_uint_eq(sim_submit(&sim, 25, "k"), 1);
    expect_success(job, hash, &attempt);
    ck_assert_uint_eq(attempt, 1);
    sim_wait(&sim, has_no_rank, NULL, "ranks end");
    status = sim_status(&sim, job);
    ck_assert_uint_eq(status->job->step, 25);
    ck_assert_uint_eq(status->job->steps_total, 25);
    ck_assert_uint_eq(status->job->samples, 400);
    ck_assert(status->job->loss == 0.25);
    ck_assert(status->job->accuracy == 0.5);
    ck_assert(status->job->samples_per_second > 15999 && status->job->samples_per_second < 16001);
    ck_assert_str_eq(status->job->schedule, "layer");
    ck_assert_uint_eq(status->n_ranks, 2);
    ck_assert_str_eq(status->ranks[1]->node, "node0");
    ck_assert_uint_eq(status->ranks[0]->allocated_bytes, 4096);
    ck_assert_uint_gt(status->ranks[0]->predicted_bytes, 0);
    ck_assert_uint_eq(status->n_checkpoints, 3);
    ck_assert_uint_eq(status->checkpoints[0]->step, 25);
    ck_assert_str_eq(status->checkpoints[0]->weights_hash, hash);
    msg_free(&status->base);
    ck_assert(sim_has_event(&sim, job, "submit", ""));
    ck_assert(sim_has_event(&sim, job, "placed", "2 ranks"));
    ck_assert(sim_has_event(&sim, job, "start", "2 ranks joined"));
    ck_assert(sim_has_event(&sim, job, "finish", ""));
    fetch.job = job;
    ck_assert_uint_eq(sim_stream(&sim, MSG_FETCH, &fetch.base, &result), 6 * 32 * sizeof(float));
    ck_assert_int_eq(result, GEMS_OK);
    ck_assert_int_eq(sim_verb(&sim, MSG_CANCEL, job), GEMS_E_STATE);
    ck_assert_int_eq(sim_verb(&sim, MSG_STATUS, 77), GEMS_E_NOTFOUND);
}
END_TEST

START_TEST(devices_are_free_again_and_jobs_queue)
{
    Gems__StatusReply *status;
    char hash[64], other[64];
    uint32_t attempt;
    uint64_t first, second;

    start_all();
    first = sim_submit(&sim, 300, "");
    second = sim_submit(&sim, 300, "");
    sim_wait_step(&sim, first, 3);
    sim_turn(&sim, 300);
    status = sim_status(&sim, second);
    ck_assert_str_eq(status->job->state, "QUEUED");
    ck_assert_ptr_nonnull(strstr(status->job->reason, "waits for 2 devices, 0 of 2 are free"));
    msg_free(&status->base);
    expect_success(first, hash, &attempt);
    expect_success(second, other, &attempt);
    ck_assert_str_eq(hash, other);
}
END_TEST

START_TEST(gemsd_restarts_and_adopts_the_ranks)
{
    char hash[64], expected[64];
    uint32_t attempt;
    uint64_t job;

    start_all();
    undisturbed(60, expected);
    job = sim_submit(&sim, 60, "");
    sim_wait_step(&sim, job, 15);
    sim_kill(&sim);
    sim_turn(&sim, 30);
    sim_start(&sim);
    expect_success(job, hash, &attempt);
    ck_assert_uint_eq(attempt, 1);
    ck_assert_str_eq(hash, expected);
}
END_TEST

START_TEST(ranks_finish_while_gemsd_is_away)
{
    char hash[64];
    uint32_t attempt;
    uint64_t job;

    start_all();
    job = sim_submit(&sim, 30, "");
    sim_wait_step(&sim, job, 3);
    sim_kill(&sim);
    sim_turn(&sim, 300);
    ck_assert_uint_eq(sim_find_rank(&sim, 0)->step, 30);
    sim_start(&sim);
    expect_success(job, hash, &attempt);
    ck_assert_uint_eq(attempt, 1);
}
END_TEST

/* Steps are quicker than a disk may be: waits until n checkpoints are durable. */
static void wait_checkpoints(uint64_t job, size_t n)
{
    for (int i = 0; i < 2000; i++) {
        Gems__StatusReply *status = sim_status(&sim, job);
        size_t n_durable = status->n_checkpoints;

        msg_free(&status->base);
        if (n_durable >= n) {
            return;
        }
        sim_turn(&sim, 5);
    }
    ck_abort_msg("job %d does not write %d checkpoints", (int)job, (int)n);
}

START_TEST(a_killed_rank_costs_an_attempt_and_no_bit)
{
    char hash[64], expected[64];
    uint32_t attempt;
    uint64_t job;

    start_all();
    undisturbed(60, expected);
    job = sim_submit(&sim, 60, "");
    wait_checkpoints(job, 1);
    sim_rank_kill(sim_find_rank(&sim, 1), SIGKILL);
    expect_success(job, hash, &attempt);
    ck_assert_uint_eq(attempt, 2);
    ck_assert_str_eq(hash, expected);
    ck_assert_uint_ge(sim.restored_step, 10);
    ck_assert(sim_has_event(&sim, job, "fail", "rank 1 on node0/cpu:1: was killed by signal 9"));
    ck_assert(sim_has_event(&sim, job, "gone", "restart 1 of 3"));
}
END_TEST

START_TEST(a_killed_agent_comes_back)
{
    char hash[64];
    uint32_t attempt;
    uint64_t job;

    start_all();
    job = sim_submit(&sim, 60, "");
    sim_wait_step(&sim, job, 15);
    sim_agent_kill(&sim, 0);
    sim_turn(&sim, 50);
    sim_agent_start(&sim, 0);
    expect_success(job, hash, &attempt);
    ck_assert_uint_eq(attempt, 2);
    ck_assert(sim_has_event(&sim, job, "fail", "its agent was restarted"));
}
END_TEST

START_TEST(a_lost_node_is_named_and_another_one_takes_over)
{
    char hash[64];
    uint32_t attempt;
    uint64_t job;

    start_all();
    job = sim_submit(&sim, 60, "");
    sim_wait_step(&sim, job, 15);
    sim_agent_start(&sim, 1);
    sim_agent_kill(&sim, 0);
    expect_success(job, hash, &attempt);
    ck_assert_uint_eq(attempt, 2);
    ck_assert(sim_has_event(&sim, job, "fail", "node node0 is lost"));
    ck_assert_int_eq(sim.agents[1].n_launched, 2);
}
END_TEST

START_TEST(everything_dies_at_once)
{
    char hash[64], expected[64];
    uint32_t attempt;
    uint64_t job;

    start_all();
    undisturbed(60, expected);
    job = sim_submit(&sim, 60, "");
    sim_wait_step(&sim, job, 25);
    sim_kill(&sim);
    sim_agent_kill(&sim, 0);
    sim_start(&sim);
    sim_agent_start(&sim, 0);
    expect_success(job, hash, &attempt);
    ck_assert_uint_eq(attempt, 2);
    ck_assert_str_eq(hash, expected);
}
END_TEST

START_TEST(a_hang_is_found_and_the_rank_is_named)
{
    char hash[64];
    uint32_t attempt;
    uint64_t job;

    start_all();
    sim.hang_rank = 1;
    sim.hang_step = 15;
    job = sim_submit(&sim, 40, "");
    sim_wait_step(&sim, job, 15);
    while (!sim_has_event(&sim, job, "fail", "rank 1 on node0/cpu:1: no progress")) {
        sim_turn(&sim, 50);
    }
    sim.hang_rank = -1;
    expect_success(job, hash, &attempt);
    ck_assert_uint_ge(attempt, 2);
}
END_TEST

START_TEST(a_nan_is_final_and_says_so)
{
    Gems__StatusReply *status;
    uint64_t job;

    start_all();
    sim.nan_rank = 0;
    sim.hang_step = 12;
    job = sim_submit(&sim, 40, "");
    sim_wait_state(&sim, job, "FAILED");
    status = sim_status(&sim, job);
    ck_assert_str_eq(status->job->failure_class, "nan");
    ck_assert_str_eq(status->job->advice, "lower the learning rate or add warm-up");
    ck_assert_ptr_nonnull(
        strstr(status->job->reason, "rank 0 on node0/cpu:0: loss is not a number"));
    ck_assert_uint_eq(status->job->attempt, 1);
    msg_free(&status->base);
    sim_wait(&sim, has_no_rank, NULL, "ranks are killed");
}
END_TEST

START_TEST(pause_leaves_a_checkpoint_and_resume_goes_on)
{
    char hash[64], expected[64];
    Gems__StatusReply *status;
    uint32_t attempt;
    uint64_t job, step;

    start_all();
    undisturbed(60, expected);
    job = sim_submit(&sim, 60, "");
    sim_wait_step(&sim, job, 13);
    ck_assert_int_eq(sim_verb(&sim, MSG_PAUSE, job), GEMS_OK);
    sim_wait_state(&sim, job, "PAUSED");
    ck_assert(list_is_empty(&sim.ranks));
    status = sim_status(&sim, job);
    ck_assert_uint_eq(status->n_ranks, 2);
    step = status->checkpoints[0]->step;
    ck_assert_uint_gt(step, 13);
    msg_free(&status->base);
    ck_assert_int_eq(sim_verb(&sim, MSG_PAUSE, job), GEMS_E_STATE);
    ck_assert_int_eq(sim_verb(&sim, MSG_RESUME, job), GEMS_OK);
    expect_success(job, hash, &attempt);
    ck_assert_uint_eq(attempt, 2);
    ck_assert_uint_eq(sim.restored_step, step);
    ck_assert_str_eq(hash, expected);
}
END_TEST

START_TEST(cancel_ends_a_job_in_every_state)
{
    uint64_t job;

    sim_start(&sim);
    job = sim_submit(&sim, 60, "");
    ck_assert_int_eq(sim_verb(&sim, MSG_CANCEL, job), GEMS_OK);
    sim_wait_state(&sim, job, "CANCELLED");
    sim_agent_start(&sim, 0);
    job = sim_submit(&sim, 6000, "");
    for (int ms = 0; ms < 400; ms += 40) {
        sim_turn(&sim, ms);
        ck_assert_int_eq(sim_verb(&sim, MSG_CANCEL, job), GEMS_OK);
        sim_wait_state(&sim, job, "CANCELLED");
        sim_wait(&sim, has_no_rank, NULL, "ranks are gone");
        job = sim_submit(&sim, 6000, "");
    }
    sim_wait_step(&sim, job, 3);
    ck_assert_int_eq(sim_verb(&sim, MSG_PAUSE, job), GEMS_OK);
    ck_assert_int_eq(sim_verb(&sim, MSG_CANCEL, job), GEMS_OK);
    sim_wait_state(&sim, job, "CANCELLED");
}
END_TEST

static uint32_t held_devices(void)
{
    Gems__Ok request = GEMS__OK__INIT;
    enum msg_type type;
    ProtobufCMessage *reply = sim_ask(&sim, MSG_NODES, &request.base, &type);
    const Gems__NodesReply *nodes = (const Gems__NodesReply *)reply;
    uint32_t n = 0;

    ck_assert_int_eq(type, MSG_NODES_REPLY);
    for (size_t i = 0; i < nodes->n_nodes; i++) {
        for (size_t k = 0; k < nodes->nodes[i]->n_devices; k++) {
            n += nodes->nodes[i]->devices[k]->job != 0;
        }
    }
    msg_free(reply);
    return n;
}

/* Also while it is placed: then it holds devices and has no ranks that give them back. */
START_TEST(a_paused_job_holds_no_device)
{
    uint64_t job;

    start_all();
    job = sim_submit(&sim, 6000, "");
    for (int turns = 0; turns < 25; turns++) {
        for (int i = 0; i < turns; i++) {
            sim_step(&sim);
        }
        while (sim_verb(&sim, MSG_PAUSE, job) == GEMS_E_STATE) { /* resume is not durable yet */
            sim_step(&sim);
        }
        sim_wait_state(&sim, job, "PAUSED");
        ck_assert_uint_eq(held_devices(), 0);
        ck_assert_int_eq(sim_verb(&sim, MSG_RESUME, job), GEMS_OK);
    }
    ck_assert_int_eq(sim_verb(&sim, MSG_CANCEL, job), GEMS_OK);
    sim_wait(&sim, has_no_rank, NULL, "ranks are gone");
    ck_assert_uint_eq(held_devices(), 0);
}
END_TEST

START_TEST(a_job_that_can_never_fit_is_refused)
{
    sim.memory_bytes = 4096;
    start_all();
    ck_assert_uint_eq(sim_submit(&sim, 10, ""), 0);
    ck_assert_int_eq(sim_error.status, GEMS_E_NOFIT);
}
END_TEST

START_TEST(missing_data_fails_the_job_with_its_class)
{
    Gems__StatusReply *status;
    uint64_t job;

    start_all();
    sim.inspect_status = GEMS_E_DATA;
    job = sim_submit(&sim, 10, "");
    ck_assert_uint_gt(job, 0);
    sim_wait_state(&sim, job, "FAILED");
    status = sim_status(&sim, job);
    ck_assert_str_eq(status->job->failure_class, "data");
    ck_assert_str_eq(status->job->reason, "train: no such folder");
    msg_free(&status->base);
}
END_TEST

START_TEST(a_rank_of_an_older_attempt_is_refused)
{
    uint64_t job;
    struct sim_rank *rank;

    start_all();
    job = sim_submit(&sim, 6000, "");
    sim_wait_step(&sim, job, 3);
    /* gemsd forgets the attempt while a rank is cut off from it. */
    rank = sim_find_rank(&sim, 0);
    rank->ref.attempt = 7;
    rpc_destroy(rank->conn);
    rank->conn = NULL;
    sim_turn(&sim, 200);
    ck_assert_int_eq(sim.n_refused_joins, 1);
}
END_TEST

START_TEST(drain_moves_the_job_away)
{
    Gems__DrainRequest drain = GEMS__DRAIN_REQUEST__INIT;
    ProtobufCMessage *reply;
    enum msg_type type;
    char hash[64];
    uint32_t attempt;
    uint64_t job;

    start_all();
    job = sim_submit(&sim, 900, "");
    sim_wait_step(&sim, job, 13);
    sim_agent_start(&sim, 1);
    sim_turn(&sim, 50);
    drain.node = (char *)"node0";
    drain.reason = (char *)"new disk";
    drain.deadline_s = 1;
    reply = sim_ask(&sim, MSG_DRAIN, &drain.base, &type);
    ck_assert_int_eq(type, MSG_OK);
    msg_free(reply);
    while (sim.agents[1].n_launched < 2) {
        sim_turn(&sim, 20);
    }
    ck_assert(sim_has_event(&sim, job, "move", "node node0 is drained: new disk"));
    expect_success(job, hash, &attempt);
    ck_assert_uint_eq(attempt, 2);
    drain.node = (char *)"nowhere";
    reply = sim_ask(&sim, MSG_DRAIN, &drain.base, &type);
    ck_assert_int_eq(sim_error.status, GEMS_E_NOTFOUND);
    msg_free(reply);
}
END_TEST

static void damage(uint64_t job, uint64_t step)
{
    char path[400];
    struct stat st;
    int fd;

    snprintf(path, sizeof path, "%s/checkpoints/%d/%012d.ckpt", sim.state, (int)job, (int)step);
    ck_assert_msg(stat(path, &st) == 0, "%s is missing", path);
    fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, "damaged damaged damaged", 23, st.st_size - 300), 23);
    close(fd);
}

START_TEST(a_damaged_checkpoint_is_named_and_the_one_before_used)
{
    Gems__StatusReply *status;
    char hash[64], expected[64];
    uint32_t attempt;
    uint64_t job, newest, before;

    start_all();
    undisturbed(60, expected);
    job = sim_submit(&sim, 60, "");
    wait_checkpoints(job, 1);
    ck_assert_int_eq(sim_verb(&sim, MSG_PAUSE, job), GEMS_OK);
    sim_wait_state(&sim, job, "PAUSED");
    wait_checkpoints(job, 2);
    sim_turn(&sim, 100);
    status = sim_status(&sim, job);
    ck_assert_uint_ge(status->n_checkpoints, 2);
    newest = status->checkpoints[0]->step;
    before = status->checkpoints[1]->step;
    ck_assert(status->checkpoints[0]->verified);
    msg_free(&status->base);
    damage(job, newest);
    ck_assert_int_eq(sim_verb(&sim, MSG_RESUME, job), GEMS_OK);
    expect_success(job, hash, &attempt);
    ck_assert_uint_eq(sim.restored_step, before);
    ck_assert_str_eq(hash, expected);
    ck_assert(sim_has_event(&sim, job, "damaged", "is not used"));
}
END_TEST

START_TEST(retention_keeps_the_newest)
{
    Gems__StatusReply *status;
    char hash[64], path[400];
    uint32_t attempt;
    uint64_t job;
    DIR *handle;
    int n = 0;

    start_all();
    job = sim_submit(&sim, 95, "");
    expect_success(job, hash, &attempt);
    sim_turn(&sim, 200);
    status = sim_status(&sim, job);
    ck_assert_uint_eq(status->n_checkpoints, 3);
    ck_assert_uint_eq(status->checkpoints[0]->step, 95);
    msg_free(&status->base);
    snprintf(path, sizeof path, "%s/checkpoints/%d", sim.state, (int)job);
    handle = opendir(path);
    ck_assert_ptr_nonnull(handle);
    while (readdir(handle)) {
        n++;
    }
    closedir(handle);
    ck_assert_int_eq(n, 3 + 2);
}
END_TEST

START_TEST(a_full_disk_pauses_and_resume_goes_on)
{
    char hash[64], expected[64];
    Gems__StatusReply *status;
    uint32_t attempt;
    uint64_t job;

    ck_assert_int_eq(mkdir(sim.state, 0700), 0);
    if (geteuid() != 0 || mount("tmpfs", sim.state, "tmpfs", 0, "size=16m") != 0) {
        fprintf(stderr, "skipped: a full disk needs the right to mount\n");
        return;
    }
    start_all();
    undisturbed(60, expected);
    job = sim_submit(&sim, 60, "");
    sim_wait_step(&sim, job, 2);
    sim.daemon->settings->reserve_bytes = 15 << 20;
    sim_wait_state(&sim, job, "PAUSED");
    status = sim_status(&sim, job);
    ck_assert_str_eq(status->job->failure_class, "disk-full");
    msg_free(&status->base);
    sim.daemon->settings->reserve_bytes = 0;
    ck_assert_int_eq(sim_verb(&sim, MSG_RESUME, job), GEMS_OK);
    expect_success(job, hash, &attempt);
    ck_assert_str_eq(hash, expected);
    sim_kill(&sim);
    umount2(sim.state, MNT_DETACH);
}
END_TEST

START_TEST(a_full_database_disk_loses_nothing)
{
    char hash[64], filler[400];
    uint32_t attempt;
    uint64_t job;
    uint8_t block[4096] = { 1 };
    int fd;

    ck_assert_int_eq(mkdir(sim.state, 0700), 0);
    if (geteuid() != 0 || mount("tmpfs", sim.state, "tmpfs", 0, "size=2m") != 0) {
        fprintf(stderr, "skipped: a full disk needs the right to mount\n");
        return;
    }
    sim.settings.ballast_bytes = 0;
    start_all();
    job = sim_submit(&sim, 9, "");
    snprintf(filler, sizeof filler, "%s/filler", sim.state);
    fd = open(filler, O_WRONLY | O_CREAT, 0600);
    while (write(fd, block, sizeof block) == (ssize_t)sizeof block) {
    }
    close(fd);
    ck_assert_uint_eq(sim_submit(&sim, 9, ""), 0);
    ck_assert_int_eq(sim_error.status, GEMS_E_DISKFULL);
    sim_turn(&sim, 300);
    unlink(filler);
    for (int i = 0; i < 2; i++) {
        sim_turn(&sim, 1500);
        sim_verb(&sim, MSG_RESUME, job); /* if its checkpoint met the full disk */
    }
    expect_success(job, hash, &attempt);
    sim_kill(&sim);
    umount2(sim.state, MNT_DETACH);
}
END_TEST

START_TEST(logs_are_kept_and_read_back)
{
    Gems__LogsRequest request = GEMS__LOGS_REQUEST__INIT;
    Gems__RankLog log = GEMS__RANK_LOG__INIT;
    Gems__RankRef ref = GEMS__RANK_REF__INIT;
    uint64_t job;
    int result;

    start_all();
    job = sim_submit(&sim, 6000, "");
    sim_wait_step(&sim, job, 3);
    ref.job = job;
    ref.attempt = 1;
    log.ref = &ref;
    log.data.data = (uint8_t *)"one\ntwo\nthree\n";
    log.data.len = 14;
    msg_send(sim.agents[0].conn, MSG_RANK_LOG, 0, 0, &log.base);
    msg_send(sim.agents[0].conn, MSG_RANK_LOG, 0, 0, &log.base); /* again: same place */
    ref.rank = 1;
    log.data.len = 4;
    msg_send(sim.agents[0].conn, MSG_RANK_LOG, 0, 0, &log.base);
    sim_turn(&sim, 100);
    request.job = job;
    ck_assert_uint_eq(sim_stream(&sim, MSG_LOGS, &request.base, &result), 18);
    request.tail = 1;
    ck_assert_uint_eq(sim_stream(&sim, MSG_LOGS, &request.base, &result), 6 + 4);
    request.has_rank = true;
    request.rank = 0;
    request.tail = 2;
    ck_assert_uint_eq(sim_stream(&sim, MSG_LOGS, &request.base, &result), 10);
    request.job = 99;
    sim_stream(&sim, MSG_LOGS, &request.base, &result);
    ck_assert_int_eq(result, GEMS_E_NOTFOUND);
}
END_TEST

/* gemsd ends at the n-th turn of the loop, for many n over the whole life of a
 * job, and again a little later: the job must end as if nothing had been. */
START_TEST(gemsd_may_end_at_any_moment)
{
    char hash[64], expected[64];
    uint32_t attempt;
    uint64_t job;

    sim.step_ms = 1;
    start_all();
    undisturbed(25, expected);
    job = sim_submit(&sim, 25, "");
    for (int i = 0; i < 3; i++) {
        int64_t from_us = clock_monotonic_us(&clock_system);

        for (int turns = 0;
             turns < _i * 5 + 1 && clock_monotonic_us(&clock_system) - from_us < 400000; turns++) {
            sim_step(&sim);
        }
        sim_kill(&sim);
        sim_start(&sim);
        sim_turn(&sim, 5);
    }
    expect_success(job, hash, &attempt);
    ck_assert_str_eq(hash, expected);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon");
    TCase *way = tcase_create("way"), *cancel = tcase_create("cancel"),
          *sweep = tcase_create("sweep");
    SRunner *runner;
    int n_failed;

    tcase_add_checked_fixture(way, setup, teardown);
    tcase_set_timeout(way, 60);
    tcase_add_test(way, a_job_runs_to_its_end);
    tcase_add_test(way, devices_are_free_again_and_jobs_queue);
    tcase_add_test(way, gemsd_restarts_and_adopts_the_ranks);
    tcase_add_test(way, ranks_finish_while_gemsd_is_away);
    tcase_add_test(way, a_killed_rank_costs_an_attempt_and_no_bit);
    tcase_add_test(way, a_killed_agent_comes_back);
    tcase_add_test(way, a_lost_node_is_named_and_another_one_takes_over);
    tcase_add_test(way, everything_dies_at_once);
    tcase_add_test(way, a_hang_is_found_and_the_rank_is_named);
    tcase_add_test(way, a_nan_is_final_and_says_so);
    tcase_add_test(way, pause_leaves_a_checkpoint_and_resume_goes_on);
    tcase_add_test(way, a_paused_job_holds_no_device);
    tcase_add_test(way, a_job_that_can_never_fit_is_refused);
    tcase_add_test(way, missing_data_fails_the_job_with_its_class);
    tcase_add_test(way, a_rank_of_an_older_attempt_is_refused);
    tcase_add_test(way, drain_moves_the_job_away);
    tcase_add_test(way, a_damaged_checkpoint_is_named_and_the_one_before_used);
    tcase_add_test(way, retention_keeps_the_newest);
    tcase_add_test(way, a_full_disk_pauses_and_resume_goes_on);
    tcase_add_test(way, a_full_database_disk_loses_nothing);
    tcase_add_test(way, logs_are_kept_and_read_back);
    tcase_add_checked_fixture(cancel, setup, teardown);
    tcase_set_timeout(cancel, 60);
    tcase_add_test(cancel, cancel_ends_a_job_in_every_state);
    tcase_add_checked_fixture(sweep, setup, teardown);
    tcase_set_timeout(sweep, 60);
    tcase_add_loop_test(sweep, gemsd_may_end_at_any_moment, 0, 24);
    suite_add_tcase(suite, way);
    suite_add_tcase(suite, cancel);
    suite_add_tcase(suite, sweep);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
