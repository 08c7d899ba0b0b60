# model
model_tests = tests/unit/test_zoo
check_PROGRAMS += $(model_tests)
TESTS += $(model_tests)

tests_unit_test_zoo_SOURCES = tests/unit/test_zoo.c
tests_unit_test_zoo_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_zoo_LDADD = libmodel.a libcommon.a $(CHECK_LIBS_ALL)
