/* Writes the corpus that lies in tests/fuzz/corpus: usage: make_corpus FOLDER.
 * Run it again when messages change; what fuzzing found stays as files of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/error.h"
#include "common/fsutil.h"
#include "model/zoo.h"
#include "proto/codec.h"
#include "proto/messages.h"

static const char *folder;

static void save(const char *kind, const char *name, const void *data, size_t n)
{
    struct gems_error err = { 0 };
    char path[4096];

    snprintf(path, sizeof path, "%s/%s/%s", folder, kind, name);
    if (fs_write_atomic(path, data, n, 0644, &err) < 0) {
        fprintf(stderr, "make_corpus: %s\n", err.text);
        exit(1);
    }
}

/* As input of fuzz_message and, with a frame around it, of fuzz_frame. */
static void save_message(const char *name, enum msg_type type, const ProtobufCMessage *message)
{
    uint8_t *bytes = NULL;
    size_t n = 0;
    struct buf out = { 0 };

    if (proto_pack(message, &bytes, &n, NULL) < 0) {
        exit(1);
    }
    buf_add(&out, (uint8_t[]){ (uint8_t)type, 0 }, 2);
    buf_add(&out, bytes, n);
    save("message", name, out.data, out.n);
    if (n <= RPC_LIMIT_UNKNOWN) {
        buf_clear(&out);
        for (int i = 0; i < 2; i++) {
            uint8_t header[1 + RPC_HEADER_BYTES] = { 7, (uint8_t)n, (uint8_t)(n >> 8), 0, 0, (uint8_t)type,
                                                     0, 0, 0, 1, 0, 0, 0 };

            buf_add(&out, header + (i > 0), sizeof header - (i > 0));
            buf_add(&out, bytes, n);
        }
        save("frame", name, out.data, out.n);
    }
    buf_fini(&out);
    free(bytes);
}

static void make_spec(struct job_spec *spec)
{
    spec_init(spec);
    strcpy(spec->name, "tiles");
    strcpy(spec->model.zoo, "lenet");
    spec->model.classes = 10;
    spec->model.channels = spec->data.channels = 1;
    spec->model.height = spec->model.width = spec->data.height = spec->data.width = 28;
    spec->data.samples = 64;
    spec->train.epochs = 1;
    spec->train.lr = 0.1;
    spec->parallel.schedule = SCHEDULE_GPIPE;
    spec->parallel.stages = spec->parallel.n_balance = 2;
    spec->parallel.balance[0] = spec->parallel.balance[1] = 3;
}

static void make_plan(struct plan *plan, const struct graph *graph)
{
    struct instr send = { .op = INSTR_SEND_ACT, .peer = 1 };
    struct instr receive = { .op = INSTR_RECV_ACT, .stage = 1 };

    *plan = (struct plan){ .schedule = SCHEDULE_GPIPE, .n_stages = 2, .n_groups = 1, .n_chains = 1,
                           .n_ranks = 2, .microbatch = 16, .n_microbatches = 2, .n_blocks = 2,
                           .stage_layers = { 3, 3 }, .stage_node = { 0, 4, graph->n_nodes }, .n_edges = 1,
                           .fits = true, .advice = "fits" };
    plan->edges = calloc(1, sizeof *plan->edges);
    plan->memory = calloc(2, sizeof *plan->memory);
    if (!plan->edges || !plan->memory || program_init(&plan->train, 2, NULL) < 0 ||
        program_add(&plan->train, 0, &send, NULL) < 0 || program_add(&plan->train, 1, &receive, NULL) < 0) {
        exit(1);
    }
    plan->edges[0] = (struct plan_edge){ .node = 3, .from_stage = 0, .to_stage = 1 };
}

static void save_small(void)
{
    Gems__Hello hello = GEMS__HELLO__INIT;
    Gems__JobRequest request = GEMS__JOB_REQUEST__INIT;
    Gems__LogChunk chunk = GEMS__LOG_CHUNK__INIT;
    static const char conf[] = "# all kinds\nname = \"a \\\"b\\\"\"\non = yes\n[a]\nnumber = 7\nsize = 1.5GiB\n"
                               "duration = 1h30m\n[b]\nchoice = high\npath = /srv\nlist = /a, /b /c\n";

    hello.protocol = PROTO_VERSION;
    hello.role = (char *)"worker";
    hello.token = (char *)"0123456789abcdef";
    save_message("hello", MSG_HELLO, &hello.base);
    request.job = 300;
    save_message("status", MSG_STATUS, &request.base);
    chunk.data.data = (uint8_t *)"a line\n";
    chunk.data.len = 7;
    save_message("log", MSG_LOG_CHUNK, &chunk.base);
    save("conf", "all", conf, sizeof conf - 1);
}

/* A corpus of messages that are refused at once would exercise little. */
static void expect_good(const Gems__Start *start, const Gems__FactSet *set)
{
    struct gems_error err = { 0 };
    struct fact_set facts;
    struct job_spec spec;
    struct graph graph;
    struct plan plan;

    if (spec_from_proto(start->spec, &spec, &err) < 0 || graph_from_proto(start->graph, &graph, &err) < 0 ||
        plan_from_proto(start->plan, &plan, &err) < 0 || facts_from_proto(set, &facts, &err) < 0) {
        fprintf(stderr, "make_corpus: %s\n", err.text);
        exit(1);
    }
    graph_fini(&graph);
    plan_fini(&plan);
    fact_set_fini(&facts);
}

int main(int argc, char **argv)
{
    Gems__SubmitRequest submit = GEMS__SUBMIT_REQUEST__INIT;
    Gems__InspectReply inspect = GEMS__INSPECT_REPLY__INIT;
    Gems__Start start = GEMS__START__INIT;
    struct op_facts op = { 1, 2, 3, 4, 5, 0.5, 0.25, 0.125 };
    struct fact_set facts = { .n_sizes = 1, .sizes = { { 16, 1, &op, true, true } }, .n_train = 64 };
    struct gems_error err = { 0 };
    struct job_spec spec;
    struct graph graph;
    struct plan plan;

    if (argc != 2) {
        fprintf(stderr, "usage: make_corpus FOLDER\n");
        return 1;
    }
    folder = argv[1];
    make_spec(&spec);
    if (zoo_build(&spec.model, &graph, &err) < 0) {
        fprintf(stderr, "make_corpus: %s\n", err.text);
        return 1;
    }
    make_plan(&plan, &graph);
    save_small();
    submit.spec = spec_to_proto(&spec);
    save_message("submit", MSG_SUBMIT, &submit.base);
    inspect.facts = facts_to_proto(&facts);
    save_message("inspect", MSG_INSPECT_REPLY, &inspect.base);
    start.spec = submit.spec;
    start.graph = graph_to_proto(&graph);
    start.plan = plan_to_proto(&plan, -1);
    save_message("start", MSG_START, &start.base);
    expect_good(&start, inspect.facts);
    msg_free(&submit.spec->base);
    msg_free(&inspect.facts->base);
    msg_free(&start.graph->base);
    msg_free(&start.plan->base);
    graph_fini(&graph);
    plan_fini(&plan);
    return 0;
}
