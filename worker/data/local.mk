noinst_LIBRARIES += libdata.a
libdata_a_SOURCES = \
    %D%/augment.c %D%/augment.h \
    %D%/dataset.c %D%/dataset.h \
    %D%/dataset_idx.c \
    %D%/dataset_imagefolder.c \
    %D%/dataset_synthetic.c \
    %D%/format.h \
    %D%/image.c %D%/image.h \
    %D%/image_jpeg.c \
    %D%/image_png.c \
    %D%/loader.c %D%/loader.h \
    %D%/shuffle.c
libdata_a_CPPFLAGS = $(AM_CPPFLAGS) $(JPEG_CFLAGS) $(PNG_CFLAGS) $(ZLIB_CFLAGS)
# What a program that links libdata.a needs behind it.
DATA_LIBS = $(JPEG_LIBS) $(PNG_LIBS) $(ZLIB_LIBS)
