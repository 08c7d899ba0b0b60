noinst_LIBRARIES += libclient.a
libclient_a_CPPFLAGS = $(AM_CPPFLAGS) $(YAML_CFLAGS) $(JANSSON_CFLAGS) $(EVENT_CFLAGS) \
    $(PROTOBUF_C_CFLAGS)
libclient_a_CFLAGS = $(AM_CFLAGS)
libclient_a_SOURCES = \
    %D%/jobfile.c %D%/jobfile.h \
    %D%/jobkey.c %D%/jobkey.h \
    %D%/jobvalue.c %D%/jobvalue.h

# What a program with libclient.a needs.
CLIENT_LIBS = libclient.a $(PROTO_LIBS) $(YAML_LIBS) $(JANSSON_LIBS)
