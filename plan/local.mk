noinst_LIBRARIES += libplan.a
libplan_a_SOURCES = \
    %D%/advice.c %D%/advice.h \
    %D%/blocks.c %D%/blocks.h \
    %D%/check.c %D%/check.h \
    %D%/check_sum.c %D%/check_sum.h \
    %D%/choose.c %D%/choose.h \
    %D%/cost.c %D%/cost.h \
    %D%/cut.c %D%/cut.h \
    %D%/gantt.c %D%/gantt.h \
    %D%/hold.c %D%/hold.h \
    %D%/layout.c %D%/layout.h \
    %D%/layout_grad.c %D%/layout_grad.h \
    %D%/make.c %D%/make.h \
    %D%/match.c %D%/match.h \
    %D%/memory.c %D%/memory.h \
    %D%/order.c %D%/order.h \
    %D%/pack.c %D%/pack.h \
    %D%/plan.c %D%/plan.h \
    %D%/planner.c %D%/planner.h \
    %D%/post.c %D%/post.h \
    %D%/program.c %D%/program.h \
    %D%/sched.c %D%/sched.h \
    %D%/sched_1f1b.c \
    %D%/sched_1f1b_interleaved.c \
    %D%/sched_chimera.c \
    %D%/sched_eval.c \
    %D%/sched_gems_master.c \
    %D%/sched_gems_mast.c \
    %D%/sched_gpipe.c \
    %D%/sched_layer.c \
    %D%/sched_single.c \
    %D%/sched_v.c \
    %D%/sched_zb_h1.c \
    %D%/schedules.c %D%/schedules.h \
    %D%/sim.c %D%/sim.h \
    %D%/spec.c %D%/spec.h \
    %D%/svg.c %D%/svg.h \
    %D%/timeline.c %D%/timeline.h \
    %D%/times.c %D%/times.h
