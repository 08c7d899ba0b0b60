#include "plan/cost.h"

/* One core with wide vector units, sustained; only ratios matter to a choice. */
static const double FLOPS_SECOND = 4e10;
static const double BYTES_SECOND = 8e9;

double cost_forward_flops(const struct graph *graph, uint32_t node, uint32_t n)
{
    return 2.0 * (double)node_macs(graph, node) * n;
}

double cost_backward_flops(const struct graph *graph, uint32_t node, uint32_t n)
{
    /* gradients of input and of weights each multiply as often as forward */
    return 2 * cost_forward_flops(graph, node, n);
}

static double max_double(double a, double b)
{
    return a > b ? a : b;
}

struct cost_pass cost_node(const struct graph *graph, const struct facts *facts, uint32_t node)
{
    const struct op_facts *op = &facts->ops[node];
    const struct node *n = &graph->nodes[node];
    double bytes = (double)op->out_bytes + (double)op->kept_bytes + (double)op->param_bytes;
    struct cost_pass pass = {
        .forward = op->forward_seconds,
        .backward = op->backward_input_seconds + op->backward_weight_seconds,
        .weight = op->backward_weight_seconds,
    };

    for (uint32_t k = 0; k < n->n_inputs; k++) {
        bytes += (double)facts->ops[n->inputs[k]].out_bytes;
    }
    if (n->kind == OP_INPUT) {
        return (struct cost_pass){ 0 };
    }
    if (pass.forward <= 0) {
        pass.forward = max_double(cost_forward_flops(graph, node, facts->batch) / FLOPS_SECOND,
                                  bytes / BYTES_SECOND);
    }
    if (pass.backward <= 0) {
        pass.backward = max_double(cost_backward_flops(graph, node, facts->batch) / FLOPS_SECOND,
                                   2 * bytes / BYTES_SECOND);
        pass.weight = op->param_bytes ? pass.backward / 2 : 0;
    }
    return pass;
}

struct cost_pass cost_range(const struct graph *graph, const struct facts *facts, uint32_t first,
                            uint32_t last)
{
    struct cost_pass sum = { 0 };

    for (uint32_t i = first; i < last; i++) {
        struct cost_pass pass = cost_node(graph, facts, i);

        sum.forward += pass.forward;
        sum.backward += pass.backward;
        sum.weight += pass.weight;
    }
    return sum;
}

double cost_stream(uint64_t bytes)
{
    return 2 * (double)bytes / BYTES_SECOND;
}

struct cost_link cost_link(bool is_remote)
{
    return is_remote ? (struct cost_link){ 5e-5, 1e9 } : (struct cost_link){ 5e-6, 4e9 };
}
