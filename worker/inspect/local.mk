# worker/inspect: what a planner must know before it plans
noinst_LIBRARIES += libinspect.a
libinspect_a_SOURCES = \
    %D%/facts.c \
    %D%/inspect.h \
    %D%/measure.c \
    %D%/request.c \
    %D%/shapes.c %D%/shapes.h
libinspect_a_CPPFLAGS = $(AM_CPPFLAGS) $(PROTOBUF_C_CFLAGS)

INSPECT_LIBS = libinspect.a libdata.a libbackend.a $(PROTO_LIBS) $(DATA_LIBS) $(DNNL_LIBS)

pkglibexec_PROGRAMS += gems-inspect
gems_inspect_SOURCES = %D%/main.c
gems_inspect_CPPFLAGS = $(AM_CPPFLAGS) $(PROTOBUF_C_CFLAGS)
gems_inspect_LDADD = $(INSPECT_LIBS)
