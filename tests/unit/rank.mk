# rank
rank_tests = \
    tests/unit/test_trainer
check_PROGRAMS += $(rank_tests)
TESTS += $(rank_tests)
rank_LIBS = librank.a libdata.a libnet.a liboracle.a libbackend.a libplan.a libmodel.a libtest.a \
    $(COMMON_LIBS) $(DNNL_LIBS) $(UCX_LIBS) $(JPEG_LIBS) $(PNG_LIBS) $(ZLIB_LIBS) -lpthread

tests_unit_test_trainer_SOURCES = \
    tests/unit/test_trainer.c \
    tests/unit/trainer_lab.c tests/unit/trainer_lab.h
tests_unit_test_trainer_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_trainer_LDADD = $(rank_LIBS) $(CHECK_LIBS_ALL)
