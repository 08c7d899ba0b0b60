noinst_LIBRARIES += libplan.a
libplan_a_SOURCES = \
    %D%/layout.h \
    %D%/memory.h \
    %D%/plan.c %D%/plan.h \
    %D%/planner.h \
    %D%/program.c %D%/program.h \
    %D%/spec.c %D%/spec.h
