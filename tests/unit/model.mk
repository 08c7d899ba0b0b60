# model
model_tests = \
    tests/unit/test_graph \
    tests/unit/test_params \
    tests/unit/test_passes \
    tests/unit/test_zoo
check_PROGRAMS += $(model_tests)
TESTS += $(model_tests)
DIST_TESTS += tests/unit/test_zoo

MODEL_TEST_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
MODEL_TEST_LIBS = libmodel.a libtest.a $(COMMON_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_graph_SOURCES = tests/unit/test_graph.c
tests_unit_test_graph_CPPFLAGS = $(MODEL_TEST_CPPFLAGS)
tests_unit_test_graph_LDADD = $(MODEL_TEST_LIBS)

tests_unit_test_params_SOURCES = tests/unit/test_params.c
tests_unit_test_params_CPPFLAGS = $(MODEL_TEST_CPPFLAGS)
tests_unit_test_params_LDADD = $(MODEL_TEST_LIBS)

tests_unit_test_passes_SOURCES = tests/unit/test_passes.c
tests_unit_test_passes_CPPFLAGS = $(MODEL_TEST_CPPFLAGS)
tests_unit_test_passes_LDADD = $(MODEL_TEST_LIBS)

tests_unit_test_zoo_SOURCES = tests/unit/test_zoo.c
tests_unit_test_zoo_CPPFLAGS = $(MODEL_TEST_CPPFLAGS)
tests_unit_test_zoo_LDADD = $(MODEL_TEST_LIBS)
