# backend
check_LIBRARIES += liboracle.a
liboracle_a_SOURCES = \
    tests/lib/op_trial.c tests/lib/op_trial.h \
    tests/lib/oracle.c tests/lib/oracle.h
liboracle_a_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)

backend_tests = \
    tests/unit/test_backend_alloc \
    tests/unit/test_backend_dropout \
    tests/unit/test_backend_ops \
    tests/unit/test_backend_train \
    tests/unit/test_inspect
check_PROGRAMS += $(backend_tests)
TESTS += $(backend_tests)
backend_LIBS = liboracle.a libbackend.a libplan.a libmodel.a libcommon.a $(DNNL_LIBS)

tests_unit_test_backend_dropout_SOURCES = tests/unit/test_backend_dropout.c
tests_unit_test_backend_dropout_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_backend_dropout_LDADD = libtest.a $(backend_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_backend_ops_SOURCES = tests/unit/test_backend_ops.c
tests_unit_test_backend_ops_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_backend_ops_LDADD = $(backend_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_backend_train_SOURCES = tests/unit/test_backend_train.c
tests_unit_test_backend_train_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_backend_train_LDADD = $(backend_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_inspect_SOURCES = tests/unit/test_inspect.c
tests_unit_test_inspect_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(PROTOBUF_C_CFLAGS)
tests_unit_test_inspect_LDADD = $(INSPECT_LIBS) $(CHECK_LIBS_ALL)

EXTRA_DIST += \
    tests/data/make_torch_reference.py \
    tests/data/torch_reference.txt

tests_unit_test_backend_alloc_SOURCES = tests/unit/test_backend_alloc.c
tests_unit_test_backend_alloc_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_backend_alloc_LDADD = $(backend_LIBS) $(CHECK_LIBS_ALL)
