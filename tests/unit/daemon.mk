check_PROGRAMS += \
    tests/unit/test_checkpoint \
    tests/unit/test_job \
    tests/unit/test_progress \
    tests/unit/test_store
TESTS += \
    tests/unit/test_checkpoint \
    tests/unit/test_job \
    tests/unit/test_progress \
    tests/unit/test_store

tests_unit_test_job_SOURCES = tests/unit/test_job.c
tests_unit_test_job_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_job_LDADD = $(DAEMON_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_progress_SOURCES = tests/unit/test_progress.c
tests_unit_test_progress_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_progress_LDADD = $(DAEMON_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_store_SOURCES = tests/unit/test_store.c
tests_unit_test_store_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(SQLITE_CFLAGS)
tests_unit_test_store_LDADD = $(DAEMON_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_checkpoint_SOURCES = tests/unit/test_checkpoint.c
tests_unit_test_checkpoint_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
tests_unit_test_checkpoint_LDADD = $(DAEMON_LIBS) $(CHECK_LIBS_ALL)
