# rank
rank_tests = \
    tests/unit/test_trainer \
    tests/unit/test_resume \
    tests/unit/test_defects
check_PROGRAMS += $(rank_tests)
TESTS += $(rank_tests)
rank_LIBS = librank.a libdata.a libnet.a liboracle.a libbackend.a libplan.a libmodel.a libtest.a \
    $(COMMON_LIBS) $(DNNL_LIBS) $(UCX_LIBS) $(JPEG_LIBS) $(PNG_LIBS) $(ZLIB_LIBS) -lpthread

tests_unit_test_trainer_SOURCES = \
    tests/unit/test_trainer.c \
    tests/unit/trainer_lab.c tests/unit/trainer_lab.h
tests_unit_test_trainer_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_trainer_LDADD = $(rank_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_resume_SOURCES = \
    tests/unit/test_resume.c \
    tests/unit/all_layouts.c tests/unit/all_layouts.h \
    tests/unit/trainer_lab.c tests/unit/trainer_lab.h
tests_unit_test_resume_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_resume_LDADD = $(rank_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_defects_SOURCES = \
    tests/unit/test_defects.c \
    tests/unit/all_layouts.c tests/unit/all_layouts.h \
    tests/unit/trainer_lab.c tests/unit/trainer_lab.h
tests_unit_test_defects_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_defects_LDADD = $(rank_LIBS) $(CHECK_LIBS_ALL)
