/* Initial values of parameters, and keys of random numbers. */
#include "model/graph.h"

#include <math.h>

#include "common/rng.h"

/* FNV-1a, 64 bit, over NAME.SUFFIX: the stream of a tensor follows from its
 * full name, so that neither the cut nor an added layer elsewhere moves it. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static const uint64_t hash_start = UINT64_C(0xcbf29ce484222325);

uint64_t node_key(const struct node *node)
{
    return hash_text(hash_start, node->name) >> 8;
}

static uint64_t tensor_stream(const struct node *node, const struct param *param)
{
    uint64_t hash = hash_text(hash_start, node->name);

    hash = hash_text(hash_text(hash, "."), param->suffix);
    /* The upper byte of a stream tells its use. */
    return rng_stream(RNG_INIT, hash >> 8);
}

void param_init(const struct graph *graph, uint32_t node, const struct param *param, uint64_t seed,
                bool is_f64, void *ret_values)
{
    uint64_t count = param_count(param);
    uint64_t stream = tensor_stream(&graph->nodes[node], param);
    bool is_one = param->role == PARAM_SCALE || param->role == PARAM_VARIANCE;
    bool is_random = param->role == PARAM_WEIGHT;
    double deviation = is_random ? sqrt(2.0 / (double)param->fan_in) : 0.0;

    for (uint64_t i = 0; i < count; i++) {
        double value = is_one ? 1.0 : 0.0;

        if (is_random) {
            value = deviation * rng_normal(seed, stream, i);
        }
        if (is_f64) {
            ((double *)ret_values)[i] = value;
        } else {
            ((float *)ret_values)[i] = (float)value;
        }
    }
}
