#define REAL float
#define REAL_SQRT sqrtf
#define REF_KERNELS ref_kernels_f32
#include "worker/backend/ref/kernels.inc"
