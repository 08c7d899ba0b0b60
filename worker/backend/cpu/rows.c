/* Loops over the rows of a batch of images, for operators that are no primitive
 * of the library. */
#include "worker/backend/cpu/cpu.h"

enum { VALUES_MIN = 1 << 15 /* worth a team */ };

struct cpu_rows cpu_rows_of(const struct be_device *dev, const struct shape *shape)
{
    uint32_t lanes = dev->blocked == dnnl_nChw16c ? 16 : 8;

    if (shape->is_flat) {
        return (struct cpu_rows){ .lanes = shape->c, .n_blocks = 1, .pixels = 1 };
    }
    return (struct cpu_rows){ .lanes = lanes,
                              .n_blocks = (shape->c + lanes - 1) / lanes,
                              .pixels = (uint64_t)shape->h * shape->w };
}

void cpu_for_rows(const struct be_device *dev, const struct cpu_rows *rows, uint32_t batch,
                  cpu_row_fn body, const void *arg)
{
    uint64_t n = (uint64_t)batch * rows->n_blocks;

    /* OpenMP makes a team even for a loop that is not parallel. */
    if (dev->threads == 1 || n * rows->pixels * rows->lanes < VALUES_MIN) {
        for (uint64_t i = 0; i < n; i++) {
            body(arg, i / rows->n_blocks, (uint32_t)(i % rows->n_blocks));
        }
        return;
    }
    cpu_enter(dev);
#pragma omp parallel for schedule(static)
    for (uint64_t i = 0; i < n; i++) {
        body(arg, i / rows->n_blocks, (uint32_t)(i % rows->n_blocks));
    }
}
