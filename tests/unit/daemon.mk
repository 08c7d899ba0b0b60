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

# The whole daemon in one process, with scripted agents and ranks.
check_PROGRAMS += tests/sim/test_daemon
TESTS += tests/sim/test_daemon
tests_sim_test_daemon_SOURCES = \
    tests/sim/sim.c tests/sim/sim.h \
    tests/sim/sim_agent.c tests/sim/sim_peers.h \
    tests/sim/sim_rank.c \
    tests/sim/test_daemon.c
tests_sim_test_daemon_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(EVENT_CFLAGS) $(PROTOBUF_C_CFLAGS)
tests_sim_test_daemon_LDADD = $(DAEMON_LIBS) $(CHECK_LIBS_ALL)

check_PROGRAMS += tests/sim/test_crowd
TESTS += tests/sim/test_crowd
tests_sim_test_crowd_SOURCES = \
    tests/sim/sim.c tests/sim/sim.h \
    tests/sim/sim_agent.c tests/sim/sim_peers.h \
    tests/sim/sim_rank.c \
    tests/sim/test_crowd.c
tests_sim_test_crowd_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(EVENT_CFLAGS) $(PROTOBUF_C_CFLAGS)
tests_sim_test_crowd_LDADD = libtest.a $(DAEMON_LIBS) $(CHECK_LIBS_ALL)
