/* Inside of the cpu back end: oneDNN 2.6 through its C interface. Nothing of
 * that library is seen outside this folder.
 *
 * Layouts. Images of a stage are blocked by channels (nChw16c with AVX-512,
 * nChw8c without), padding channels are zero. The loader's images and flat
 * vectors are plain. Weights of convolutions lie as forward likes them; a
 * second copy serves backward_input where that one likes another layout. Both
 * are asked for with a batch of one, so that they do not depend on the batch.
 *
 * An operator is planned (primitive descriptors and sizes) and then built
 * (primitives and memory objects). A call sets the data handles of its memory
 * objects and executes: nothing is created in a step.
 *
 * Thread: a device and its operators belong to one thread at a time.
 */
#ifndef GEMS_WORKER_BACKEND_CPU_CPU_H
#define GEMS_WORKER_BACKEND_CPU_CPU_H

#include <oneapi/dnnl/dnnl.h>

#include "worker/backend/backend.h"

enum { CPU_ALIGN = 64, CPU_MAX_ARGS = 12, CPU_LANES = CPU_ALIGN / sizeof(float) };

struct be_device {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* scratch memory comes from the caller */
    dnnl_format_tag_t blocked;  /* layout of images */
    uint32_t threads;
    /* Memory objects: a call sets their pointers before it executes, so calls
     * share them. Deep networks would hold thousands of equal ones. */
    struct cpu_memory {
        dnnl_memory_t object;
        uint32_t nth; /* among arguments of one layout in one call */
    } * memories;
    uint32_t n_memories, memories_capacity;
};

/* The region that an argument of a primitive lies in. */
enum cpu_region {
    IN_X0,
    IN_X1,
    IN_X2,
    IN_X3,
    IN_Y,
    IN_KEPT,
    IN_DY,
    IN_DX,
    IN_PARAMS,
    IN_PARAMS2,
    IN_GRADS,
    IN_TEMP, /* scratch: the operator's own part */
    IN_PAD,  /* scratch: the library's part, behind it */
    IN_COUNT
};

/* Start of each region in one call. */
struct cpu_bases {
    char *at[IN_COUNT];
};

/* One primitive with its arguments. */
struct cpu_call {
    dnnl_primitive_desc_t desc; /* planned, until it is built; NULL: not in use */
    dnnl_primitive_t primitive; /* built */
    bool has_run;
    uint32_t n_args;
    struct {
        enum cpu_region region;
        uint64_t offset;
    } places[CPU_MAX_ARGS];
    dnnl_exec_arg_t args[CPU_MAX_ARGS];
};

enum cpu_call_id {
    CALL_STAGE0,   /* plain image to blocked, one an input */
    CALL_STAGE_END = CALL_STAGE0 + MODEL_MAX_INPUTS - 1,
    CALL_FORWARD,
    CALL_INPUT,   /* backward_input */
    CALL_WEIGHT,  /* backward_weight */
    CALL_REORDER, /* gradient of weights to the layout of the weights */
    CALL_DERIVE,
    CALL_COUNT
};

struct cpu_kind;

struct be_op {
    struct be_device *dev;
    const struct cpu_kind *kind;
    struct node node;
    struct shape in;                 /* of input 0 */
    uint32_t in_c[MODEL_MAX_INPUTS]; /* channels of every input */
    uint32_t batch;
    enum be_mode mode;
    bool is_dx_wanted; /* something above has weights */
    struct be_op_info info;
    struct param params[MODEL_MAX_PARAMS];
    dnnl_memory_desc_t param_md[MODEL_MAX_PARAMS]; /* layout in the block */
    dnnl_memory_desc_t x_md[MODEL_MAX_INPUTS], y_md; /* as the primitive sees them */
    struct cpu_call calls[CALL_COUNT];
    uint64_t temp_bytes, pad_bytes;
    uint64_t block_temp; /* place in IN_TEMP of a parameter block's gradient to add */
    union {
        struct {
            bool is_add_apart;   /* residual added by a loop: no kernel does it */
            uint64_t dw_temp;    /* gradient of weights before CALL_REORDER */
            uint64_t parts_temp; /* gradients of threads, point kernels */
        } conv;
        struct {
            uint64_t mean, variance, d_scale, d_shift, workspace; /* in kept */
        } norm;
        struct {
            uint64_t delta_temp; /* gradient behind the ReLU */
        } dense;
    };
};

/* What a kind of operator does; NULL: nothing to do. */
struct cpu_kind {
    int (*plan)(struct be_op *op, struct gems_error *err);
    int (*forward)(struct be_op *op, const struct be_args *args, struct gems_error *err);
    int (*backward_input)(struct be_op *op, const struct be_args *args, struct gems_error *err);
    int (*backward_weight)(struct be_op *op, const struct be_args *args, struct gems_error *err);
};

extern const struct cpu_kind cpu_conv, cpu_conv_point, cpu_batchnorm, cpu_relu, cpu_add, cpu_maxpool, cpu_avgpool,
    cpu_flatten, cpu_dense, cpu_loss, cpu_dropout, cpu_concat, cpu_pick;
extern const struct be_ops cpu_ops;
extern const struct be_vector cpu_vector;

/* Turns a status of oneDNN into ours; GEMS_OK for success. */
int cpu_check(dnnl_status_t status, const char *what, const char *name, struct gems_error *err);

/* The n-th shared memory object of a layout, made when first asked for;
 * borrowed until the device is closed. */
int cpu_memory_get(struct be_device *dev, const dnnl_memory_desc_t *md, uint32_t nth,
                   dnnl_memory_t *ret_memory, struct gems_error *err);

/* Makes the library use the device's threads on the calling thread. */
void cpu_enter(const struct be_device *dev);

