/* Job files and --set: what is taken, and the exact words of what is refused. */
#include "client/jobfile.h"

#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"

static char folder[PATH_MAX];
static char path[PATH_MAX + 16];

static const char good[] = "name: tiles\n"
                           "model: {zoo: resnet, version: 1, depth: 20, classes: 10}\n"
                           "data:\n"
                           "  format: synthetic\n"
                           "  samples: 64\n"
                           "  size: [16, 24]\n"
                           "train:\n"
                           "  epochs: 2\n"
                           "  batch: 32\n"
                           "  lr: 0.1\n";

static void make_folder(void)
{
    char name[] = "jobfile-XXXXXX";

    ck_assert_ptr_nonnull(mkdtemp(name));
    ck_assert_ptr_nonnull(realpath(name, folder));
    snprintf(path, sizeof path, "%s/job.yaml", folder);
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fputs(text, file) < 0, 0);
    ck_assert_int_eq(fclose(file), 0);
}

static int load(const char *text, const char *set, struct jobfile *job, struct gems_error *err)
{
    write_file(text);
    return jobfile_load(path, &set, set ? 1 : 0, job, err);
}

START_TEST(every_key_arrives_in_its_field)
{
    struct jobfile job;
    struct gems_error err;
    const struct job_spec *s = &job.spec;
    int status = load(
        "name: all\n"
        "model: {zoo: mlp, hidden: [5, 7], classes: 3, layers: 6, filters: 32}\n"
        "data: {format: idx, train: a/b, eval: /abs/c, size: [8, 9], channels: 2,\n"
        "  augment: [flip, shift], mean: -0.25, std: 0.5}\n"
        "train: {steps: 77, batch: 12, optimizer: adamw, lr: 1e-3, momentum: 0.8,\n"
        "  weight_decay: 1e-4, betas: [0.8, 0.99], eps: 1e-7, schedule: step,\n"
        "  warmup_epochs: 0.5, lr_step_epochs: 4, lr_gamma: 0.3, precision: fp32, seed: 9}\n"
        "parallel: {schedule: gems-mast, stages: 3, groups: 1, chunks: 3, gradient_blocks: 4,\n"
        "  microbatch: 2, replications: 5, recompute: none, balance: [1, 1, 2]}\n"
        "resources: {devices: {min: 2, max: 4}, kind: cpu, memory: 1.5GiB}\n"
        "checkpoint: {every_steps: 5, every_epochs: 2, keep: 4, keep_best: 2}\n"
        "limits: {time: 1h30m, max_restarts: 7}\n",
        NULL, &job, &err);

    ck_assert_msg(status == GEMS_OK, "%s", err.text);
    ck_assert_str_eq(s->name, "all");
    ck_assert_str_eq(s->model.zoo, "mlp");
    ck_assert_uint_eq(s->model.n_hidden, 2);
    ck_assert_uint_eq(s->model.hidden[1], 7);
    ck_assert_uint_eq(s->model.classes, 3);
    ck_assert_uint_eq(s->model.layers, 6);
    ck_assert_uint_eq(s->model.filters, 32);
    ck_assert_uint_eq(s->model.height, 8);
    ck_assert_uint_eq(s->model.width, 9);
    ck_assert_uint_eq(s->model.channels, 2);
    ck_assert_int_eq(s->data.format, DATA_IDX);
    ck_assert(strncmp(s->data.train, folder, strlen(folder)) == 0);
    ck_assert_str_eq(s->data.train + strlen(folder), "/a/b");
    ck_assert_str_eq(s->data.eval, "/abs/c");
    ck_assert_uint_eq(s->data.height, 8);
    ck_assert(s->data.is_flip && s->data.is_shift);
    ck_assert_double_eq(s->data.mean, -0.25);
    ck_assert_double_eq(s->data.std, 0.5);
    ck_assert_uint_eq(s->train.epochs, 0);
    ck_assert_uint_eq(s->train.steps, 77);
    ck_assert_uint_eq(s->train.batch, 12);
    ck_assert_int_eq(s->train.optimizer, OPTIMIZER_ADAMW);
    ck_assert_double_eq(s->train.lr, 1e-3);
    ck_assert_double_eq(s->train.momentum, 0.8);
    ck_assert_double_eq(s->train.weight_decay, 1e-4);
    ck_assert_double_eq(s->train.beta1, 0.8);
    ck_assert_double_eq(s->train.beta2, 0.99);
    ck_assert_double_eq(s->train.eps, 1e-7);
    ck_assert_int_eq(s->train.schedule, LR_STEP);
    ck_assert_double_eq(s->train.warmup_epochs, 0.5);
    ck_assert_uint_eq(s->train.lr_step_epochs, 4);
    ck_assert_double_eq(s->train.lr_gamma, 0.3);
    ck_assert_uint_eq(s->train.seed, 9);
    ck_assert_int_eq(s->parallel.schedule, SCHEDULE_GEMS_MAST);
    ck_assert_uint_eq(s->parallel.stages, 3);
    ck_assert_uint_eq(s->parallel.groups, 1);
    ck_assert_uint_eq(s->parallel.chunks, 3);
    ck_assert_uint_eq(s->parallel.gradient_blocks, 4);
    ck_assert_uint_eq(s->parallel.microbatch, 2);
    ck_assert_uint_eq(s->parallel.replications, 5);
    ck_assert_int_eq(s->parallel.recompute, RECOMPUTE_NONE);
    ck_assert_uint_eq(s->parallel.n_balance, 3);
    ck_assert_uint_eq(s->parallel.balance[2], 2);
    ck_assert_uint_eq(s->resources.devices_min, 2);
    ck_assert_uint_eq(s->resources.devices_max, 4);
    ck_assert_int_eq(s->resources.kind, DEVICE_CPU);
    ck_assert_uint_eq(s->resources.memory_bytes, UINT64_C(3) << 29);
    ck_assert_uint_eq(s->checkpoint_every_steps, 5);
    ck_assert_uint_eq(s->checkpoint_every_epochs, 2);
    ck_assert_uint_eq(s->checkpoint_keep, 4);
    ck_assert_uint_eq(s->checkpoint_keep_best, 2);
    ck_assert_uint_eq(s->limit_seconds, 5400);
    ck_assert_uint_eq(s->max_restarts, 7);
}
END_TEST

