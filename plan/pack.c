#include "plan/pack.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

struct ordered {
    uint64_t bytes;
    uint32_t index;
};

uint64_t pack_round(uint64_t bytes, uint64_t align)
{
    return (bytes + align - 1) / align * align;
}

static int compare(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;

    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->index < y->index ? -1 : 1;
}

int pack_place(const uint64_t *bytes, uint32_t n, uint64_t align, pack_meet_fn meet,
               const void *arg, uint64_t *ret_offsets, uint64_t *ret_total, struct gems_error *err)
{
    struct ordered *order = malloc((n + 1) * sizeof *order);
    uint32_t *placed = malloc((n + 1) * sizeof *placed); /* by offset */
    uint64_t total = 0;
    int status = GEMS_OK;

    if (!order || !placed) {
        status = gems_error_set(err, GEMS_E_NOMEM, "places of %u tensors: no memory", n);
        goto out;
    }
    for (uint32_t i = 0; i < n; i++) {
        order[i] = (struct ordered){ pack_round(bytes[i], align), i };
    }
    qsort(order, n, sizeof *order, compare);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t item = order[k].index, at = k;
        uint64_t offset = 0;

        for (uint32_t j = 0; j < k; j++) {
            uint32_t other = placed[j];
            uint64_t end = ret_offsets[other] + pack_round(bytes[other], align);

            if (end <= offset || !meet(arg, item, other)) {
                continue;
            }
            if (offset + order[k].bytes <= ret_offsets[other]) {
                break;
            }
            offset = end;
        }
        ret_offsets[item] = offset;
        total = offset + order[k].bytes > total ? offset + order[k].bytes : total;
        while (at > 0 && ret_offsets[placed[at - 1]] > offset) {
            placed[at] = placed[at - 1];
            at--;
        }
        placed[at] = item;
    }
    *ret_total = total;
out:
    free(order);
    free(placed);
    return status;
}

static bool intervals_meet(const void *arg, uint32_t a, uint32_t b)
{
    const struct pack_item *items = arg;

    return items[a].first <= items[b].last && items[b].first <= items[a].last;
}

int pack_intervals(struct pack_item *items, uint32_t n, uint64_t align, uint64_t *ret_total,
                   struct gems_error *err)
{
    uint64_t *bytes = calloc(n + 1, sizeof *bytes);
    uint64_t *offsets = malloc((n + 1) * sizeof *offsets);
    int status;

    if (!bytes || !offsets) {
        status = gems_error_set(err, GEMS_E_NOMEM, "places of %u tensors: no memory", n);
        goto out;
    }
    for (uint32_t i = 0; i < n; i++) {
        bytes[i] = items[i].bytes;
    }
    status = pack_place(bytes, n, align, intervals_meet, items, offsets, ret_total, err);
    for (uint32_t i = 0; status == GEMS_OK && i < n; i++) {
        items[i].offset = offsets[i];
    }
out:
    free(bytes);
    free(offsets);
    return status;
}
