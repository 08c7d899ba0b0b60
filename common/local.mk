noinst_LIBRARIES += libcommon.a
libcommon_a_SOURCES = \
    %D%/error.c %D%/error.h \
    %D%/rng.c %D%/rng.h \
    %D%/rpc.h
