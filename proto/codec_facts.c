#include "proto/codec.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "proto/build.h"
#include "proto/field.h"

#define CODEC_MAX_BYTES ((uint64_t)1 << 48) /* sums of a graph's nodes stay below 2^64 */
enum { CODEC_MAX_OPS = 1 << 16 };

static double field_seconds(struct field_check *check, const char *name, double value)
{
    double seconds = field_number(check, name, value);

    if (seconds < 0) {
        field_fail(check, name, "negative");
        return 0;
    }
    return seconds;
}

static int ops_from_proto(const Gems__OpFacts *message, struct op_facts *op, struct gems_error *err)
{
    struct field_check check = { .message = "OpFacts", .err = err };

    op->out_bytes = field_at_most(&check, "out_bytes", message->out_bytes, CODEC_MAX_BYTES);
    op->kept_bytes = field_at_most(&check, "kept_bytes", message->kept_bytes, CODEC_MAX_BYTES);
    op->scratch_bytes = field_at_most(&check, "scratch_bytes", message->scratch_bytes, CODEC_MAX_BYTES);
    op->param_bytes = field_at_most(&check, "param_bytes", message->param_bytes, CODEC_MAX_BYTES);
    op->param2_bytes = field_at_most(&check, "param2_bytes", message->param2_bytes, CODEC_MAX_BYTES);
    op->forward_seconds = field_seconds(&check, "forward_seconds", message->forward_seconds);
    op->backward_input_seconds =
        field_seconds(&check, "backward_input_seconds", message->backward_input_seconds);
    op->backward_weight_seconds =
        field_seconds(&check, "backward_weight_seconds", message->backward_weight_seconds);
    return check.st;
}

static int size_from_proto(const Gems__Facts *message, struct facts *facts, struct gems_error *err)
{
    struct field_check check = { .message = "Facts", .err = err };
    int st = GEMS_OK;

    facts->batch = message->batch;
    facts->is_measured = message->measured;
    facts->is_exact = message->exact;
    field_at_most(&check, "ops", message->n_ops, CODEC_MAX_OPS);
    if (check.st < 0) {
        return check.st;
    }
    facts->ops = calloc(message->n_ops + 1, sizeof *facts->ops);
    if (!facts->ops) {
        return gems_error_set(err, GEMS_E_NOMEM, "facts: no memory");
    }
    facts->n_nodes = (uint32_t)message->n_ops;
    for (uint32_t i = 0; i < facts->n_nodes && st == GEMS_OK; i++) {
        st = ops_from_proto(message->ops[i], &facts->ops[i], err);
    }
    return st;
}

int facts_from_proto(const Gems__FactSet *message, struct fact_set *ret_facts, struct gems_error *err)
{
    struct field_check check = { .message = "FactSet", .err = err };
    int st = GEMS_OK;

    memset(ret_facts, 0, sizeof *ret_facts);
    field_at_most(&check, "sizes", message->n_sizes, FACTS_MAX_SIZES);
    if (check.st < 0) {
        return check.st;
    }
    ret_facts->n_train = message->n_train;
    ret_facts->n_eval = message->n_eval;
    for (size_t i = 0; i < message->n_sizes && st == GEMS_OK; i++) {
        ret_facts->n_sizes++;
        st = size_from_proto(message->sizes[i], &ret_facts->sizes[i], err);
    }
    if (st < 0) {
        fact_set_fini(ret_facts);
        memset(ret_facts, 0, sizeof *ret_facts);
    }
    return st;
}

static Gems__OpFacts *op_to_proto(struct build *build, const struct op_facts *op)
{
    Gems__OpFacts *message = build_message(build, &gems__op_facts__descriptor);

    if (message) {
        message->out_bytes = op->out_bytes;
        message->kept_bytes = op->kept_bytes;
        message->scratch_bytes = op->scratch_bytes;
        message->param_bytes = op->param_bytes;
        message->param2_bytes = op->param2_bytes;
        message->forward_seconds = op->forward_seconds;
        message->backward_input_seconds = op->backward_input_seconds;
        message->backward_weight_seconds = op->backward_weight_seconds;
    }
    return message;
}

static Gems__Facts *size_to_proto(struct build *build, const struct facts *facts)
{
    Gems__Facts *message = build_message(build, &gems__facts__descriptor);

    if (message) {
        message->batch = facts->batch;
        message->measured = facts->is_measured;
        message->exact = facts->is_exact;
        message->ops = build_array(build, facts->n_nodes, sizeof *message->ops);
        message->n_ops = message->ops ? facts->n_nodes : 0;
        for (size_t i = 0; i < message->n_ops; i++) {
            message->ops[i] = op_to_proto(build, &facts->ops[i]);
        }
    }
    return message;
}

Gems__FactSet *facts_to_proto(const struct fact_set *facts)
{
    struct build build = { false };
    Gems__FactSet *message = build_message(&build, &gems__fact_set__descriptor);

    if (message) {
        message->n_train = facts->n_train;
        message->n_eval = facts->n_eval;
        message->sizes = build_array(&build, facts->n_sizes, sizeof *message->sizes);
        message->n_sizes = message->sizes ? facts->n_sizes : 0;
        for (size_t i = 0; i < message->n_sizes; i++) {
            message->sizes[i] = size_to_proto(&build, &facts->sizes[i]);
        }
    }
    return build_end(&build, message);
}
