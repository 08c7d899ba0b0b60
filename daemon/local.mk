noinst_LIBRARIES += libdaemon.a
libdaemon_a_CPPFLAGS = $(AM_CPPFLAGS) $(EVENT_CFLAGS) $(PROTOBUF_C_CFLAGS) $(SQLITE_CFLAGS) $(OPENSSL_CFLAGS)
libdaemon_a_SOURCES = \
    %D%/catalogue.c \
    %D%/checkpoint_file.h %D%/checkpoint_private.h \
    %D%/checkpoint_read.c \
    %D%/checkpoint_write.c \
    %D%/checkpoints.c %D%/checkpoints.h \
    %D%/daemon.c %D%/daemon.h \
    %D%/devices.c \
    %D%/fetch.c \
    %D%/flow.c %D%/flow.h \
    %D%/handlers.h \
    %D%/identity.c %D%/identity.h \
    %D%/inquiry.c %D%/inquiry.h \
    %D%/job.c %D%/job.h \
    %D%/jobs.c %D%/jobs.h \
    %D%/launch.c %D%/launch.h \
    %D%/logs.c %D%/logs.h \
    %D%/nodes.c %D%/nodes.h \
    %D%/place.c %D%/place.h \
    %D%/progress.c %D%/progress.h \
    %D%/recover.c %D%/recover.h \
    %D%/report.c \
    %D%/retention.c %D%/retention.h \
    %D%/server.c %D%/server.h \
    %D%/sessions.c \
    %D%/settings.c %D%/settings.h \
    %D%/status.c %D%/status.h \
    %D%/store.c %D%/store.h %D%/store_private.h \
    %D%/store_read.c \
    %D%/store_schema.c \
    %D%/store_sql.c %D%/store_sql.h \
    %D%/store_write.c \
    %D%/submit.c \
    %D%/tokens.c %D%/tokens.h \
    %D%/verbs.c \
    %D%/watch.c %D%/watch.h \
    %D%/watchdog.c %D%/watchdog.h

DAEMON_LIBS = libdaemon.a $(PROTO_LIBS) $(SQLITE_LIBS)

sbin_PROGRAMS += gemsd
gemsd_SOURCES = %D%/main.c
gemsd_CPPFLAGS = $(AM_CPPFLAGS) $(EVENT_CFLAGS)
gemsd_LDADD = $(DAEMON_LIBS)
