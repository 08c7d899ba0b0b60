# Scripts that start real programs; see lib.sh.
integration_tests = \
    %D%/manual.sh \
    %D%/systemd.sh \
    %D%/boot.sh \
    %D%/plan.sh \
    %D%/layouts.sh \
    %D%/hybrid.sh \
    %D%/errors.sh \
    %D%/fetch.sh \
    %D%/faults.sh \
    %D%/two_nodes.sh
dist_check_SCRIPTS += $(integration_tests)
TESTS += $(integration_tests)
EXTRA_DIST += %D%/lib.sh %D%/make_shapes.py %D%/safetensors_reader.py
