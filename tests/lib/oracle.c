#include "tests/lib/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "model/backward.h"
#include "plan/program.h"

enum { MAX_SETS = 6, MAX_LEVELS = 12, N_STATES = 2 };

/* Memory of the device, with its size for the way back. */
struct buffer {
    void *memory;
    uint64_t bytes;
};

/* Operators and tensors of one (batch size, mode). Index: node. */
struct set {
    uint32_t batch; /* 0: free */
    enum be_mode mode;
    struct be_op **ops;
    struct buffer *out, *grad, *kept;
    struct buffer scratch, part[MODEL_MAX_INPUTS]; /* part: a contribution to be added */
};

struct oracle {
    const struct graph *graph;
    const struct backend *backend;
    struct be_device *dev;
    enum be_type type;
    struct backward_step *steps;
    uint32_t n_steps;
    uint64_t *param_at, *param2_at; /* offsets of the nodes' blocks */
    struct buffer params, params2, states[N_STATES], grads[MAX_LEVELS];
    struct set sets[MAX_SETS];
    uint32_t n_microbatches; /* of the last step */
};

static uint64_t element_bytes(const struct oracle *o)
{
    return o->type == BE_F64 ? sizeof(double) : sizeof(float);
}

static int take(struct oracle *o, uint64_t bytes, struct buffer *ret_buffer, struct gems_error *err)
{
    struct buffer buffer = { .bytes = bytes };
    int st = bytes ? o->backend->device->alloc(o->dev, bytes, &buffer.memory, err) : GEMS_OK;

    if (st == GEMS_OK) {
        *ret_buffer = buffer;
    }
    return st;
}

static void give(struct oracle *o, struct buffer *buffer)
{
    if (buffer->memory) {
        o->backend->device->free(o->dev, buffer->memory, buffer->bytes);
    }
}

static void set_fini(struct oracle *o, struct set *set)
{
    for (uint32_t i = 0; set->batch && i < o->graph->n_nodes; i++) {
        if (set->ops && set->ops[i]) {
            o->backend->ops->destroy(set->ops[i]);
        }
        if (set->out && set->grad && set->kept) {
            give(o, &set->out[i]);
            give(o, &set->grad[i]);
            give(o, &set->kept[i]);
        }
    }
    give(o, &set->scratch);
    for (uint32_t k = 0; k < MODEL_MAX_INPUTS; k++) {
        give(o, &set->part[k]);
    }
    free(set->ops);
    free(set->out);
    free(set->grad);
    free(set->kept);
}

void oracle_destroy(struct oracle *o)
{
    if (!o) {
        return;
    }
    for (uint32_t s = 0; s < MAX_SETS; s++) {
        set_fini(o, &o->sets[s]);
    }
    give(o, &o->params);
    give(o, &o->params2);
    for (uint32_t i = 0; i < N_STATES; i++) {
        give(o, &o->states[i]);
    }
    for (uint32_t i = 0; i < MAX_LEVELS; i++) {
        give(o, &o->grads[i]);
    }
    if (o->dev) {
        o->backend->device->close(o->dev);
    }
    free(o->steps);
    free(o->param_at);
    free(o->param2_at);
    free(o);
}

