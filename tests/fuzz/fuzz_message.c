/* Input: type of the message (two bytes, little endian), then its payload.
 * Goes through decoding and, where there is one, the codec; what was accepted
 * must be written and read again. */
#include <stdlib.h>

#include "proto/codec.h"
#include "proto/messages.h"
#include "tests/fuzz/fuzz.h"

static void check(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static void try_spec(const Gems__JobSpec *message)
{
    struct job_spec spec;
    struct job_spec again;
    Gems__JobSpec *back;

    if (message && spec_from_proto(message, &spec, NULL) == 0) {
        back = spec_to_proto(&spec);
        check(back && spec_from_proto(back, &again, NULL) == 0);
        msg_free(&back->base);
    }
}

static void try_graph(const Gems__Graph *message)
{
    struct graph graph;
    struct graph again;
    Gems__Graph *back;

    if (message && graph_from_proto(message, &graph, NULL) == 0) {
        back = graph_to_proto(&graph);
        check(back && graph_from_proto(back, &again, NULL) == 0);
        check(again.n_nodes == graph.n_nodes);
        msg_free(&back->base);
        graph_fini(&again);
        graph_fini(&graph);
    }
}

static void try_plan(const Gems__Plan *message)
{
    struct plan plan;
    struct plan again;
    Gems__Plan *back;

    if (message && plan_from_proto(message, &plan, NULL) == 0) {
        back = plan_to_proto(&plan, -1);
        check(back && plan_from_proto(back, &again, NULL) == 0);
        check(again.n_edges == plan.n_edges);
        msg_free(&back->base);
        plan_fini(&again);
        plan_fini(&plan);
    }
}

static void try_facts(const Gems__FactSet *message)
{
    struct fact_set facts;

    if (message && facts_from_proto(message, &facts, NULL) == 0) {
        fact_set_fini(&facts);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ProtobufCMessage *message = NULL;
    struct rpc_frame frame;

    if (n < 2) {
        return 0;
    }
    frame = (struct rpc_frame){ .type = (uint16_t)(data[0] | data[1] << 8), .payload = data + 2, .bytes = n - 2 };
    if (msg_decode(&frame, &message, NULL) < 0) {
        return 0;
    }
    if (frame.type == MSG_SUBMIT) {
        try_spec(((Gems__SubmitRequest *)message)->spec);
    } else if (frame.type == MSG_PLAN_REPLY) {
        try_plan(((Gems__PlanReply *)message)->plan);
    } else if (frame.type == MSG_INSPECT_REPLY) {
        try_facts(((Gems__InspectReply *)message)->facts);
    } else if (frame.type == MSG_START) {
        try_spec(((Gems__Start *)message)->spec);
        try_graph(((Gems__Start *)message)->graph);
        try_plan(((Gems__Start *)message)->plan);
    }
    msg_free(message);
    return 0;
}
