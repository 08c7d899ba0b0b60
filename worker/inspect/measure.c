/* Seconds of operators, each run alone on a device. */
#include "worker/inspect/inspect.h"

#include <stdlib.h>
#include <time.h>

#include "common/error.h"
#include "worker/inspect/shapes.h"

enum { N_RUNS = 5, N_WARM = 1 };

/* Memory of one operator's calls. */
struct bench {
    const struct backend *backend;
    struct be_device *device;
    struct be_op *op;
    struct be_args args;
    void *memory;
    uint64_t bytes;
};

typedef int (*call_fn)(struct be_op *op, const struct be_args *args, struct gems_error *err);

static double now_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int time_call(struct bench *bench, call_fn call, double *ret_seconds, struct gems_error *err)
{
    double seconds[N_RUNS];

    for (int i = -N_WARM; i < N_RUNS; i++) {
        double start = now_seconds();
        struct be_event *event;
        int st = call(bench->op, &bench->args, err);

        st = st < 0 ? st : bench->backend->device->event_record(bench->device, &event, err);
        if (st < 0) {
            return st;
        }
        st = bench->backend->device->event_wait(event, err);
        bench->backend->device->event_release(event);
        if (st < 0) {
            return st;
        }
        if (i >= 0) {
            seconds[i] = now_seconds() - start;
        }
    }
    qsort(seconds, N_RUNS, sizeof seconds[0], by_value);
    *ret_seconds = seconds[N_RUNS / 2];
    return GEMS_OK;
}

/* Hands out parts of the operator's memory; counts first, with base NULL. */
static void *take(char *base, uint64_t *at, uint64_t bytes)
{
    void *part = base ? base + *at : NULL;

    *at += (bytes + 255) / 256 * 256;
    return part;
}

static uint64_t place(const struct graph *graph, const struct facts *facts, uint32_t node,
                      char *base, struct be_args *args)
{
    const struct op_facts *own = &facts->ops[node];
    const struct node *n = &graph->nodes[node];
    uint64_t at = 0;

    for (uint32_t k = 0; k < n->n_inputs; k++) {
        bool is_image = graph->nodes[n->inputs[k]].kind == OP_INPUT;

        args->x[k] = take(base, &at, facts->ops[n->inputs[k]].out_bytes);
        args->dx[k] = is_image ? NULL : take(base, &at, facts->ops[n->inputs[k]].out_bytes);
    }
    args->y = take(base, &at, own->out_bytes);
    args->dy = take(base, &at, own->out_bytes);
    args->kept = take(base, &at, own->kept_bytes);
    args->scratch = take(base, &at, own->scratch_bytes);
    args->params = take(base, &at, own->param_bytes);
    args->params2 = take(base, &at, own->param2_bytes);
    args->grads = take(base, &at, own->param_bytes);
    args->labels = take(base, &at, facts->batch * sizeof(uint32_t));
    return at;
}

static int time_passes(struct bench *bench, bool has_gradient, struct op_facts *facts,
                       struct gems_error *err)
{
    const struct be_ops *ops = bench->backend->ops;
    int st = time_call(bench, ops->forward, &facts->forward_seconds, err);

    if (st == GEMS_OK && has_gradient) {
        st = time_call(bench, ops->backward_input, &facts->backward_input_seconds, err);
    }
    if (st == GEMS_OK && facts->param_bytes > 0) {
        st = time_call(bench, ops->backward_weight, &facts->backward_weight_seconds, err);
    }
    return st;
}

static int measure_node(const struct graph *graph, const struct backend *backend,
                        struct be_device *device, struct facts *facts, uint32_t node,
                        bool has_gradient, struct gems_error *err)
{
    struct bench bench = { .backend = backend, .device = device };
    struct be_op_desc desc = { graph, node, facts->batch, BE_TRAIN };
    double loss;
    uint32_t n_correct;
    int st = backend->ops->create(device, &desc, &bench.op, err);

    if (st < 0) {
        return st;
    }
    bench.bytes = place(graph, facts, node, NULL, &bench.args);
    st = backend->device->alloc(device, bench.bytes, &bench.memory, err);
    if (st == GEMS_OK) {
        place(graph, facts, node, bench.memory, &bench.args);
        for (uint32_t k = 0; !has_gradient && k < MODEL_MAX_INPUTS; k++) {
            bench.args.dx[k] = NULL;
        }
        bench.args.grads_write = true;
        bench.args.loss_sum = &loss;
        bench.args.n_correct = &n_correct;
        st = time_passes(&bench, has_gradient, &facts->ops[node], err);
        backend->device->free(device, bench.memory, bench.bytes);
    }
    backend->ops->destroy(bench.op);
    return st;
}

/* Nodes whose inputs have a gradient. */
static void find_gradients(const struct graph *graph, bool *ret_has_gradient, bool *above)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct node *node = &graph->nodes[i];
        struct param params[MODEL_MAX_PARAMS];

        for (uint32_t k = 0; k < node->n_inputs; k++) {
            ret_has_gradient[i] = ret_has_gradient[i] || above[node->inputs[k]];
        }
        above[i] = ret_has_gradient[i] || node_params(graph, i, params) > 0;
    }
}

int inspect_measure(const struct graph *graph, const struct backend *backend,
                    struct be_device *device, struct facts *facts, struct gems_error *err)
{
    uint32_t *first = calloc(graph->n_nodes, sizeof *first);
    bool *has_gradient = calloc(graph->n_nodes, sizeof *has_gradient);
    bool *above = calloc(graph->n_nodes, sizeof *above);
    int st;

    if (!first || !has_gradient || !above) {
        st = gems_error_set(err, GEMS_E_NOMEM, "model %s: no memory to measure it", graph->name);
        goto out;
    }
    st = shapes_find(graph, first, err);
    find_gradients(graph, has_gradient, above);
    for (uint32_t i = 1; st == GEMS_OK && i < graph->n_nodes; i++) {
        if (first[i] == i) {
            st = measure_node(graph, backend, device, facts, i, has_gradient[i], err);
        } else {
            facts->ops[i] = facts->ops[first[i]];
        }
    }
    facts->is_measured = st == GEMS_OK;
out:
    free(first);
    free(has_gradient);
    free(above);
    return st;
}
