noinst_LIBRARIES += libnet.a
libnet_a_SOURCES = \
    %D%/net.h %D%/registry.c \
    %D%/match.c %D%/match.h \
    %D%/pool.c %D%/pool.h \
    %D%/local.c %D%/local.h \
    %D%/local_hub.c %D%/local_hub.h