/* Operators and tensors of a batch size and mode, made when first asked for. */
static int set_make(struct oracle *o, struct set *set, struct gems_error *err)
{
    uint32_t n = o->graph->n_nodes;
    uint64_t scratch = 0, largest = 0;
    int st = GEMS_OK;

    set->ops = calloc(n, sizeof *set->ops);
    set->out = calloc(n, sizeof *set->out);
    set->grad = calloc(n, sizeof *set->grad);
    set->kept = calloc(n, sizeof *set->kept);
    if (!set->ops || !set->out || !set->grad || !set->kept) {
        return gems_error_set(err, GEMS_E_NOMEM, "oracle: no memory");
    }
    for (uint32_t i = 0; st == GEMS_OK && i < n; i++) {
        struct be_op_desc desc = { o->graph, i, set->batch, set->mode };
        const struct be_op_info *info;

        st = o->backend->ops->create(o->dev, &desc, &set->ops[i], err);
        if (st < 0) {
            break;
        }
        info = o->backend->ops->info(set->ops[i]);
        scratch = info->scratch_bytes > scratch ? info->scratch_bytes : scratch;
        largest = info->out_bytes > largest ? info->out_bytes : largest;
        st = take(o, info->out_bytes, &set->out[i], err);
        st = st < 0 ? st : take(o, info->out_bytes, &set->grad[i], err);
        st = st < 0 ? st : take(o, info->kept_bytes, &set->kept[i], err);
    }
    st = st < 0 ? st : take(o, scratch, &set->scratch, err);
    for (uint32_t k = 0; st == GEMS_OK && k < MODEL_MAX_INPUTS; k++) {
        st = take(o, largest, &set->part[k], err);
    }
    return st;
}

static int set_find(struct oracle *o, uint32_t batch, enum be_mode mode, struct set **ret_set,
                    struct gems_error *err)
{
    for (uint32_t s = 0; s < MAX_SETS; s++) {
        struct set *set = &o->sets[s];

        if (set->batch == 0) {
            int st;

            set->batch = batch;
            set->mode = mode;
            st = set_make(o, set, err);
            if (st < 0) {
                return st;
            }
        }
        if (set->batch == batch && set->mode == mode) {
            *ret_set = set;
            return GEMS_OK;
        }
    }
    return gems_error_set(err, GEMS_E_INTERNAL, "oracle: more than %d batch sizes", MAX_SETS);
}

/* Pointers of a node's calls. */
static struct be_args args_of(struct oracle *o, const struct set *set, uint32_t i, void *grads)
{
    const struct node *node = &o->graph->nodes[i];
    struct be_args args = { .y = set->out[i].memory,
                            .kept = set->kept[i].memory,
                            .dy = set->grad[i].memory,
                            .params = (char *)o->params.memory + o->param_at[i],
                            .params2 = (char *)o->params2.memory + o->param2_at[i],
                            .scratch = set->scratch.memory };

    for (uint32_t k = 0; k < node->n_inputs; k++) {
        args.x[k] = set->out[node->inputs[k]].memory;
    }
    if (grads) {
        args.grads = (char *)grads + o->param_at[i];
    }
    return args;
}

static int derive_all(struct oracle *o, struct set *set, struct gems_error *err)
{
    int st = GEMS_OK;

    for (uint32_t i = 0; st == GEMS_OK && i < o->graph->n_nodes; i++) {
        st = o->backend->ops->derive(set->ops[i], (char *)o->params.memory + o->param_at[i],
                                     (char *)o->params2.memory + o->param2_at[i], err);
    }
    return st;
}

/* Initial weights, by way of the operators of batch one. */
static int init_params(struct oracle *o, struct set *set, uint64_t seed, struct gems_error *err)
{
    int st = GEMS_OK;

    for (uint32_t i = 0; st == GEMS_OK && i < o->graph->n_nodes; i++) {
        struct param params[MODEL_MAX_PARAMS];
        uint32_t n = node_params(o->graph, i, params);

        for (uint32_t p = 0; st == GEMS_OK && p < n; p++) {
            void *values = malloc(param_count(&params[p]) * element_bytes(o));

            if (!values) {
                return gems_error_set(err, GEMS_E_NOMEM, "oracle: no memory");
            }
            param_init(o->graph, i, &params[p], seed, o->type == BE_F64, values);
            st = o->backend->ops->param_import(set->ops[i], p, values,
                                               (char *)o->params.memory + o->param_at[i], err);
            free(values);
        }
    }
    return st < 0 ? st : derive_all(o, set, err);
}

