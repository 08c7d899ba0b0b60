/* Three small dynamic programs over boundaries 0..L between layers.
 *
 * One copy, time or memory: best[p][j] is the least possible worst stage when the
 * first j layers are p stages. Mirrored: devices take a stage from both ends, so
 * the program runs from outside in: for a limit V, right[d][i] is the lowest
 * boundary j such that d devices hold the layers before i and from j on within V;
 * lower is always at least as good, and V is found by bisection. */
#include "plan/cut.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "model/graph.h"
#include "plan/cost.h"
#include "plan/layout_grad.h"

/* Sums over layers before each boundary. */
struct sums {
    const struct cut_input *input;
    double *seconds;
    uint64_t *slot, *state;
};

static int sums_init(struct sums *sums, const struct cut_input *input, struct gems_error *err)
{
    uint32_t n = input->n_layers;

    *sums = (struct sums){ .input = input };
    sums->seconds = calloc(n + 1, sizeof *sums->seconds);
    sums->slot = calloc(n + 1, sizeof *sums->slot);
    sums->state = calloc(n + 1, sizeof *sums->state);
    if (!sums->seconds || !sums->slot || !sums->state) {
        return gems_error_set(err, GEMS_E_NOMEM, "cut of %u layers: no memory", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        sums->seconds[i + 1] = sums->seconds[i] + input->layers[i].seconds;
        sums->slot[i + 1] = sums->slot[i] + input->layers[i].slot_bytes;
        sums->state[i + 1] = sums->state[i] + input->layers[i].state_bytes;
    }
    return GEMS_OK;
}

static void sums_fini(struct sums *sums)
{
    free(sums->seconds);
    free(sums->slot);
    free(sums->state);
}

static uint64_t slot_of(const struct sums *sums, uint32_t i, uint32_t j)
{
    return sums->slot[j] - sums->slot[i] + sums->input->layers[i].enter_bytes;
}

static uint64_t stage_bytes(const struct sums *sums, uint32_t i, uint32_t j)
{
    return sums->input->n_slots * slot_of(sums, i, j) + sums->state[j] - sums->state[i];
}

static uint64_t pair_bytes(const struct sums *sums, uint32_t i, uint32_t i2, uint32_t j2,
                           uint32_t j)
{
    uint64_t left = slot_of(sums, i, i2), right = slot_of(sums, j2, j);

    return sums->input->n_slots * (left > right ? left : right) + sums->state[i2] - sums->state[i] +
           sums->state[j] - sums->state[j2];
}

static uint64_t memory_of(const struct sums *sums, const uint32_t *counts)
{
    uint32_t p = sums->input->n_stages, first[2] = { 0, sums->input->n_layers };
    uint64_t most = 0;

    for (uint32_t d = 0; d < p; d++) {
        uint32_t left = first[0] + counts[d], right = first[1] - counts[p - 1 - d];
        uint64_t bytes = sums->input->is_mirrored && d != p - 1 - d
                             ? pair_bytes(sums, first[0], left, right, first[1])
                             : stage_bytes(sums, first[0], left);

        most = bytes > most ? bytes : most;
        first[0] = left;
        first[1] = right;
        if (sums->input->is_mirrored && 2 * (d + 1) >= p + (p % 2)) {
            break; /* the other half are the same pairs */
        }
    }
    return most;
}

uint64_t cut_memory(const struct cut_input *input, const uint32_t *counts)
{
    struct sums sums;
    uint64_t bytes = sums_init(&sums, input, NULL) == GEMS_OK ? memory_of(&sums, counts) : 0;

    sums_fini(&sums);
    return bytes;
}

double cut_slowest(const struct cut_input *input, const uint32_t *counts)
{
    double slowest = 0;
    uint32_t layer = 0;

    for (uint32_t s = 0; s < input->n_stages; s++) {
        double seconds = 0;

        for (uint32_t end = layer + counts[s]; layer < end; layer++) {
            seconds += input->layers[layer].seconds;
        }
        slowest = seconds > slowest ? seconds : slowest;
    }
    return slowest;
}

/* Worst stage, and how uneven the stages are. */
struct score {
    double worst, squares;
};

static bool is_less(struct score a, struct score b)
{
    return a.worst < b.worst || (a.worst == b.worst && a.squares < b.squares);
}

static double stage_value(const struct sums *sums, bool is_memory, uint32_t i, uint32_t j)
{
    return is_memory ? (double)stage_bytes(sums, i, j) : sums->seconds[j] - sums->seconds[i];
}

static int cut_one_copy(const struct sums *sums, bool is_memory, uint32_t *ret_counts,
                        struct gems_error *err)
{
    uint32_t n = sums->input->n_layers, p = sums->input->n_stages, width = n + 1;
    struct score *best = calloc((size_t)(p + 1) * width, sizeof *best);
    uint32_t *from = calloc((size_t)(p + 1) * width, sizeof *from);

    if (!best || !from) {
        free(best);
        free(from);
        return gems_error_set(err, GEMS_E_NOMEM, "cut of %u layers: no memory", n);
    }
    for (size_t i = 0; i < (size_t)(p + 1) * width; i++) {
        best[i].worst = DBL_MAX;
    }
    best[0].worst = 0;
    for (uint32_t s = 1; s <= p; s++) {
        for (uint32_t j = s; j <= n - (p - s); j++) {
            for (uint32_t i = s - 1; i < j; i++) {
                struct score before = best[(s - 1) * width + i], now;
                double value = stage_value(sums, is_memory, i, j);

                now.worst = before.worst > value ? before.worst : value;
                now.squares = before.squares + value * value;
                if (before.worst < DBL_MAX && is_less(now, best[s * width + j])) {
                    best[s * width + j] = now;
                    from[s * width + j] = i;
                }
            }
        }
    }
    for (uint32_t s = p, j = n; s > 0; s--) {
        ret_counts[s - 1] = j - from[s * width + j];
        j = from[s * width + j];
    }
    free(best);
    free(from);
    return GEMS_OK;
}

struct mirror {
    const struct sums *sums;
    uint32_t *right, *from; /* by device, boundary */
};

static const uint32_t UNREACHABLE = UINT32_MAX;

/* Devices take pairs of stages within the limit; false if not all layers go. */
static bool mirror_try(struct mirror *m, uint64_t limit, uint32_t *ret_counts)
{
    uint32_t n = m->sums->input->n_layers, p = m->sums->input->n_stages, half = p / 2;
    uint32_t width = n + 1;

    memset(m->right, 0xff, (size_t)(half + 1) * width * sizeof *m->right);
    m->right[0] = n;
    for (uint32_t d = 0; d < half; d++) {
        const uint32_t *right = &m->right[d * width];
        uint32_t *next = &m->right[(d + 1) * width], left_over = p - 2 * (d + 1);

        for (uint32_t i = 0; i < n; i++) {
            uint32_t j2 = 0;

            if (right[i] == UNREACHABLE) {
                continue;
            }
            for (uint32_t i2 = i + 1; i2 + left_over < right[i]; i2++) {
                j2 = j2 > i2 + left_over ? j2 : i2 + left_over;
                while (j2 < right[i] && pair_bytes(m->sums, i, i2, j2, right[i]) > limit) {
                    j2++;
                }
                if (j2 == right[i]) {
                    break;
                }
                if (j2 < next[i2]) {
                    next[i2] = j2;
                    m->from[(d + 1) * width + i2] = i;
                }
            }
        }
    }
    for (uint32_t i = 0; i <= n; i++) {
        uint32_t j = m->right[half * width + i];
        bool is_end =
            j != UNREACHABLE && (p % 2 ? j > i && stage_bytes(m->sums, i, j) <= limit : j == i);

        if (!is_end) {
            continue;
        }
        if (p % 2) {
            ret_counts[half] = j - i;
        }
        for (uint32_t d = half, at = i; d > 0; d--) {
            uint32_t before = m->from[d * width + at];

            ret_counts[d - 1] = at - before;
            ret_counts[p - d] = m->right[(d - 1) * width + before] - m->right[d * width + at];
            at = before;
        }
        return true;
    }
    return false;
}

static int cut_mirrored(const struct sums *sums, uint32_t *ret_counts, struct gems_error *err)
{
    uint32_t n = sums->input->n_layers, half = sums->input->n_stages / 2;
    size_t cells = (size_t)(half + 1) * (n + 1);
    struct mirror m = { .sums = sums };
    uint64_t low = 0, high = UINT64_MAX / 2;
    int status = GEMS_OK;

    m.right = malloc(cells * sizeof *m.right);
    m.from = calloc(cells, sizeof *m.from);
    if (!m.right || !m.from) {
        status = gems_error_set(err, GEMS_E_NOMEM, "cut of %u layers: no memory", n);
    }
    while (status == GEMS_OK && low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (mirror_try(&m, middle, ret_counts)) {
            high = memory_of(sums, ret_counts) < middle ? memory_of(sums, ret_counts) : middle;
        } else {
            low = middle + 1;
        }
    }
    if (status == GEMS_OK && !mirror_try(&m, low, ret_counts)) {
        status = gems_error_set(err, GEMS_E_INTERNAL, "cut of %u layers into %u stages failed", n,
                                sums->input->n_stages);
    }
    free(m.right);
    free(m.from);
    return status;
}

/* Moves single layers over boundaries while that helps. */
static void improve(const struct sums *sums, uint32_t *counts)
{
    uint32_t p = sums->input->n_stages;
    uint64_t bytes = memory_of(sums, counts);
    double slowest = cut_slowest(sums->input, counts);
    bool is_better = true;

    while (is_better) {
        is_better = false;
        for (uint32_t k = 0; k < 2 * (p - 1); k++) {
            uint32_t to = k / 2 + k % 2, from = k / 2 + 1 - k % 2;
            uint64_t new_bytes;
            double new_slowest;

            if (counts[from] < 2) {
                continue;
            }
            counts[from]--;
            counts[to]++;
            new_bytes = memory_of(sums, counts);
            new_slowest = cut_slowest(sums->input, counts);
            if (new_bytes < bytes || (new_bytes == bytes && new_slowest < slowest)) {
                bytes = new_bytes;
                slowest = new_slowest;
                is_better = true;
            } else {
                counts[from]++;
                counts[to]--;
            }
        }
    }
}

int cut_by_time(const struct cut_input *input, uint32_t *ret_counts, struct gems_error *err)
{
    struct sums sums;
    int status = sums_init(&sums, input, err);

    if (status == GEMS_OK) {
        status = cut_one_copy(&sums, false, ret_counts, err);
    }
    sums_fini(&sums);
    return status;
}

int cut_by_memory(const struct cut_input *input, uint32_t *ret_counts, struct gems_error *err)
{
    struct sums sums;
    int status = sums_init(&sums, input, err);

    if (status == GEMS_OK) {
        status = input->is_mirrored ? cut_mirrored(&sums, ret_counts, err)
                                    : cut_one_copy(&sums, true, ret_counts, err);
    }
    if (status == GEMS_OK) {
        improve(&sums, ret_counts);
    }
    sums_fini(&sums);
    return status;
}

/* Is the tensor kept from forward to backward by some operator? */
static void mark_kept(const struct graph *graph, bool *ret_is_kept)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct node *node = &graph->nodes[i];

        ret_is_kept[i] = ret_is_kept[i] || (node_backward_needs(node) & NEED_Y);
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            ret_is_kept[node->inputs[k]] =
                ret_is_kept[node->inputs[k]] || (layout_reads_x(node) & (1u << k));
        }
    }
}

