/* Header of a safetensors file, the form in which weights leave the service.
 *
 * File: 8 bytes length N, little endian; N bytes of JSON that names every
 * tensor with its type, shape and place; then the data, without gaps, row by
 * row, little endian. Pure: the caller writes header and data.
 */
#ifndef GEMS_MODEL_SAFETENSORS_H
#define GEMS_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

struct gems_error;

enum safetensors_type { SAFETENSORS_F32, SAFETENSORS_F64 };

struct safetensors_tensor {
    const char *name;
    enum safetensors_type type;
    uint32_t n_dims; /* up to 4 */
    uint64_t dims[4];
};

/* Free text beside the tensors ("model": "resnet-20-v1"). */
struct safetensors_note {
    const char *key, *value;
};

/* Bytes of a tensor's data. */
uint64_t safetensors_bytes(const struct safetensors_tensor *tensor);

/* Length field and JSON for tensors whose data follows in this order, padded
 * with spaces so that the data begins at a multiple of 8. *ret_header is
 * owned by the caller (free). GEMS_E_INVALID: two tensors of one name, or one
 * called __metadata__; GEMS_E_NOMEM. */
int safetensors_header(const struct safetensors_tensor *tensors, uint32_t n_tensors,
                       const struct safetensors_note *notes, uint32_t n_notes, void **ret_header,
                       size_t *ret_bytes, struct gems_error *err);

#endif
