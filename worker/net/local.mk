noinst_LIBRARIES += libnet.a
libnet_a_SOURCES = \
    %D%/net.h %D%/registry.c \
    %D%/match.c %D%/match.h \
    %D%/pool.c %D%/pool.h \
    %D%/local.c %D%/local.h \
    %D%/local_hub.c %D%/local_hub.h
# What a program with libnet.a needs beside libcommon.a.
NET_LIBS = libnet.a
if HAVE_UCX
libnet_a_CPPFLAGS = $(AM_CPPFLAGS) $(UCX_CFLAGS)
libnet_a_SOURCES += \
    %D%/ucx.c %D%/ucx_hello.c %D%/ucx_internal.h \
    %D%/ucx_match.c %D%/ucx_peer.c
NET_LIBS += $(UCX_LIBS)
endif
