# data
data_tests = \
    tests/unit/test_data_nomem \
    tests/unit/test_dataset \
    tests/unit/test_loader \
    tests/unit/test_real_data
check_PROGRAMS += $(data_tests)
TESTS += $(data_tests)
THREADED_TESTS += tests/unit/test_loader
DIST_TESTS += tests/unit/test_dataset

DATA_TEST_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(JPEG_CFLAGS) $(PNG_CFLAGS) $(ZLIB_CFLAGS) \
    -DSHARED_DATA='"$(top_srcdir)/../shared/data"'
DATA_TEST_LIBS = libdata.a libmodel.a libtest.a $(COMMON_LIBS) $(DATA_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_data_nomem_SOURCES = tests/unit/test_data_nomem.c \
    tests/unit/data_files.c tests/unit/data_files.h
tests_unit_test_data_nomem_CPPFLAGS = $(DATA_TEST_CPPFLAGS)
tests_unit_test_data_nomem_LDFLAGS = $(AM_LDFLAGS) $(HEAP_FAULT_LINK)
tests_unit_test_data_nomem_LDADD = $(DATA_TEST_LIBS)

tests_unit_test_dataset_SOURCES = tests/unit/test_dataset.c \
    tests/unit/data_files.c tests/unit/data_files.h
tests_unit_test_dataset_CPPFLAGS = $(DATA_TEST_CPPFLAGS)
tests_unit_test_dataset_LDADD = $(DATA_TEST_LIBS)

tests_unit_test_loader_SOURCES = tests/unit/test_loader.c \
    tests/unit/data_files.c tests/unit/data_files.h
tests_unit_test_loader_CPPFLAGS = $(DATA_TEST_CPPFLAGS)
tests_unit_test_loader_LDADD = $(DATA_TEST_LIBS)

tests_unit_test_real_data_SOURCES = tests/unit/test_real_data.c
tests_unit_test_real_data_CPPFLAGS = $(DATA_TEST_CPPFLAGS)
tests_unit_test_real_data_LDADD = $(DATA_TEST_LIBS)
