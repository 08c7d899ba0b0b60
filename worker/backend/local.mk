# worker/backend: what a device library offers to a rank. ref is always built.
noinst_LIBRARIES += libbackend.a
libbackend_a_SOURCES = \
    %D%/backend.h \
    %D%/backends.h \
    %D%/dropout.h \
    %D%/host.c %D%/host.h \
    %D%/loss.inc \
    %D%/registry.c \
    %D%/vector.inc \
    %D%/ref/conv.inc \
    %D%/ref/dense.inc \
    %D%/ref/dropout.inc \
    %D%/ref/elementwise.inc \
    %D%/ref/kernels.h \
    %D%/ref/kernels.inc \
    %D%/ref/kernels_f32.c \
    %D%/ref/kernels_f64.c \
    %D%/ref/move.inc \
    %D%/ref/norm.inc \
    %D%/ref/pool.inc \
    %D%/ref/ref.c

if HAVE_ONEDNN
libbackend_a_SOURCES += \
    %D%/cpu/call.c \
    %D%/cpu/conv.c \
    %D%/cpu/conv_point.c \
    %D%/cpu/cpu.h \
    %D%/cpu/dense.c \
    %D%/cpu/device.c \
    %D%/cpu/dropout.c \
    %D%/cpu/loops.c \
    %D%/cpu/move.c \
    %D%/cpu/norm.c \
    %D%/cpu/op.c \
    %D%/cpu/point.c \
    %D%/cpu/pool.c \
    %D%/cpu/pool_new.c \
    %D%/cpu/rows.c
libbackend_a_CFLAGS = $(AM_CFLAGS) $(DNNL_CFLAGS)
endif