START_TEST(auto_and_a_single_number_of_devices_are_taken)
{
    struct jobfile job;
    struct gems_error err;
    char text[1024];
    int status;

    snprintf(text, sizeof text,
             "%sparallel: {schedule: auto, stages: auto, balance: auto, groups: auto}\n"
             "resources: {devices: 3}\n",
             good);
    status = load(text, NULL, &job, &err);
    ck_assert_msg(status == GEMS_OK, "%s", err.text);
    ck_assert_int_eq(job.spec.parallel.schedule, SCHEDULE_AUTO);
    ck_assert_uint_eq(job.spec.parallel.stages, 0);
    ck_assert_uint_eq(job.spec.resources.devices_min, 3);
    ck_assert_uint_eq(job.spec.resources.devices_max, 3);
}
END_TEST

/* Refusals of a file: the text behind the file's name, and part of the hint. */
static const struct refusal {
    const char *file, *text, *hint;
    int status;
} refusals[] = {
    { "name: a\nmodle: {zoo: resnet}\n", ":2:1: modle: unknown key",
      "did you mean model? allowed here: name, model, data, train, parallel, resources, "
      "checkpoint, limits",
      GEMS_E_INVALID },
    { "name: a\nmodel:\n  zoo: resnet\n  dept: 20\n", ":4:3: model.dept: unknown key",
      "did you mean depth? allowed here: zoo, version, depth, hidden, classes, layers, filters", GEMS_E_INVALID },
    { "model: {a.b: 1}\n", ":1:9: model.a.b: unknown key", "allowed here: zoo", GEMS_E_INVALID },
    { "model.zoo: resnet\n", ":1:1: model.zoo: unknown key", "", GEMS_E_INVALID },
    { "name: a\nname: b\n", ":2:1: name: given twice, first on line 1", "", GEMS_E_INVALID },
    { "model: {zoo: mlp}\nmodel: {classes: 1}\n", ":2:1: model: given twice", "", GEMS_E_INVALID },
    { "parallel:\n  stages: many\n",
      ":2:11: parallel.stages: 'many' is not a whole number from 1 to 256, or auto", "",
      GEMS_E_INVALID },
    { "parallel: {stages: 0}\n",
      ":1:20: parallel.stages: '0' is not a whole number from 1 to 256, or auto", "",
      GEMS_E_INVALID },
    { "parallel: {stages: \"2\"}\n",
      ":1:20: parallel.stages: '2' is not a whole number from 1 to 256, or auto", "",
      GEMS_E_INVALID },
    { "train: {batch: -3}\n", ":1:16: train.batch: '-3' is not a whole number from 1 to 1048576",
      "", GEMS_E_INVALID },
    { "train: {batch: 99999999999999999999999}\n", "is not a whole number from 1 to 1048576", "",
      GEMS_E_INVALID },
    { "train: {lr: inf}\n", ":1:13: train.lr: 'inf' is not a number from 0 to 1e+06", "",
      GEMS_E_INVALID },
    { "train: {lr: 0x10}\n", "train.lr: '0x10' is not a number", "", GEMS_E_INVALID },
    { "train: {lr: }\n", "train.lr: no value; wanted is a number from 0 to 1e+06", "",
      GEMS_E_INVALID },
    { "train: {lr: [1]}\n", "train.lr: a list; wanted is a number", "", GEMS_E_INVALID },
    { "train: {nesterov: yes}\n", "train.nesterov: 'yes' is not true or false", "",
      GEMS_E_INVALID },
    { "train: {optimizer: lamb}\n", ":1:20: train.optimizer: 'lamb' is not one of sgd, adam, adamw",
      "", GEMS_E_INVALID },
    { "train: {precision: bf16}\n", ":1:20: train.precision: bf16 is not in this version", "",
      GEMS_E_UNSUPPORTED },
    { "data: {format: wsi}\n", ":1:16: data.format: wsi is not in this version", "",
      GEMS_E_UNSUPPORTED },
    { "model: {onnx: f.onnx}\n", ":1:15: model.onnx: not in this version", "", GEMS_E_UNSUPPORTED },
    { "parallel: {schedule: v-min}\n", ":1:22: parallel.schedule: v-min is not in this version",
      "", GEMS_E_UNSUPPORTED },
    { "parallel: {schedule: fast}\n",
      ":1:22: parallel.schedule: 'fast' is not one of auto, single, layer", "", GEMS_E_INVALID },
    { "data: {size: 32}\n", "data.size: '32' is not [height, width]", "", GEMS_E_INVALID },
    { "data: {size: [32]}\n", "data.size: one number; wanted is [height, width]", "",
      GEMS_E_INVALID },
    { "data: {size: [1, 2, 3]}\n", "data.size: more than 2 entries", "", GEMS_E_INVALID },
    { "data: {augment: [flip, rotate]}\n",
      ":1:24: data.augment: 'rotate' is not one of flip, shift", "", GEMS_E_INVALID },
    { "train: {betas: [0.9]}\n", "train.betas: a list; wanted is two numbers", "", GEMS_E_INVALID },
    { "resources: {memory: 16Gi}\n", "resources.memory: '16Gi' is not a size such as 16GiB", "",
      GEMS_E_INVALID },
    { "resources: {devices: {min: 3, max: 2}}\n", "resources.devices: wanted are min and max", "",
      GEMS_E_INVALID },
    { "resources: {devices: {least: 3}}\n", "resources.devices: 'least' is not min or max", "",
      GEMS_E_INVALID },
    { "limits: {time: soon}\n", "limits.time: 'soon' is not a time", "", GEMS_E_INVALID },
    { "model: 3\n", ":1:8: model: wanted are keys with values", "", GEMS_E_INVALID },
    { "- 1\n", ":1:1: wanted are keys with values", "", GEMS_E_INVALID },
    { "", ": the file is empty", "", GEMS_E_INVALID },
    { "name: [a\n", "did not find expected", "", GEMS_E_INVALID },
    { "name: a\n\tmodel: b\n", ":2:1: found a tab character", "", GEMS_E_INVALID },
    { "name: a\n---\nname: b\n", ":3:1: a second document; one job a file", "", GEMS_E_INVALID },
};

