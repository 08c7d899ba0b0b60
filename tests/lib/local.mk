# What several test programs need.
check_LIBRARIES += libtest.a
libtest_a_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS) $(EVENT_CFLAGS)
libtest_a_SOURCES = \
    %D%/clock_fake.c %D%/clock_fake.h \
    %D%/heap_fault.c %D%/heap_fault.h \
    %D%/log_catch.c %D%/log_catch.h \
    %D%/loop.c %D%/loop.h \
    %D%/run_suite.c %D%/run_suite.h \
    %D%/temp_dir.c %D%/temp_dir.h
dist_check_SCRIPTS += %D%/make-certs
HEAP_FAULT_LINK = -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc

# tests/lib/fault.c goes into the programs that want it, with these.
HEAP_FAULTS = -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=strdup
