/* The device of the cpu back end and its table. */
#include "worker/backend/cpu/cpu.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "worker/backend/backends.h"
#include "worker/backend/host.h"

/* oneDNN's number of threads belongs to the process, and so does this text. */
static char kind_text[96];

int cpu_check(dnnl_status_t status, const char *what, const char *name, struct gems_error *err)
{
    switch (status) {
    case dnnl_success:
        return GEMS_OK;
    case dnnl_out_of_memory:
        return gems_error_set(err, GEMS_E_NOMEM, "%s: %s: oneDNN has no memory", name, what);
    case dnnl_unimplemented:
        return gems_error_set(err, GEMS_E_UNSUPPORTED, "%s: %s: not offered by oneDNN", name, what);
    default:
        return gems_error_set(err, GEMS_E_DEVICE, "%s: %s: oneDNN fails with status %d", name, what,
                              (int)status);
    }
}

void cpu_enter(const struct be_device *dev)
{
    omp_set_num_threads((int)dev->threads);
}

int cpu_memory_get(struct be_device *dev, const dnnl_memory_desc_t *md, uint32_t nth,
                   dnnl_memory_t *ret_memory, struct gems_error *err)
{
    struct cpu_memory new = { .nth = nth };
    int st;

    for (uint32_t i = 0; i < dev->n_memories; i++) {
        const dnnl_memory_desc_t *known;

        st = cpu_check(dnnl_memory_get_memory_desc(dev->memories[i].object, &known), "layout",
                       "device cpu", err);
        if (st < 0) {
            return st;
        }
        if (dev->memories[i].nth == nth && dnnl_memory_desc_equal(known, md)) {
            *ret_memory = dev->memories[i].object;
            return GEMS_OK;
        }
    }
    if (dev->n_memories == dev->memories_capacity) {
        uint32_t capacity = dev->memories_capacity ? 2 * dev->memories_capacity : 64;
        struct cpu_memory *grown = realloc(dev->memories, capacity * sizeof *grown);

        if (!grown) {
            return gems_error_set(err, GEMS_E_NOMEM, "device cpu: no memory");
        }
        dev->memories = grown;
        dev->memories_capacity = capacity;
    }
    st = cpu_check(dnnl_memory_create(&new.object, md, dev->engine, DNNL_MEMORY_NONE),
                   "memory object", "device cpu", err);
    if (st == GEMS_OK) {
        dev->memories[dev->n_memories++] = new;
        *ret_memory = new.object;
    }
    return st;
}

static bool has_avx512(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

static const char *isa_name(void)
{
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
        return "sse41";
    case dnnl_cpu_isa_avx:
        return "avx";
    case dnnl_cpu_isa_avx2:
        return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
        return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core:
        return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
        return "avx512_core_amx";
    default:
        return "plain";
    }
}

static const char *cpu_kind_text(void)
{
    const dnnl_version_t *v = dnnl_version();

    if (!kind_text[0]) {
        snprintf(kind_text, sizeof kind_text, "oneDNN %d.%d.%d %s", v->major, v->minor, v->patch,
                 isa_name());
    }
    return kind_text;
}

static void cpu_close(struct be_device *dev)
{
    if (!dev) {
        return;
    }
    for (uint32_t i = 0; i < dev->n_memories; i++) {
        dnnl_memory_destroy(dev->memories[i].object);
    }
    free(dev->memories);
    if (dev->attr) {
        dnnl_primitive_attr_destroy(dev->attr);
    }
    if (dev->stream) {
        dnnl_stream_destroy(dev->stream);
    }
    if (dev->engine) {
        dnnl_engine_destroy(dev->engine);
    }
    free(dev);
}

static int make_objects(struct be_device *dev, struct gems_error *err)
{
    int st = cpu_check(dnnl_engine_create(&dev->engine, dnnl_cpu, 0), "engine", "device cpu", err);

    if (st == GEMS_OK) {
        st = cpu_check(dnnl_stream_create(&dev->stream, dev->engine, dnnl_stream_default_flags),
                       "stream", "device cpu", err);
    }
    if (st == GEMS_OK) {
        st = cpu_check(dnnl_primitive_attr_create(&dev->attr), "attributes", "device cpu", err);
    }
    if (st == GEMS_OK) {
        st =
            cpu_check(dnnl_primitive_attr_set_scratchpad_mode(dev->attr, dnnl_scratchpad_mode_user),
                      "attributes", "device cpu", err);
    }
    return st;
}

static int cpu_open(uint32_t index, uint32_t threads, enum be_type type, struct be_device **ret_dev,
                    struct gems_error *err)
{
    const dnnl_version_t *v = dnnl_version();
    struct be_device *dev;
    int st;

    (void)index; /* devices of a host differ in nothing */
    if (type != BE_F32) {
        return gems_error_set(err, GEMS_E_UNSUPPORTED, "device cpu: computes in f32 only");
    }
    if (threads == 0 || threads > 4096) {
        return gems_error_set(err, GEMS_E_INVALID, "device cpu: %u threads", threads);
    }
    dev = calloc(1, sizeof *dev);
    if (!dev) {
        return gems_error_set(err, GEMS_E_NOMEM, "device cpu: no memory");
    }
    dev->threads = threads;
    dev->blocked = has_avx512() ? dnnl_nChw16c : dnnl_nChw8c;
    st = make_objects(dev, err);
    if (st < 0) {
        cpu_close(dev);
        return st;
    }
    snprintf(kind_text, sizeof kind_text, "oneDNN %d.%d.%d %s threads %u", v->major, v->minor,
             v->patch, isa_name(), threads);
    cpu_enter(dev);
    *ret_dev = dev;
    return GEMS_OK;
}

static const struct be_device_ops cpu_device = {
    .open = cpu_open,
    .close = cpu_close,
    .alloc = host_alloc,
    .free = host_free,
    .copy_in = host_copy_in,
    .copy_out = host_copy_out,
    .event_record = host_event_record,
    .event_done = host_event_done,
    .event_wait = host_event_wait,
    .event_release = host_event_release,
};

const struct backend backend_cpu = {
    .name = "cpu",
    .is_host_memory = true,
    .kind = cpu_kind_text,
    .device = &cpu_device,
    .ops = &cpu_ops,
    .vector = &cpu_vector,
};
