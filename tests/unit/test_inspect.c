/* What gems-inspect answers: bytes as every operator says them, errors in
 * words, and nothing that ends it without a reply. */
#include <check.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"
#include "model/passes.h"
#include "proto/codec.h"
#include "worker/inspect/inspect.h"

static void must(int st, const struct gems_error *err)
{
    ck_assert_msg(st == GEMS_OK, "%s", err->text);
}

static struct job_spec spec_of(const char *zoo, uint32_t version, uint32_t depth)
{
    struct job_spec spec;

    spec_init(&spec);
    snprintf(spec.name, sizeof spec.name, "test");
    snprintf(spec.model.zoo, sizeof spec.model.zoo, "%s", zoo);
    spec.model.version = version;
    spec.model.depth = depth;
    spec.model.classes = 10;
    spec.model.channels = spec.data.channels = 3;
    spec.model.height = spec.model.width = spec.data.height = spec.data.width = 32;
    spec.data.format = DATA_SYNTHETIC;
    spec.data.samples = 100;
    spec.data.eval_samples = 10;
    spec.train.epochs = 1;
    spec.train.batch = 8;
    spec.train.lr = 0.1;
    return spec;
}

static void build(const struct job_spec *spec, struct graph *graph)
{
    struct gems_error err = { 0 };

    must(zoo_build(&spec->model, graph, &err), &err);
    must(graph_fuse(graph, &err), &err);
}

/* ---- facts ---- */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void check_node(const struct backend *backend, struct be_device *device,
                       const struct graph *graph, const struct facts *facts, uint32_t i)
{
    struct be_op_desc desc = { graph, i, facts->batch, BE_TRAIN };
    struct be_op_info train, eval;
    struct gems_error err = { 0 };

    must(backend->ops->describe(device, &desc, &train, &err), &err);
    desc.mode = BE_EVAL;
    must(backend->ops->describe(device, &desc, &eval, &err), &err);
    ck_assert_uint_eq(facts->ops[i].out_bytes, train.out_bytes);
    ck_assert_uint_eq(train.out_bytes, eval.out_bytes);
    ck_assert_uint_eq(facts->ops[i].kept_bytes, train.kept_bytes);
    ck_assert_uint_eq(eval.kept_bytes, 0);
    ck_assert_uint_eq(facts->ops[i].param_bytes, train.param_bytes);
    ck_assert_uint_eq(train.param_bytes, eval.param_bytes);
    ck_assert_uint_eq(facts->ops[i].param2_bytes, larger(train.param2_bytes, eval.param2_bytes));
    ck_assert_uint_eq(facts->ops[i].scratch_bytes,
                      larger(train.scratch_bytes, eval.scratch_bytes));
}

START_TEST(facts_are_what_every_operator_says)
{
    const char *zoos[] = { "resnet", "resnet", "lenet" };
    const uint32_t versions[] = { 1, 2, 0 }, depths[] = { 20, 20, 0 };
    struct job_spec spec = spec_of(zoos[_i], versions[_i], depths[_i]);
    struct graph graph;

    build(&spec, &graph);
    for (uint32_t b = 0; backend_at(b); b++) {
        const struct backend *backend = backend_at(b);
        struct be_device *device = NULL;
        struct gems_error err = { 0 };
        struct facts facts;

        must(backend->device->open(0, 1, BE_F32, &device, &err), &err);
        must(inspect_facts(&graph, 3, backend, device, &facts, &err), &err);
        ck_assert(facts.is_exact && !facts.is_measured);
        ck_assert_uint_eq(facts.n_nodes, graph.n_nodes);
        for (uint32_t i = 0; i < graph.n_nodes; i++) {
            check_node(backend, device, &graph, &facts, i);
        }
        facts_fini(&facts);
        backend->device->close(device);
    }
    graph_fini(&graph);
}
END_TEST

