plan_tests = \
    tests/unit/test_plan \
    tests/unit/test_layout \
    tests/unit/test_timeline \
    tests/sim/test_schedules \
    tests/sim/test_programs \
    tests/sim/test_two_tensors
check_PROGRAMS += $(plan_tests)
TESTS += $(plan_tests)
DIST_TESTS += $(plan_tests)

PLAN_TEST_LIBS = libplan.a libmodel.a $(COMMON_LIBS) $(CHECK_LIBS_ALL)
PLAN_TEST_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
RANDOM_GRAPH = tests/sim/random_graph.c tests/sim/random_graph.h
RANDOM_JOB = $(RANDOM_GRAPH) tests/sim/random_job.c tests/sim/random_job.h

tests_unit_test_plan_SOURCES = tests/unit/test_plan.c $(RANDOM_JOB)
tests_unit_test_plan_CPPFLAGS = $(PLAN_TEST_CPPFLAGS)
tests_unit_test_plan_LDADD = $(PLAN_TEST_LIBS)

tests_unit_test_layout_SOURCES = tests/unit/test_layout.c $(RANDOM_GRAPH)
tests_unit_test_layout_CPPFLAGS = $(PLAN_TEST_CPPFLAGS)
tests_unit_test_layout_LDADD = $(PLAN_TEST_LIBS)

tests_unit_test_timeline_SOURCES = tests/unit/test_timeline.c
tests_unit_test_timeline_CPPFLAGS = $(PLAN_TEST_CPPFLAGS)
tests_unit_test_timeline_LDADD = libtest.a $(PLAN_TEST_LIBS)

tests_sim_test_schedules_SOURCES = tests/sim/test_schedules.c
tests_sim_test_schedules_CPPFLAGS = $(PLAN_TEST_CPPFLAGS)
tests_sim_test_schedules_LDADD = $(PLAN_TEST_LIBS)

tests_sim_test_programs_SOURCES = tests/sim/test_programs.c $(RANDOM_JOB)
tests_sim_test_programs_CPPFLAGS = $(PLAN_TEST_CPPFLAGS)
tests_sim_test_programs_LDADD = $(PLAN_TEST_LIBS)

tests_sim_test_two_tensors_SOURCES = tests/sim/test_two_tensors.c $(RANDOM_GRAPH)
tests_sim_test_two_tensors_CPPFLAGS = $(PLAN_TEST_CPPFLAGS)
tests_sim_test_two_tensors_LDADD = $(PLAN_TEST_LIBS)
