#include "client/planview.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/output.h"
#include "common/units.h"

static const char *recompute_name(enum recompute recompute)
{
    static const char *const names[] = { [RECOMPUTE_NONE] = "none",
                                         [RECOMPUTE_CHEAP] = "cheap",
                                         [RECOMPUTE_ALL] = "all",
                                         [RECOMPUTE_AUTO] = "auto" };

    return names[recompute];
}

static json_t *whole(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *device_json(const struct rank_memory *memory, uint32_t rank)
{
    json_t *object = json_object();

    json_object_set_new(object, "rank", whole(rank));
    json_object_set_new(object, "weights_bytes", whole(memory->weights_bytes));
    json_object_set_new(object, "gradients_bytes", whole(memory->gradients_bytes));
    json_object_set_new(object, "optimizer_bytes", whole(memory->optimizer_bytes));
    json_object_set_new(object, "activations_bytes", whole(memory->activations_bytes));
    json_object_set_new(object, "buffers_bytes", whole(memory->buffers_bytes));
    json_object_set_new(object, "workspace_bytes", whole(memory->workspace_bytes));
    json_object_set_new(object, "total_bytes", whole(memory->total_bytes));
    json_object_set_new(object, "limit_bytes", whole(memory->limit_bytes));
    return object;
}

json_t *planview_json(const struct plan *plan)
{
    json_t *object = json_object(), *balance = json_array(), *devices = json_array();

    for (uint32_t i = 0; i < plan->n_stages; i++) {
        json_array_append_new(balance, whole(plan->stage_layers[i]));
    }
    for (uint32_t i = 0; i < plan->n_ranks; i++) {
        json_array_append_new(devices, device_json(&plan->memory[i], i));
    }
    json_object_set_new(object, "fits", json_boolean(plan->fits));
    json_object_set_new(object, "parameters", whole(plan->parameters));
    json_object_set_new(object, "schedule", json_string(schedule_name(plan->schedule)));
    json_object_set_new(object, "stages", whole(plan_width(plan)));
    json_object_set_new(object, "chunks", whole(plan->n_stages / plan_width(plan)));
    json_object_set_new(object, "groups", whole(plan->n_groups));
    json_object_set_new(object, "chains", whole(plan->n_chains));
    json_object_set_new(object, "microbatch", whole(plan->microbatch));
    json_object_set_new(object, "microbatches", whole(plan->n_microbatches));
    json_object_set_new(object, "gradient_blocks", whole(plan->n_blocks));
    json_object_set_new(object, "recompute", json_string(recompute_name(plan->recompute)));
    json_object_set_new(object, "balance", balance);
    json_object_set_new(object, "steps_per_epoch", whole(plan->steps_per_epoch));
    json_object_set_new(object, "steps_total", whole(plan->steps_total));
    json_object_set_new(object, "step_seconds", output_real(plan->step_seconds));
    json_object_set_new(object, "samples_per_second", output_real(plan->samples_per_second));
    json_object_set_new(object, "idle_fraction", output_real(plan->idle_fraction));
    json_object_set_new(object, "devices", devices);
    json_object_set_new(object, "advice", json_string(plan->advice));
    return object;
}

static void print_devices(const struct plan *plan)
{
    static const char *const titles[] = { "RANK",        "WEIGHTS", "GRADIENTS", "OPTIMIZER",
                                          "ACTIVATIONS", "BUFFERS", "WORKSPACE", "TOTAL",
                                          "LIMIT",       "FREE" };
    struct table *table = table_create(titles, sizeof titles / sizeof titles[0]);

    for (uint32_t i = 0; i < plan->n_ranks; i++) {
        const struct rank_memory *m = &plan->memory[i];
        const uint64_t bytes[] = { m->weights_bytes,     m->gradients_bytes, m->optimizer_bytes,
                                   m->activations_bytes, m->buffers_bytes,   m->workspace_bytes,
                                   m->total_bytes,       m->limit_bytes };
        char size[32];

        table_cell(table, "%u", i);
        for (size_t k = 0; k < sizeof bytes / sizeof bytes[0]; k++) {
            table_cell(table, "%s", format_size(bytes[k], size, sizeof size));
        }
        if (m->total_bytes <= m->limit_bytes) {
            table_cell(table, "%s",
                       format_size(m->limit_bytes - m->total_bytes, size, sizeof size));
        } else {
            table_cell(table, "lacks %s",
                       format_size(m->total_bytes - m->limit_bytes, size, sizeof size));
        }
    }
    table_print(table);
    table_destroy(table);
}

void planview_print(const struct plan *plan)
{
    uint32_t n_chunks = plan->n_stages / plan_width(plan);
    char time[32];

    printf("%s: %s on %u stages", plan->fits ? "fits" : "does not fit",
           schedule_name(plan->schedule), plan_width(plan));
    if (n_chunks > 1) {
        printf(" of %u chunks", n_chunks);
    }
    printf(", %u chains, %u groups; %" PRIu64 " parameters\n", plan->n_chains, plan->n_groups,
           plan->parameters);
    printf("micro-batches %u of %u, gradient blocks %u, recompute %s, layers of the %s",
           plan->n_microbatches, plan->microbatch, plan->n_blocks, recompute_name(plan->recompute),
           n_chunks > 1 ? "chunks" : "stages");
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        printf(" %u", plan->stage_layers[i]);
    }
    printf("\nstep %.4g s, %.1f samples/s, idle %.0f%%", plan->step_seconds,
           plan->samples_per_second, 100 * plan->idle_fraction);
    if (plan->steps_total > 0 && plan->step_seconds > 0) {
        printf(", %" PRIu64 " steps in %s", plan->steps_total,
               format_duration((uint64_t)(1000 * plan->step_seconds * (double)plan->steps_total),
                               time, sizeof time));
    }
    printf("\n\n");
    print_devices(plan);
    if (plan->fits && plan->advice[0]) { /* else it is the error */
        printf("\n%s\n", plan->advice);
    }
}
