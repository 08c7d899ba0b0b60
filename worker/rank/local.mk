# worker/rank
noinst_LIBRARIES += librank.a
librank_a_SOURCES = \
    %D%/arena.c %D%/arena.h \
    %D%/exec.c %D%/exec.h \
    %D%/facts.c %D%/facts.h \
    %D%/link.h \
    %D%/optim.c %D%/optim.h \
    %D%/prepare.c %D%/prepare.h \
    %D%/reduce.c %D%/reduce.h \
    %D%/stage.c %D%/stage.h