START_TEST(a_bad_file_is_refused_with_its_place)
{
    const struct refusal *c = &refusals[_i];
    struct jobfile job;
    struct gems_error err = { 0 };

    ck_assert_int_eq(load(c->file, NULL, &job, &err), c->status);
    ck_assert_int_eq(err.status, c->status);
    ck_assert_msg(strncmp(err.text, path, strlen(path)) == 0, "no file name in: %s", err.text);
    ck_assert_msg(strstr(err.text + strlen(path), c->text) != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.hint, c->hint) != NULL, "hint: %s", err.hint);
}
END_TEST

static const struct {
    const char *set, *text;
    int status;
} bad_sets[] = {
    { "parallel.stages", "--set parallel.stages: wanted is KEY=VALUE", GEMS_E_INVALID },
    { "=3", "--set =3: wanted is KEY=VALUE", GEMS_E_INVALID },
    { "parallel.stages=many",
      "--set parallel.stages: 'many' is not a whole number from 1 to 256, or auto",
      GEMS_E_INVALID },
    { "parallel.stagse=2", "--set parallel.stagse: unknown key", GEMS_E_INVALID },
    { "stages=2", "--set stages: unknown key", GEMS_E_INVALID },
    { "train.lr=", "--set train.lr: no value behind the =", GEMS_E_INVALID },
    { "train.lr=[1", "--set train.lr: did not find", GEMS_E_INVALID },
    { "train={lr: 1, batch: x}", "--set train.batch: 'x' is not a whole number", GEMS_E_INVALID },
    { "train.precision=fp16", "--set train.precision: fp16 is not in this version",
      GEMS_E_UNSUPPORTED },
    { "model.depth=21", "--set model.depth: 21; resnet version 1 has depth 6n+2", GEMS_E_INVALID },
    { "model={zoo: amoebanet-d, layers: 4}",
      "--set model.layers: 4; amoebanet-d has a multiple of 3: 3 or 6", GEMS_E_INVALID },
    { "model.zoo=unet", "--set model.zoo: unet is not in this version", GEMS_E_UNSUPPORTED },
};