static inline uint64_t cpu_align(uint64_t bytes)
{
    return (bytes + CPU_ALIGN - 1) / CPU_ALIGN * CPU_ALIGN;
}

/* md of a tensor of the graph; is_image: the loader's. */
int cpu_tensor_md(const struct be_device *dev, uint32_t batch, const struct shape *shape,
                  bool is_image, dnnl_memory_desc_t *ret_md, struct gems_error *err);
/* md of plain row-major memory. */
int cpu_plain_md(uint32_t n_dims, const uint32_t *dims, dnnl_memory_desc_t *ret_md,
                 struct gems_error *err);

/* Takes bytes of the operator's own scratch and returns their place. */
uint64_t cpu_take_temp(struct be_op *op, uint64_t bytes);
/* The same of kept memory. */
uint64_t cpu_take_kept(struct be_op *op, uint64_t bytes);
/* Appends parameter p to the block. */
void cpu_take_param(struct be_op *op, uint32_t p, const dnnl_memory_desc_t *md);

/* Makes the primitive descriptor of a call from an operation descriptor. */
int cpu_call_plan(struct be_op *op, enum cpu_call_id id, const void *op_desc,
                  dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint, struct gems_error *err);
/* The same for a reorder. */
int cpu_call_reorder(struct be_op *op, enum cpu_call_id id, const dnnl_memory_desc_t *from,
                     enum cpu_region from_region, uint64_t from_offset,
                     const dnnl_memory_desc_t *to, enum cpu_region to_region, uint64_t to_offset,
                     struct gems_error *err);
/* Says where an argument of a planned call lies. */
void cpu_call_bind(struct be_op *op, enum cpu_call_id id, int arg, enum cpu_region region,
                   uint64_t offset);
/* md of an argument of a planned call. */
const dnnl_memory_desc_t *cpu_call_md(const struct be_op *op, enum cpu_call_id id, int arg);
/* Creates the primitive and its memory objects. */
int cpu_call_build(struct be_op *op, enum cpu_call_id id, struct gems_error *err);
void cpu_call_fini(struct cpu_call *call);

/* Regions of a call; runs CALL_STAGE0 + i for an input i of images. */
int cpu_bases(struct be_op *op, const struct be_args *args, bool needs_x,
              struct cpu_bases *ret_bases, struct gems_error *err);
int cpu_call_run(struct be_op *op, enum cpu_call_id id, const struct cpu_bases *bases,
                 struct gems_error *err);

/* Zeroes what lies behind each tensor of a gradient block. */
void cpu_clear_tails(const struct be_op *op, void *grads);

/* Adds a parameter block's gradient to args->grads. */
void cpu_add_gradient(const struct be_op *op, const struct be_args *args, const void *block);

/* backward_weight for kinds whose CALL_WEIGHT and CALL_REORDER write a whole
 * gradient block: writes it, or adds it by way of scratch. */
int cpu_weight_gradient(struct be_op *op, const struct be_args *args, struct cpu_bases *bases,
                        struct gems_error *err);

/* Between these, small allocations of the library come from a fixed array; not
 * in the first execution of a primitive (has_run false), which may generate
 * code that stays. */
void cpu_pool_enter(bool has_run);
void cpu_pool_leave(bool has_run);

/* Rows of a batch of images: channels [first_c, first_c + lanes) of sample n,
 * blocked by lanes; a flat vector has one row a sample, all of it lanes. */
struct cpu_rows {
    uint32_t lanes;    /* channels side by side */
    uint32_t n_blocks; /* rows a sample */
    uint64_t pixels;
};

struct cpu_rows cpu_rows_of(const struct be_device *dev, const struct shape *shape);

/* body(arg, n, block) for every row of the batch, by all threads if there is
 * enough to do. Rows are independent of one another. */
typedef void (*cpu_row_fn)(const void *arg, uint64_t n, uint32_t block);
void cpu_for_rows(const struct be_device *dev, const struct cpu_rows *rows, uint32_t batch,
                  cpu_row_fn body, const void *arg);

/* Loops over flat memory, by the best instruction set there is, same bits in
 * each. relu: y <- max(x, 0); mask: dx <- dy where y > 0, else 0. */
void cpu_loop_add(const struct be_device *dev, const float *a, const float *b, float *sum,
                  uint64_t n);
void cpu_loop_add_relu(const struct be_device *dev, const float *a, const float *b, float *sum,
                       uint64_t n);
void cpu_loop_relu(const struct be_device *dev, const float *x, float *y, uint64_t n);
void cpu_loop_mask(const struct be_device *dev, const float *y, const float *dy, float *dx,
                   uint64_t n);

/* Convolutions of 1x1 and stride 1 on blocks of 16 channels, without the
 * library. Weights lie [out block][in block][in channel][out channel]. */
struct cpu_point {
    uint32_t batch, in_blocks, out_blocks;
    uint64_t pixels;
};

struct cpu_point_kernels {
    /* y <- x * w (+ bias) (+ residual); NULL: without. Backward of the input is
     * the same from dy with the weights turned. */
    void (*apply)(const struct be_device *dev, const struct cpu_point *p, const float *x,
                  const float *w, const float *bias, const float *residual, float *y);
    /* Bytes of scratch that weights() needs. */
    uint64_t (*parts_bytes)(const struct be_device *dev, const struct cpu_point *p);
    /* Gradients of weights and, unless NULL, of the bias: written. */
    void (*weights)(const struct be_device *dev, const struct cpu_point *p, const float *x,
                    const float *dy, float *parts, float *dw, float *dbias);
};

/* NULL: none for this device. */
const struct cpu_point_kernels *cpu_point_kernels(const struct be_device *dev);
/* True if the node is such a convolution and the device has kernels for it. */
bool cpu_conv_is_point(const struct be_op *op);

#endif
