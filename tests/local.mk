# Every program is one module's tests (Check); every script starts real
# daemons. Exit 77: skipped, with a visible reason.
CHECK_LIBS_ALL = $(CHECK_LIBS) -lm

# Tests to repeat under the thread sanitizer, and those that distcheck runs
# (few: it proves that the archive is complete). Modules add to both.
THREADED_TESTS =
DIST_TESTS = tests/arrows.sh

# A hanging test is a failing test.
LOG_COMPILER = timeout
AM_LOG_FLAGS = --kill-after=10 900
if SANITIZE
# Check's child processes would hide leaks; UCX's hooks into malloc and
# sanitizers do not go together.
AM_TESTS_ENVIRONMENT = CK_FORK=no SANITIZED=yes; export CK_FORK SANITIZED; \
    UCX_MEM_EVENTS=n; export UCX_MEM_EVENTS; \
    UBSAN_OPTIONS=print_stacktrace=1; export UBSAN_OPTIONS;
endif

include tests/lib/local.mk
include tests/unit/common.mk
include tests/unit/model.mk
include tests/unit/plan.mk
include tests/unit/backend.mk
include tests/unit/net.mk
include tests/unit/data.mk
include tests/unit/rank.mk
include tests/unit/daemon.mk
include tests/unit/client.mk
include tests/fuzz/local.mk
include tests/integration/local.mk

dist_check_SCRIPTS += tests/arrows.sh
TESTS += tests/arrows.sh

threaded-tests: $(BUILT_SOURCES)
	$(MAKE) $(AM_MAKEFLAGS) $(THREADED_TESTS)
print-threaded-tests:
	@echo $(THREADED_TESTS)
print-dist-tests:
	@echo $(DIST_TESTS)
.PHONY: threaded-tests print-threaded-tests print-dist-tests