START_TEST(a_bad_set_is_refused_in_the_same_words)
{
    struct jobfile job;
    struct gems_error err = { 0 };

    ck_assert_int_eq(load(good, bad_sets[_i].set, &job, &err), bad_sets[_i].status);
    ck_assert_msg(strncmp(err.text, bad_sets[_i].text, strlen(bad_sets[_i].text)) == 0, "%s",
                  err.text);
}
END_TEST

START_TEST(set_replaces_what_the_file_says)
{
    static const char *const sets[] = { "train.batch=8", "train.batch=16",
                                        "data={size: [12, 12], samples: 5}", "train.steps=3",
                                        "parallel.balance=[4, 4]" };
    struct jobfile job;
    struct gems_error err;

    write_file(good);
    ck_assert_msg(jobfile_load(path, sets, 5, &job, &err) == GEMS_OK, "%s", err.text);
    ck_assert_uint_eq(job.spec.train.batch, 16);
    ck_assert_uint_eq(job.spec.data.height, 12);
    ck_assert_uint_eq(job.spec.model.width, 12);
    ck_assert_uint_eq(job.spec.data.samples, 5);
    ck_assert_uint_eq(job.spec.train.steps, 3);
    ck_assert_uint_eq(job.spec.train.epochs, 0);
    ck_assert_uint_eq(job.spec.parallel.n_balance, 2);
}
END_TEST

