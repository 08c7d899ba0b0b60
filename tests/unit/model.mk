# model
model_tests = \
    tests/unit/test_graph \
    tests/unit/test_params \
    tests/unit/test_passes \
    tests/unit/test_zoo
check_PROGRAMS += $(model_tests)
TESTS += $(model_tests)

tests_unit_test_zoo_SOURCES = tests/unit/test_zoo.c
tests_unit_test_zoo_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_zoo_LDADD = libmodel.a libcommon.a $(CHECK_LIBS_ALL)

tests_unit_test_graph_SOURCES = tests/unit/test_graph.c
tests_unit_test_graph_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_graph_LDADD = libmodel.a libcommon.a $(CHECK_LIBS_ALL)

tests_unit_test_passes_SOURCES = tests/unit/test_passes.c
tests_unit_test_passes_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_passes_LDADD = libmodel.a libcommon.a $(CHECK_LIBS_ALL)

tests_unit_test_params_SOURCES = tests/unit/test_params.c
tests_unit_test_params_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_params_LDADD = libmodel.a libcommon.a $(CHECK_LIBS_ALL)