static int take_params(struct oracle *o, const struct set *set, struct gems_error *err)
{
    uint64_t bytes = 0, bytes2 = 0;
    int st;

    o->param_at = calloc(o->graph->n_nodes, sizeof *o->param_at);
    o->param2_at = calloc(o->graph->n_nodes, sizeof *o->param2_at);
    if (!o->param_at || !o->param2_at) {
        return gems_error_set(err, GEMS_E_NOMEM, "oracle: no memory");
    }
    for (uint32_t i = 0; i < o->graph->n_nodes; i++) {
        const struct be_op_info *info = o->backend->ops->info(set->ops[i]);

        o->param_at[i] = bytes;
        o->param2_at[i] = bytes2;
        bytes += info->param_bytes;
        bytes2 += info->param2_bytes;
    }
    st = take(o, bytes, &o->params, err);
    st = st < 0 ? st : take(o, bytes2, &o->params2, err);
    for (uint32_t i = 0; st == GEMS_OK && i < N_STATES; i++) {
        st = take(o, bytes, &o->states[i], err);
    }
    return st < 0 ? st : take(o, bytes, &o->grads[0], err);
}

int oracle_create(const struct oracle_config *config, struct oracle **ret_oracle,
                  struct gems_error *err)
{
    struct oracle *o = calloc(1, sizeof *o);
    struct set *set = NULL;
    int st;

    if (!o) {
        return gems_error_set(err, GEMS_E_NOMEM, "oracle: no memory");
    }
    o->graph = config->graph;
    o->backend = config->backend;
    o->type = config->type;
    st = o->backend->device->open(0, config->threads, config->type, &o->dev, err);
    st = st < 0 ? st
                : backward_derive(o->graph, 0, o->graph->n_nodes, &o->steps, &o->n_steps, err);
    st = st < 0 ? st : set_find(o, 2, BE_TRAIN, &set, err);
    st = st < 0 ? st : take_params(o, set, err);
    st = st < 0 ? st : init_params(o, set, config->seed, err);
    if (st < 0) {
        oracle_destroy(o);
        return st;
    }
    *ret_oracle = o;
    return GEMS_OK;
}

static int forward(struct oracle *o, struct set *set, const void *images, const uint32_t *labels,
                   const struct be_draw *draw, struct oracle_result *result,
                   struct gems_error *err)
{
    uint64_t bytes = set->batch * shape_count(&o->graph->nodes[0].out) * element_bytes(o);
    int st = o->backend->device->copy_in(o->dev, set->out[0].memory, images, bytes, err);

    for (uint32_t i = 0; st == GEMS_OK && i < o->graph->n_nodes; i++) {
        struct be_args args = args_of(o, set, i, NULL);
        double loss = 0.0;
        uint32_t n_correct = 0;

        args.labels = labels;
        args.draw = *draw;
        args.loss_sum = &loss;
        args.n_correct = &n_correct;
        st = o->backend->ops->forward(set->ops[i], &args, err);
        result->loss_sum += loss;
        result->n_correct += n_correct;
    }
    return st;
}

/* Contributions that an operator wrote beside, or that are dy itself. */
static int add_contributions(struct oracle *o, struct set *set, const struct backward_step *step,
                             struct gems_error *err)
{
    const struct node *node = &o->graph->nodes[step->node];
    int st = GEMS_OK;

    for (uint32_t k = 0; st == GEMS_OK && k < node->n_inputs; k++) {
        struct buffer *to = &set->grad[node->inputs[k]];
        const void *from =
            step->how[k] == GRAD_PASS ? set->grad[step->node].memory : set->part[k].memory;

        if (step->how[k] == GRAD_NONE || (step->how[k] == GRAD_WRITE && step->is_first[k])) {
            continue;
        }
        if (step->is_first[k]) {
            memcpy(to->memory, from, to->bytes);
        } else {
            st = o->backend->vector->add(o->dev, to->memory, from, to->memory,
                                         to->bytes / element_bytes(o), err);
        }
    }
    return st;
}

static int backward_node(struct oracle *o, struct set *set, const struct backward_step *step,
                         struct be_args *args, struct gems_error *err)
{
    const struct node *node = &o->graph->nodes[step->node];
    int st;

