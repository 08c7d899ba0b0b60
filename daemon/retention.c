#include "daemon/retention.h"

#include <math.h>

void retention_pick(const struct store_checkpoint *rows, size_t n, uint32_t keep,
                    uint32_t keep_best, bool *ret_drop)
{
    uint32_t n_good = 0;

    if (keep == 0) {
        keep = 1;
    }
    for (size_t i = 0; i < n; i++) {
        if (rows[i].trust == CHECKPOINT_DAMAGED) {
            ret_drop[i] = n_good > 0;
        } else {
            ret_drop[i] = n_good >= keep;
            n_good++;
        }
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t n_better = 0;

        if (rows[i].trust == CHECKPOINT_DAMAGED || isnan(rows[i].eval_accuracy)) {
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            bool is_better = rows[k].trust != CHECKPOINT_DAMAGED &&
                             (rows[k].eval_accuracy > rows[i].eval_accuracy ||
                              (rows[k].eval_accuracy == rows[i].eval_accuracy && k < i));

            n_better += is_better;
        }
        if (n_better < keep_best) {
            ret_drop[i] = false;
        }
    }
}
