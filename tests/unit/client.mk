check_PROGRAMS += test_call test_client test_jobfile
TESTS += test_call test_client test_jobfile

test_call_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(PROTOBUF_C_CFLAGS)
test_call_SOURCES = %D%/scripted_gemsd.c %D%/scripted_gemsd.h %D%/test_call.c
test_call_LDADD = $(CLIENT_LIBS) $(CHECK_LIBS_ALL)

test_client_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(PROTOBUF_C_CFLAGS) $(JANSSON_CFLAGS)
test_client_SOURCES = %D%/test_client.c
test_client_LDADD = $(CLIENT_LIBS) $(CHECK_LIBS_ALL)

test_jobfile_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
test_jobfile_SOURCES = %D%/test_jobfile.c
test_jobfile_LDADD = $(CLIENT_LIBS) $(CHECK_LIBS_ALL)