/* Blocks of parameters must not depend on the batch: all sizes share them. */
START_TEST(parameters_are_as_large_for_every_batch)
{
    struct job_spec spec = spec_of("resnet", 2, 20);
    struct graph graph;

    build(&spec, &graph);
    for (uint32_t b = 0; backend_at(b); b++) {
        const struct backend *backend = backend_at(b);
        const uint32_t batches[] = { 1, 2, 7, 32 };
        struct be_device *device = NULL;
        struct gems_error err = { 0 };
        struct facts facts[4];

        must(backend->device->open(0, 1, BE_F32, &device, &err), &err);
        for (uint32_t k = 0; k < 4; k++) {
            must(inspect_facts(&graph, batches[k], backend, device, &facts[k], &err), &err);
            for (uint32_t i = 0; i < graph.n_nodes; i++) {
                ck_assert_uint_eq(facts[k].ops[i].param_bytes, facts[0].ops[i].param_bytes);
                ck_assert_uint_eq(facts[k].ops[i].param2_bytes, facts[0].ops[i].param2_bytes);
            }
        }
        for (uint32_t k = 0; k < 4; k++) {
            facts_fini(&facts[k]);
        }
        backend->device->close(device);
    }
    graph_fini(&graph);
}
END_TEST

START_TEST(measured_facts_have_seconds)
{
    struct job_spec spec = spec_of("resnet", 2, 11);
    struct graph graph;

    spec.model.height = spec.model.width = 8;
    build(&spec, &graph);
    for (uint32_t b = 0; backend_at(b); b++) {
        const struct backend *backend = backend_at(b);
        struct be_device *device = NULL;
        struct gems_error err = { 0 };
        struct facts facts;

        must(backend->device->open(0, 1, BE_F32, &device, &err), &err);
        must(inspect_facts(&graph, 2, backend, device, &facts, &err), &err);
        must(inspect_measure(&graph, backend, device, &facts, &err), &err);
        ck_assert(facts.is_measured);
        for (uint32_t i = 1; i < graph.n_nodes; i++) {
            ck_assert_msg(facts.ops[i].forward_seconds > 0.0, "%s: node %s has no time",
                          backend->name, graph.nodes[i].name);
            ck_assert((facts.ops[i].param_bytes > 0) ==
                      (facts.ops[i].backward_weight_seconds > 0.0));
        }
        facts_fini(&facts);
        backend->device->close(device);
    }
    graph_fini(&graph);
}
END_TEST

/* ---- the program ---- */

