noinst_LIBRARIES += libmodel.a
libmodel_a_SOURCES = \
    %D%/backward.c %D%/backward.h \
    %D%/graph.c %D%/graph.h \
    %D%/init.c \
    %D%/ops.c %D%/ops.h \
    %D%/passes.c %D%/passes.h \
    %D%/safetensors.c %D%/safetensors.h \
    %D%/zoo.c %D%/zoo.h \
    %D%/zoo_amoebanet.c \
    %D%/zoo_build.h \
    %D%/zoo_lenet.c \
    %D%/zoo_mlp.c \
    %D%/zoo_resnet.c \
    %D%/zoo_resnet_imagenet.c \
    %D%/zoo_vgg.c
