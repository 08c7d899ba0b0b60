#define REAL double
#define REAL_SQRT sqrt
#define REF_KERNELS ref_kernels_f64
#include "worker/backend/ref/kernels.inc"