int cut_layers(const struct graph *graph, const struct facts *facts, double n_state,
               struct cut_layer *ret_layers, struct gems_error *err)
{
    bool *is_kept = calloc(graph->n_nodes, sizeof *is_kept);
    uint32_t *last_layer = calloc(graph->n_nodes, sizeof *last_layer);

    if (!is_kept || !last_layer) {
        free(is_kept);
        free(last_layer);
        return gems_error_set(err, GEMS_E_NOMEM, "cut of %u layers: no memory", graph->n_layers);
    }
    mark_kept(graph, is_kept);
    memset(ret_layers, 0, graph->n_layers * sizeof *ret_layers);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct node *node = &graph->nodes[i];
        const struct op_facts *op = &facts->ops[i];
        struct cut_layer *layer = &ret_layers[node->layer];
        struct cost_pass pass = cost_node(graph, facts, i);

        layer->seconds += pass.forward + pass.backward;
        layer->slot_bytes += op->kept_bytes + (is_kept[i] ? op->out_bytes : 0);
        layer->state_bytes +=
            op->param_bytes + op->param2_bytes + (uint64_t)(n_state * (double)op->param_bytes);
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            last_layer[node->inputs[k]] = node->layer;
        }
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        for (uint32_t l = graph->nodes[i].layer + 1; l <= last_layer[i]; l++) {
            ret_layers[l].enter_bytes += facts->ops[i].out_bytes;
        }
    }
    free(is_kept);
    free(last_layer);
    return GEMS_OK;
}