/* Runs it on the bytes of a request; returns its reply. */
static Gems__InspectReply *run(const char *option, const void *bytes, size_t n)
{
    int in[2], out[2], status;
    uint32_t length;
    uint8_t *payload;
    size_t done = 0;
    Gems__InspectReply *reply;
    pid_t pid;

    ck_assert_int_eq(pipe(in), 0);
    ck_assert_int_eq(pipe(out), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        close(out[0]);
        execl("./gems-inspect", "gems-inspect", option, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    ck_assert_int_eq(write(in[1], bytes, n), (ssize_t)n);
    close(in[1]);
    ck_assert_msg(read(out[0], &length, sizeof length) == sizeof length,
                  "gems-inspect ended without a reply");
    length = le32toh(length);
    payload = malloc(length + 1);
    ck_assert_ptr_nonnull(payload);
    while (done < length) {
        ssize_t got = read(out[0], payload + done, length - done);

        ck_assert_int_gt(got, 0);
        done += (size_t)got;
    }
    close(out[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    reply = gems__inspect_reply__unpack(NULL, length, payload);
    ck_assert_ptr_nonnull(reply);
    free(payload);
    return reply;
}

static Gems__InspectReply *ask(const struct job_spec *spec, const char *backend, bool has_data,
                               const char *option)
{
    Gems__InspectRequest request = GEMS__INSPECT_REQUEST__INIT;
    struct gems_error err = { 0 };
    Gems__InspectReply *reply;
    uint8_t *packed = NULL, *bytes;
    uint32_t length;
    size_t n = 0;

    request.spec = spec_to_proto(spec);
    request.backend = (char *)(uintptr_t)backend;
    request.threads = 1;
    request.data = has_data;
    must(proto_pack(&request.base, &packed, &n, &err), &err);
    bytes = malloc(n + sizeof length);
    ck_assert_ptr_nonnull(bytes);
    length = htole32((uint32_t)n);
    memcpy(bytes, &length, sizeof length);
    memcpy(bytes + sizeof length, packed, n);
    reply = run(option, bytes, n + sizeof length);
    gems__job_spec__free_unpacked(request.spec, NULL);
    free(packed);
    free(bytes);
    return reply;
}

static void expect_error(Gems__InspectReply *reply, enum gems_status status, const char *part)
{
    ck_assert_msg(reply->error != NULL, "no error, where \"%s\" was expected", part);
    ck_assert_msg(reply->error->status == (int)status && strstr(reply->error->text, part),
                  "status %d: %s", reply->error->status, reply->error->text);
    ck_assert_ptr_null(reply->facts);
    gems__inspect_reply__free_unpacked(reply, NULL);
}

START_TEST(program_answers_with_facts_and_samples)
{
    for (uint32_t b = 0; backend_at(b); b++) {
        struct job_spec spec = spec_of("resnet", 1, 20);
        Gems__InspectReply *reply = ask(&spec, backend_at(b)->name, true, NULL);

        ck_assert_msg(!reply->error, "%s", reply->error ? reply->error->text : "");
        ck_assert_uint_eq(reply->facts->n_train, 100);
        ck_assert_uint_eq(reply->facts->n_eval, 10);
        ck_assert_uint_ge(reply->facts->n_sizes, 1);
        ck_assert(reply->facts->sizes[0]->exact);
        ck_assert(strstr(reply->kind, b ? "oneDNN" : "ref") != NULL);
        gems__inspect_reply__free_unpacked(reply, NULL);
    }
}
END_TEST

START_TEST(program_measures_if_asked)
{
    struct job_spec spec = spec_of("lenet", 0, 0);
    Gems__InspectReply *reply = ask(&spec, "ref", false, "--measure");

    ck_assert_msg(!reply->error, "%s", reply->error ? reply->error->text : "");
    ck_assert(reply->facts->sizes[0]->measured);
    ck_assert(reply->facts->sizes[0]->ops[1]->forward_seconds > 0.0);
    gems__inspect_reply__free_unpacked(reply, NULL);
}
END_TEST

START_TEST(program_says_what_is_wrong_with_a_job)
{
    struct job_spec spec = spec_of("resnet", 1, 21);

    expect_error(ask(&spec, "ref", false, NULL), GEMS_E_INVALID, "depth");
    spec = spec_of("resnet", 1, 20);
    expect_error(ask(&spec, "abacus", false, NULL), GEMS_E_UNSUPPORTED, "abacus");
    spec.data.format = DATA_IDX;
    snprintf(spec.data.train, sizeof spec.data.train, "/nonexistent/set");
    expect_error(ask(&spec, "ref", true, NULL), GEMS_E_DATA, "/nonexistent/set");
}
END_TEST

START_TEST(program_answers_to_garbage)
{
    const uint8_t garbage[] = { 4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff };
    const uint8_t cut[] = { 9, 0, 0, 0, 1 };
    const uint8_t huge[] = { 0xff, 0xff, 0xff, 0x7f };
    const uint8_t empty[] = { 0, 0, 0, 0 };

    expect_error(run(NULL, garbage, sizeof garbage), GEMS_E_INVALID, "");
    expect_error(run(NULL, cut, sizeof cut), GEMS_E_INVALID, "ends after");
    expect_error(run(NULL, huge, sizeof huge), GEMS_E_INVALID, "are allowed");
    expect_error(run(NULL, empty, sizeof empty), GEMS_E_INVALID, "no spec");
    expect_error(run(NULL, empty, 2), GEMS_E_INVALID, "ends after");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("inspect");
    TCase *tcase = tcase_create("inspect");
    SRunner *runner;
    int n_failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, facts_are_what_every_operator_says, 0, 3);
    tcase_add_test(tcase, parameters_are_as_large_for_every_batch);
    tcase_add_test(tcase, measured_facts_have_seconds);
    tcase_add_test(tcase, program_answers_with_facts_and_samples);
    tcase_add_test(tcase, program_measures_if_asked);
    tcase_add_test(tcase, program_says_what_is_wrong_with_a_job);
    tcase_add_test(tcase, program_answers_to_garbage);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