START_TEST(epochs_and_steps_in_one_file_are_refused)
{
    struct jobfile job;
    struct gems_error err;
    char text[1024];

    snprintf(text, sizeof text, "%s  steps: 5\n", good);
    ck_assert_int_eq(load(text, NULL, &job, &err), GEMS_E_INVALID);
    ck_assert_msg(strstr(err.text, "job.yaml:11:3: train.steps: ") != NULL, "%s", err.text);
}
END_TEST

START_TEST(a_path_of_set_starts_from_the_current_folder)
{
    static const char *const sets[] = { "data.format=idx", "data.train=./x/y" };
    char cwd[PATH_MAX], wanted[PATH_MAX + 8];
    struct jobfile job;
    struct gems_error err;

    write_file(good);
    ck_assert_msg(jobfile_load(path, sets, 2, &job, &err) == GEMS_OK, "%s", err.text);
    ck_assert_ptr_nonnull(getcwd(cwd, sizeof cwd));
    snprintf(wanted, sizeof wanted, "%s/x/y", cwd);
    ck_assert_str_eq(job.spec.data.train, wanted);
}
END_TEST

START_TEST(a_message_that_names_a_key_gets_its_place)
{
    struct jobfile job;
    struct gems_error err;

    ck_assert_int_eq(load(good, "train.lr=0.2", &job, &err), GEMS_OK);
    gems_error_set(&err, GEMS_E_INVALID, "data.size[0]: too small");
    jobfile_locate(&job, &err);
    ck_assert_msg(strstr(err.text, "job.yaml:6:3: data.size[0]: too small") != NULL, "%s",
                  err.text);
    gems_error_set(&err, GEMS_E_INVALID, "train.lr: no");
    jobfile_locate(&job, &err);
    ck_assert_str_eq(err.text, "--set train.lr: no");
    gems_error_set(&err, GEMS_E_INVALID, "parallel.stages: 9 stages");
    jobfile_locate(&job, &err);
    ck_assert_msg(strstr(err.text, "job.yaml: parallel.stages: 9 stages") != NULL, "%s", err.text);
    gems_error_set(&err, GEMS_E_INVALID, "node a: gone");
    jobfile_locate(&job, &err);
    ck_assert_str_eq(err.text, "node a: gone");
}
END_TEST

START_TEST(a_missing_file_is_a_bad_request_not_a_missing_job)
{
    struct jobfile job;
    struct gems_error err;

    ck_assert_int_eq(jobfile_load("/nowhere/job.yaml", NULL, 0, &job, &err), GEMS_E_INVALID);
    ck_assert_str_eq(err.text, "/nowhere/job.yaml: No such file or directory");
}
END_TEST

START_TEST(an_alias_that_contains_itself_ends)
{
    struct jobfile job;
    struct gems_error err;

    ck_assert_int_eq(load("train: &t {betas: *t}\n", NULL, &job, &err), GEMS_E_INVALID);
    ck_assert_int_eq(load("&t {model: *t}\n", NULL, &job, &err), GEMS_E_INVALID);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jobfile");
    TCase *tc = tcase_create("jobfile");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 20);
    tcase_add_checked_fixture(tc, make_folder, remove_folder);
    tcase_add_test(tc, every_key_arrives_in_its_field);
    tcase_add_test(tc, auto_and_a_single_number_of_devices_are_taken);
    tcase_add_loop_test(tc, a_bad_file_is_refused_with_its_place, 0,
                        sizeof refusals / sizeof refusals[0]);
    tcase_add_loop_test(tc, a_bad_set_is_refused_in_the_same_words, 0,
                        sizeof bad_sets / sizeof bad_sets[0]);
    tcase_add_test(tc, set_replaces_what_the_file_says);
    tcase_add_test(tc, epochs_and_steps_in_one_file_are_refused);
    tcase_add_test(tc, a_path_of_set_starts_from_the_current_folder);
    tcase_add_test(tc, a_message_that_names_a_key_gets_its_place);
    tcase_add_test(tc, a_missing_file_is_a_bad_request_not_a_missing_job);
    tcase_add_test(tc, an_alias_that_contains_itself_ends);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