    for (uint32_t k = 0; k < node->n_inputs; k++) {
        if (step->how[k] == GRAD_WRITE) {
            args->dx[k] =
                step->is_first[k] ? set->grad[node->inputs[k]].memory : set->part[k].memory;
        }
    }
    st = o->backend->ops->backward_input(set->ops[step->node], args, err);
    if (st == GEMS_OK && step->has_weights) {
        st = o->backend->ops->backward_weight(set->ops[step->node], args, err);
    }
    return st < 0 ? st : add_contributions(o, set, step, err);
}

/* Micro-batch i of a step into gradient buffer `grads`. */
static int run_microbatch(struct oracle *o, const struct oracle_batch *batch, uint32_t i,
                          bool is_first, void *grads, struct oracle_result *result,
                          struct gems_error *err)
{
    uint32_t first = i * batch->microbatch, rest = batch->n - first;
    uint32_t n = rest < batch->microbatch ? rest : batch->microbatch;
    const uint32_t *labels = batch->labels + first;
    const char *images = (const char *)batch->images +
                         first * shape_count(&o->graph->nodes[0].out) * element_bytes(o);
    struct be_draw draw = batch->draw;
    struct set *set = NULL;
    int st = set_find(o, n, BE_TRAIN, &set, err);

    draw.first_sample += first;
    st = st < 0 ? st : forward(o, set, images, labels, &draw, result, err);
    for (uint32_t s = 0; st == GEMS_OK && s < o->n_steps; s++) {
        struct be_args args = args_of(o, set, o->steps[s].node, grads);
        double decay = o->graph->nodes[o->steps[s].node].decay;

        args.labels = labels;
        args.draw = draw;
        args.grads_write = is_first;
        args.grad_scale = 1.0 / (double)batch->n;
        args.stat_weight = (1.0 - decay) * pow(decay, (double)(o->n_microbatches - 1 - i));
        st = backward_node(o, set, &o->steps[s], &args, err);
    }
    return st;
}

/* Sum of blocks [first, first + n) into gradient buffer `level`. */
static int run_blocks(struct oracle *o, const struct oracle_batch *batch, uint32_t first,
                      uint32_t n, uint32_t level, struct oracle_result *result, bool *ret_is_empty,
                      struct gems_error *err)
{
    uint32_t begin = gradient_block_first(first, o->n_microbatches, batch->n_blocks);
    uint32_t end = gradient_block_first(first + n, o->n_microbatches, batch->n_blocks);
    uint32_t split = n > 1 ? gradient_split(n) : 0;
    bool is_left_empty, is_right_empty;
    int st = GEMS_OK;

    *ret_is_empty = begin == end;
    if (!o->grads[level].memory) {
        st = take(o, o->params.bytes, &o->grads[level], err);
    }
    if (n == 1) {
        for (uint32_t i = begin; st == GEMS_OK && i < end; i++) {
            st = run_microbatch(o, batch, i, i == begin, o->grads[level].memory, result, err);
        }
        return st;
    }
    st = st < 0 ? st : run_blocks(o, batch, first, split, level, result, &is_left_empty, err);
    if (st < 0) {
        return st;
    }
    st = run_blocks(o, batch, first + split, n - split, is_left_empty ? level : level + 1, result,
                    &is_right_empty, err);
    if (st < 0 || is_left_empty || is_right_empty) {
        return st;
    }
    return o->backend->vector->add(o->dev, o->grads[level].memory, o->grads[level + 1].memory,
                                   o->grads[level].memory, o->params.bytes / element_bytes(o), err);
}

int oracle_gradients(struct oracle *o, const struct oracle_batch *batch,
                     struct oracle_result *ret_result, struct gems_error *err)
{
    struct oracle_result result = { 0 };
    bool is_empty;
    int st;

    o->n_microbatches = (batch->n + batch->microbatch - 1) / batch->microbatch;
    st = run_blocks(o, batch, 0, batch->n_blocks, 0, &result, &is_empty, err);
    if (st == GEMS_OK) {
        *ret_result = result;
    }
    return st;
}

