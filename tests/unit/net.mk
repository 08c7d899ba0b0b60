# net
net_tests = tests/unit/test_link
check_PROGRAMS += $(net_tests)
TESTS += $(net_tests)

tests_unit_test_link_SOURCES = tests/unit/test_link.c tests/unit/net_world.c tests/unit/net_world.h
tests_unit_test_link_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(EVENT_CFLAGS)
tests_unit_test_link_LDFLAGS = $(AM_LDFLAGS) \
    -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc
tests_unit_test_link_LDADD = librank.a libnet.a $(COMMON_LIBS) $(CHECK_LIBS_ALL)
