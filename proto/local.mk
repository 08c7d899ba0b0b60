# protoc-c writes into the build tree; the header comes first for everybody.
%C%_generated = %D%/gems.pb-c.c %D%/gems.pb-c.h
BUILT_SOURCES += $(%C%_generated)
CLEANFILES += $(%C%_generated)
EXTRA_DIST += %D%/gems.proto

%D%/gems.pb-c.h: %D%/gems.proto
	$(AM_V_GEN)$(MKDIR_P) %D% && \
	    $(PROTOC_C) -I$(top_srcdir) --c_out=. $(top_srcdir)/%D%/gems.proto
%D%/gems.pb-c.c: %D%/gems.pb-c.h
	@test -f $@ || { rm -f %D%/gems.pb-c.h; $(MAKE) %D%/gems.pb-c.h; }

# Generated code is not ours to keep free of warnings: a library of its own.
noinst_LIBRARIES += libpb.a libproto.a
nodist_libpb_a_SOURCES = $(%C%_generated)
libpb_a_CPPFLAGS = $(AM_CPPFLAGS) $(PROTOBUF_C_CFLAGS)
libpb_a_CFLAGS = $(AM_CFLAGS) -w

libproto_a_CPPFLAGS = $(AM_CPPFLAGS) $(PROTOBUF_C_CFLAGS)
libproto_a_SOURCES = \
    %D%/build.c %D%/build.h \
    %D%/codec.h \
    %D%/codec_facts.c \
    %D%/codec_graph.c \
    %D%/codec_plan.c \
    %D%/codec_spec.c \
    %D%/field.c %D%/field.h \
    %D%/messages.c %D%/messages.h \
    %D%/scan.c %D%/scan.h

# What a program with messages needs.
PROTO_LIBS = libproto.a libpb.a libplan.a libmodel.a $(PROTOBUF_C_LIBS) $(COMMON_LIBS)
