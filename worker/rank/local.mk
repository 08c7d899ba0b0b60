# worker/rank
noinst_LIBRARIES += librank.a
librank_a_CPPFLAGS = $(AM_CPPFLAGS) $(EVENT_CFLAGS)
librank_a_SOURCES = \
    %D%/arena.c %D%/arena.h \
    %D%/cadence.c \
    %D%/exec.c %D%/exec.h \
    %D%/facts.c %D%/facts.h \
    %D%/feed.c %D%/feed.h \
    %D%/ledger.c %D%/ledger.h \
    %D%/link.c %D%/link.h \
    %D%/link_internal.h %D%/link_thread.c \
    %D%/messages.c %D%/messages.h \
    %D%/optim.c %D%/optim.h \
    %D%/prepare.c %D%/prepare.h \
    %D%/reduce.c %D%/reduce.h \
    %D%/run.c \
    %D%/stage.c %D%/stage.h \
    %D%/state.h \
    %D%/tensors.c \
    %D%/trainer.c %D%/trainer.h \
    %D%/wish.c %D%/wish.h

# In pkglibexecdir: only gems-worker starts it.
pkglibexec_PROGRAMS += gems-rank
gems_rank_SOURCES = \
    %D%/attempt.c %D%/attempt.h \
    %D%/control.c %D%/control.h \
    %D%/inherit.c %D%/inherit.h \
    %D%/main.c \
    %D%/report.c %D%/report.h \
    %D%/restore.c %D%/restore.h \
    %D%/shard.c %D%/shard.h
gems_rank_CPPFLAGS = $(AM_CPPFLAGS) $(EVENT_CFLAGS) $(PROTOBUF_C_CFLAGS)
gems_rank_LDADD = librank.a libdata.a libnet.a libbackend.a $(PROTO_LIBS) $(DNNL_LIBS) $(UCX_LIBS) \
    $(JPEG_LIBS) $(PNG_LIBS) $(ZLIB_LIBS) -lpthread
