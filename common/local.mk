noinst_LIBRARIES += libcommon.a
libcommon_a_CPPFLAGS = $(AM_CPPFLAGS) $(EVENT_CFLAGS) $(OPENSSL_CFLAGS) $(XXHASH_CFLAGS)
libcommon_a_SOURCES = \
    %D%/address.c %D%/address.h \
    %D%/bg.c %D%/bg.h \
    %D%/buf.c %D%/buf.h \
    %D%/clock.c %D%/clock.h \
    %D%/conf.c %D%/conf.h \
    %D%/connect.c %D%/connect.h \
    %D%/error.c %D%/error.h \
    %D%/fsutil.c %D%/fsutil.h \
    %D%/hash.c %D%/hash.h \
    %D%/list.c %D%/list.h \
    %D%/listen.c %D%/listen.h \
    %D%/log.c %D%/log.h \
    %D%/notify.c %D%/notify.h \
    %D%/rng.c %D%/rng.h \
    %D%/rpc.c %D%/rpc.h \
    %D%/tls.c %D%/tls.h \
    %D%/units.c %D%/units.h

# What a program with libcommon.a needs.
COMMON_LIBS = libcommon.a $(EVENT_LIBS) $(OPENSSL_LIBS) $(XXHASH_LIBS) -lm
