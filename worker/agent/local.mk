# worker/agent: gems-worker
noinst_LIBRARIES += libagent.a
libagent_a_CPPFLAGS = $(AM_CPPFLAGS) $(EVENT_CFLAGS) $(PROTOBUF_C_CFLAGS) $(OPENSSL_CFLAGS)
libagent_a_SOURCES = \
    %D%/agent.h \
    %D%/cgroup.c %D%/cgroup.h \
    %D%/devices.c %D%/devices.h \
    %D%/inspect.c %D%/inspect.h \
    %D%/launch.c %D%/launch.h \
    %D%/logs.c %D%/logs.h \
    %D%/ranks.c %D%/ranks.h \
    %D%/roots.c %D%/roots.h \
    %D%/session.c %D%/session.h \
    %D%/settings.c %D%/settings.h

AGENT_LIBS = libagent.a $(PROTO_LIBS)

sbin_PROGRAMS += gems-worker
gems_worker_CPPFLAGS = $(AM_CPPFLAGS) $(EVENT_CFLAGS) $(PROTOBUF_C_CFLAGS)
gems_worker_SOURCES = %D%/main.c
gems_worker_LDADD = $(AGENT_LIBS)
