# Every program is one module's tests (Check); every script starts real
# daemons. Exit 77: skipped, with a visible reason.
CHECK_LIBS_ALL = $(CHECK_LIBS) -lm
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
include tests/integration/local.mk