static int apply_param(struct oracle *o, const struct oracle_update *update, uint32_t node,
                       enum param_role role, uint64_t offset, uint64_t n, struct gems_error *err)
{
    const struct be_vector *vector = o->backend->vector;
    char *w = (char *)o->params.memory + offset, *g = (char *)o->grads[0].memory + offset;
    char *s1 = (char *)o->states[0].memory + offset, *s2 = (char *)o->states[1].memory + offset;
    struct be_sgd sgd = update->sgd;
    struct be_adam adam = update->adam;

    if (role == PARAM_MEAN || role == PARAM_VARIANCE) {
        double keep = pow(o->graph->nodes[node].decay, (double)o->n_microbatches);

        return vector->decay_add(o->dev, w, g, n, keep, err);
    }
    if (role != PARAM_WEIGHT) {
        sgd.weight_decay = adam.weight_decay = 0.0;
    }
    if (update->kind == ORACLE_ADAM) {
        return vector->adam(o->dev, w, g, s1, s2, n, &adam, err);
    }
    return vector->sgd(o->dev, w, g, sgd.momentum != 0.0 ? s1 : NULL, n, &sgd, err);
}

int oracle_apply(struct oracle *o, const struct oracle_update *update, struct gems_error *err)
{
    int st = GEMS_OK;

    for (uint32_t i = 0; st == GEMS_OK && i < o->graph->n_nodes; i++) {
        const struct be_op_info *info = o->backend->ops->info(o->sets[0].ops[i]);
        struct param params[MODEL_MAX_PARAMS];

        node_params(o->graph, i, params);
        for (uint32_t p = 0; st == GEMS_OK && p < info->n_params; p++) {
            st = apply_param(o, update, i, params[p].role, o->param_at[i] + info->params[p].offset,
                             info->params[p].elements, err);
        }
    }
    return st < 0 ? st : derive_all(o, &o->sets[0], err);
}

int oracle_evaluate(struct oracle *o, const struct oracle_batch *batch,
                    struct oracle_result *ret_result, struct gems_error *err)
{
    uint64_t sample = shape_count(&o->graph->nodes[0].out) * element_bytes(o);
    struct oracle_result result = { 0 };
    int st = GEMS_OK;

    for (uint32_t first = 0; st == GEMS_OK && first < batch->n; first += batch->microbatch) {
        uint32_t rest = batch->n - first;
        struct set *set = NULL;

        st = set_find(o, rest < batch->microbatch ? rest : batch->microbatch, BE_EVAL, &set, err);
        st = st < 0 ? st : forward(o, set, (const char *)batch->images + first * sample,
                                   batch->labels + first, &batch->draw, &result, err);
    }
    if (st == GEMS_OK) {
        *ret_result = result;
    }
    return st;
}

static char *block_of(struct oracle *o, enum oracle_what what, uint32_t node)
{
    const struct buffer *buffers[] = { [ORACLE_PARAM] = &o->params,
                                       [ORACLE_GRADIENT] = &o->grads[0],
                                       [ORACLE_STATE1] = &o->states[0],
                                       [ORACLE_STATE2] = &o->states[1] };

    return (char *)buffers[what]->memory + o->param_at[node];
}

int oracle_export(struct oracle *o, enum oracle_what what, uint32_t node, uint32_t p,
                  void *ret_plain, struct gems_error *err)
{
    return o->backend->ops->param_export(o->sets[0].ops[node], p, block_of(o, what, node),
                                         ret_plain, err);
}

int oracle_import(struct oracle *o, enum oracle_what what, uint32_t node, uint32_t p,
                  const void *plain, struct gems_error *err)
{
    int st = o->backend->ops->param_import(o->sets[0].ops[node], p, plain, block_of(o, what, node),
                                           err);

    return st < 0 || what != ORACLE_PARAM ? st : derive_all(o, &o->sets[0], err);
}
