# net and agent
net_tests = tests/unit/test_agent tests/unit/test_link
if HAVE_UCX
net_tests += tests/unit/test_ucx
endif
check_PROGRAMS += $(net_tests)
TESTS += $(net_tests)
THREADED_TESTS += tests/unit/test_link

net_world_sources = tests/unit/net_world.c tests/unit/net_world.h
net_test_ldflags = $(AM_LDFLAGS) \
    -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc
net_test_libs = librank.a $(NET_LIBS) libplan.a libmodel.a $(COMMON_LIBS) $(CHECK_LIBS_ALL)

tests_unit_test_link_SOURCES = tests/unit/test_link.c $(net_world_sources)
tests_unit_test_link_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(EVENT_CFLAGS)
tests_unit_test_link_LDFLAGS = $(net_test_ldflags)
tests_unit_test_link_LDADD = $(net_test_libs)

tests_unit_test_ucx_SOURCES = tests/unit/test_ucx.c $(net_world_sources)
tests_unit_test_ucx_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(EVENT_CFLAGS)
tests_unit_test_ucx_LDFLAGS = $(net_test_ldflags) -Wl,--wrap=ucp_get_version
tests_unit_test_ucx_LDADD = $(net_test_libs)

# Starts the gems-worker and gems-inspect of the folder it runs in.
tests_unit_test_agent_SOURCES = tests/unit/test_agent.c \
    tests/unit/agent_world.c tests/unit/agent_world.h
tests_unit_test_agent_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(EVENT_CFLAGS) $(PROTOBUF_C_CFLAGS)
tests_unit_test_agent_LDADD = $(AGENT_LIBS) $(CHECK_LIBS_ALL)
