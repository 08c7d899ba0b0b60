common_tests = \
    tests/unit/test_bg \
    tests/unit/test_codec \
    tests/unit/test_common \
    tests/unit/test_conf \
    tests/unit/test_connect \
    tests/unit/test_faults \
    tests/unit/test_messages \
    tests/unit/test_rpc
check_PROGRAMS += $(common_tests)
TESTS += $(common_tests)
DIST_TESTS += $(common_tests)
THREADED_TESTS += tests/unit/test_bg

COMMON_TEST_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(EVENT_CFLAGS) $(OPENSSL_CFLAGS) \
    -DTEST_SRCDIR='"$(abs_top_srcdir)"'
COMMON_TEST_LIBS = libtest.a $(COMMON_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_bg_SOURCES = tests/unit/test_bg.c
tests_unit_test_bg_CPPFLAGS = $(COMMON_TEST_CPPFLAGS)
tests_unit_test_bg_LDADD = $(COMMON_TEST_LIBS)

tests_unit_test_common_SOURCES = tests/unit/test_common.c
tests_unit_test_common_CPPFLAGS = $(COMMON_TEST_CPPFLAGS)
tests_unit_test_common_LDADD = $(COMMON_TEST_LIBS)

tests_unit_test_conf_SOURCES = tests/unit/test_conf.c
tests_unit_test_conf_CPPFLAGS = $(COMMON_TEST_CPPFLAGS)
tests_unit_test_conf_LDADD = $(COMMON_TEST_LIBS)

tests_unit_test_connect_SOURCES = tests/unit/test_connect.c
tests_unit_test_connect_CPPFLAGS = $(COMMON_TEST_CPPFLAGS)
tests_unit_test_connect_LDADD = $(COMMON_TEST_LIBS)

tests_unit_test_rpc_SOURCES = tests/unit/test_rpc.c
tests_unit_test_rpc_CPPFLAGS = $(COMMON_TEST_CPPFLAGS)
tests_unit_test_rpc_LDADD = $(COMMON_TEST_LIBS)

tests_unit_test_codec_SOURCES = tests/unit/test_codec.c
tests_unit_test_codec_CPPFLAGS = $(COMMON_TEST_CPPFLAGS) $(PROTOBUF_C_CFLAGS)
tests_unit_test_codec_LDADD = libtest.a $(PROTO_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_messages_SOURCES = tests/unit/test_messages.c
tests_unit_test_messages_CPPFLAGS = $(COMMON_TEST_CPPFLAGS) $(PROTOBUF_C_CFLAGS)
tests_unit_test_messages_LDADD = libtest.a $(PROTO_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_faults_SOURCES = tests/unit/test_faults.c tests/lib/fault.c tests/lib/fault.h
tests_unit_test_faults_CPPFLAGS = $(COMMON_TEST_CPPFLAGS) $(PROTOBUF_C_CFLAGS)
tests_unit_test_faults_LDFLAGS = $(AM_LDFLAGS) $(HEAP_FAULTS)
tests_unit_test_faults_LDADD = libtest.a $(PROTO_LIBS) $(CHECK_LIBS_ALL)
