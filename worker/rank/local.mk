# worker/rank
noinst_LIBRARIES += librank.a
librank_a_CPPFLAGS = $(AM_CPPFLAGS) $(EVENT_CFLAGS)
librank_a_SOURCES = \
    %D%/arena.c %D%/arena.h \
    %D%/cadence.c \
    %D%/exec.c %D%/exec.h \
    %D%/facts.c %D%/facts.h \
    %D%/feed.c %D%/feed.h \
    %D%/link.c %D%/link.h \
    %D%/link_internal.h %D%/link_thread.c \
    %D%/optim.c %D%/optim.h \
    %D%/prepare.c %D%/prepare.h \
    %D%/reduce.c %D%/reduce.h \
    %D%/run.c \
    %D%/stage.c %D%/stage.h \
    %D%/state.h \
    %D%/tensors.c \
    %D%/trainer.c %D%/trainer.h \
    %D%/wish.c %D%/wish.h
