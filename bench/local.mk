# Measurements; never part of make check.
EXTRA_DIST += %D%/compare_mast %D%/compare_step %D%/torch_models.py %D%/torch_step.py %D%/torch_train.py %D%/tuned

noinst_PROGRAMS += bench/step
bench_step_SOURCES = bench/step.c
bench_step_CPPFLAGS = $(AM_CPPFLAGS) $(PROTOBUF_C_CFLAGS)
bench_step_LDADD = librank.a $(INSPECT_LIBS)
