/* Perceptron with any number of hidden layers: dense and ReLU each, then one
 * dense layer to the classes. Layers of the cut: one a dense layer; the first
 * takes the image and flattens it. */
#include "model/zoo_build.h"

#include <stdio.h>

#include "common/error.h"

int zoo_mlp(struct zoo_builder *b, const struct zoo_spec *spec)
{
    uint32_t x;

    if (spec->n_hidden > ZOO_MAX_HIDDEN) {
        return gems_error_set(b->err, GEMS_E_INVALID,
                              "model.hidden: has %u entries; an mlp has up to %d hidden layers",
                              spec->n_hidden, ZOO_MAX_HIDDEN);
    }
    x = zoo_flatten(b, "flatten", zoo_input(b, spec));
    for (uint32_t i = 0; i < spec->n_hidden; i++) {
        if (spec->hidden[i] == 0) {
            return gems_error_set(b->err, GEMS_E_INVALID,
                                  "model.hidden: entry %u is 0; a hidden layer has at least 1 unit",
                                  i + 1);
        }
        snprintf(b->prefix, sizeof b->prefix, "hidden%u", i);
        x = zoo_dense(b, "dense", ZOO_NO_NUMBER, x, spec->hidden[i]);
        x = zoo_relu(b, "relu", ZOO_NO_NUMBER, x);
        b->layer++;
    }
    snprintf(b->prefix, sizeof b->prefix, "output");
    zoo_loss(b, zoo_dense(b, "dense", ZOO_NO_NUMBER, x, spec->classes));
    return b->status;
}
