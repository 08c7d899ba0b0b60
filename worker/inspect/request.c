/* One request: from a job's spec to facts. */
#include "worker/inspect/inspect.h"

#include <stdlib.h>

#include "common/error.h"
#include "model/passes.h"
#include "model/zoo.h"
#include "plan/planner.h"
#include "proto/codec.h"
#include "worker/data/dataset.h"

/* Counts one data set and decodes its first sample: a wrong path, an empty
 * folder or a foreign file is found before the job is queued. */
static int count_samples(const struct job_spec *spec, bool is_eval, uint64_t *ret_n,
                         struct gems_error *err)
{
    static const enum dataset_format formats[] = { [DATA_SYNTHETIC] = DATASET_SYNTHETIC,
                                                   [DATA_IDX] = DATASET_IDX,
                                                   [DATA_IMAGEFOLDER] = DATASET_IMAGEFOLDER };
    const struct data_spec *data = &spec->data;
    struct dataset_spec want = { .format = formats[data->format],
                                 .path = is_eval ? data->eval : data->train,
                                 .is_eval = is_eval,
                                 .channels = data->channels,
                                 .height = data->height,
                                 .width = data->width,
                                 .classes = spec->model.classes,
                                 .samples = is_eval ? data->eval_samples : data->samples,
                                 .seed = spec->train.seed };
    struct dataset *set = NULL;
    uint8_t *pixels;
    int st;

    if (data->format == DATA_SYNTHETIC) {
        want.path = NULL;
    }
    st = dataset_open(&want, &set, err);
    if (st < 0) {
        return st;
    }
    *ret_n = dataset_samples(set);
    pixels = malloc((uint64_t)data->channels * data->height * data->width);
    if (!pixels) {
        st = gems_error_set(err, GEMS_E_NOMEM, "data: no memory for one sample");
    } else if (*ret_n > 0) {
        st = dataset_read(set, 0, pixels, err);
    }
    free(pixels);
    dataset_close(set);
    return st;
}

int inspect_data(const struct job_spec *spec, uint64_t *ret_n_train, uint64_t *ret_n_eval,
                 struct gems_error *err)
{
    bool is_synthetic = spec->data.format == DATA_SYNTHETIC;
    bool has_eval = is_synthetic ? spec->data.eval_samples > 0 : spec->data.eval[0] != '\0';
    uint64_t n_train = 0, n_eval = 0;
    int st = count_samples(spec, false, &n_train, err);

    if (st == GEMS_OK && has_eval) {
        st = count_samples(spec, true, &n_eval, err);
    }
    if (st == GEMS_OK) {
        *ret_n_train = n_train;
        *ret_n_eval = n_eval;
    }
    return st;
}

/* Facts for every batch size that a plan of this job may use. */
static int describe_sizes(const struct graph *graph, const struct job_spec *spec,
                          const struct backend *backend, struct be_device *device, bool is_measured,
                          struct fact_set *facts, struct gems_error *err)
{
    uint32_t sizes[FACTS_MAX_SIZES];
    uint32_t n = planner_batch_sizes(spec, facts->n_train, facts->n_eval, sizes);
    int st = GEMS_OK;

    for (uint32_t i = 0; st == GEMS_OK && i < n; i++) {
        st = inspect_facts(graph, sizes[i], backend, device, &facts->sizes[i], err);
        if (st == GEMS_OK) {
            facts->n_sizes = i + 1;
        }
        if (st == GEMS_OK && is_measured) {
            st = inspect_measure(graph, backend, device, &facts->sizes[i], err);
        }
    }
    return st;
}

static int open_device(const Gems__InspectRequest *request, const struct job_spec *spec,
                       const struct backend **ret_backend, struct be_device **ret_device,
                       struct gems_error *err)
{
    enum be_type type = spec->train.precision == PRECISION_F64 ? BE_F64 : BE_F32;
    uint32_t threads = request->threads ? request->threads : 1;
    const struct backend *backend = backend_find(request->backend, err);

    if (!backend) {
        return GEMS_E_UNSUPPORTED;
    }
    *ret_backend = backend;
    return backend->device->open(0, threads, type, ret_device, err);
}

int inspect_request(const Gems__InspectRequest *request, bool is_measured,
                    struct fact_set *ret_facts, const char **ret_kind, struct gems_error *err)
{
    const struct backend *backend = NULL;
    struct be_device *device = NULL;
    struct fact_set facts = { 0 };
    struct graph graph = { 0 };
    struct job_spec spec;
    int st;

    if (!request->spec) {
        return gems_error_set(err, GEMS_E_INVALID, "InspectRequest: no spec");
    }
    st = spec_from_proto(request->spec, &spec, err);
    if (st < 0) {
        return st;
    }
    st = zoo_build(&spec.model, &graph, err);
    st = st < 0 ? st : graph_fuse(&graph, err);
    st = st < 0 ? st : planner_settle(&graph, &spec, err);
    if (st == GEMS_OK && (request->data || spec.data.format == DATA_SYNTHETIC)) {
        st = inspect_data(&spec, &facts.n_train, &facts.n_eval, err);
    }
    st = st < 0 ? st : open_device(request, &spec, &backend, &device, err);
    if (st == GEMS_OK) {
        st = describe_sizes(&graph, &spec, backend, device, is_measured, &facts, err);
        *ret_kind = backend->kind();
        backend->device->close(device);
    }
    graph_fini(&graph);
    if (st < 0) {
        fact_set_fini(&facts);
    } else {
        *ret_facts = facts;
    }
    return st;
}
