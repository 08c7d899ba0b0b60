/* A checkpoint holds nothing of the layout that wrote it: written under any, it
 * resumes under each other one with the bits of the uninterrupted run. */
#include <string.h>

#include "tests/lib/run_suite.h"
#include "tests/unit/all_layouts.h"
#include "tests/unit/trainer_lab.h"

enum { N_PARTS = 8 };

static void set_job(const char *model, struct job_spec *ret_spec)
{
    lab_spec(model, ret_spec);
    ret_spec->parallel.gradient_blocks = 4;
    ret_spec->train.optimizer = OPTIMIZER_ADAM; /* two states, and the step counts */
    ret_spec->train.lr = 0.01;
}

static void run(const struct job_spec *job, const struct any_layout *layout,
                const struct lab_options *options, struct lab_result *ret_result)
{
    struct job_spec spec = *job;

    any_layout_set(&spec, layout);
    lab_run(&spec, options, ret_result);
    for (uint32_t i = 0; i < ret_result->n_ranks; i++) {
        ck_assert_msg(ret_result->ranks[i].status == GEMS_OK, "%s: rank %u: %s",
                      any_layout_name(layout), i, ret_result->ranks[i].err.text);
    }
}

static const struct lab_tensor *find_same(const struct lab_checkpoint *in,
                                          const struct lab_tensor *tensor)
{
    const struct lab_tensor *found = lab_find(in, tensor->kind, tensor->name);

    return found && found->bytes == tensor->bytes ? found : NULL;
}

/* Ranks hand their tensors over in no common order. */
static void expect_same_checkpoint(const struct any_layout *layout, const struct lab_checkpoint *a,
                                   const struct lab_checkpoint *b)
{
    ck_assert_uint_eq(a->position.step, b->position.step);
    ck_assert_uint_eq(a->position.samples, b->position.samples);
    ck_assert_uint_eq(a->n_tensors, b->n_tensors);
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const struct lab_tensor *other = find_same(b, &a->tensors[i]);

        ck_assert_msg(other && !memcmp(a->tensors[i].data, other->data, other->bytes),
                      "%s: %s %s in the checkpoint of step %lu differs", any_layout_name(layout),
                      a->tensors[i].kind, a->tensors[i].name, (unsigned long)a->position.step);
    }
}

/* Every layout writes the same checkpoint in the middle of an epoch, to the byte, and
 * each of them goes on from the one that another layout wrote. */
static void exchange(const struct job_spec *spec, uint32_t part)
{
    struct any_layout layouts[ALL_LAYOUTS_MAX];
    struct lab_options keep = { .keep_step = 2 };
    uint32_t n = all_layouts(spec, layouts);
    struct lab_result single;

    run(spec, &layouts[0], &keep, &single);
    ck_assert_uint_eq(single.kept.position.step, 2);
    for (uint32_t i = part; i < n; i += N_PARTS) {
        const struct any_layout *other = &layouts[(i + 1 + part) % n];
        struct lab_result first, second;
        struct lab_options options = { 0 };

        run(spec, &layouts[i], &keep, &first);
        expect_same_checkpoint(&layouts[i], &single.kept, &first.kept);
        options.restore = &first.kept;
        run(spec, other, &options, &second);
        expect_same_checkpoint(other, &single.final, &second.final);
        ck_assert_uint_eq(second.weights_hash, single.weights_hash);
        lab_result_fini(&first);
        lab_result_fini(&second);
    }
    lab_result_fini(&single);
}

START_TEST(checkpoint_resumes_under_each_other_layout)
{
    struct job_spec spec;

    /* one part of the layouts with batch-norm, whose statistics travel too */
    set_job(_i < N_PARTS ? "mlp" : "resnet2", &spec);
    spec.train.epochs = 1;
    spec.checkpoint_every_steps = 2;
    exchange(&spec, (uint32_t)_i % N_PARTS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resume");
    TCase *tcase = tcase_create("layouts");

    tcase_set_timeout(tcase, 240);
    tcase_add_loop_test(tcase, checkpoint_resumes_under_each_other_layout, 0, N_PARTS + 1);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
