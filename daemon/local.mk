noinst_LIBRARIES += libdaemon.a
libdaemon_a_CPPFLAGS = $(AM_CPPFLAGS) $(EVENT_CFLAGS) $(PROTOBUF_C_CFLAGS) $(SQLITE_CFLAGS) $(OPENSSL_CFLAGS)
libdaemon_a_SOURCES = \
    %D%/checkpoint_file.h %D%/checkpoint_private.h \
    %D%/checkpoint_read.c \
    %D%/checkpoint_write.c \
    %D%/job.c %D%/job.h \
    %D%/store.c %D%/store.h %D%/store_private.h \
    %D%/store_read.c \
    %D%/store_schema.c \
    %D%/store_sql.c %D%/store_sql.h \
    %D%/store_write.c

DAEMON_LIBS = libdaemon.a $(PROTO_LIBS) $(SQLITE_LIBS)
