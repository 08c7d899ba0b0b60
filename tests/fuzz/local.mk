# One program a target, fuzz_X.c, with its corpus in corpus/X. make check
# replays the corpus and mutations of it; with --enable-fuzzers (clang) the
# programs are libFuzzer's: tests/fuzz/fuzz_message -max_total_time=60 FOLDER
fuzz_targets = \
    %D%/fuzz_conf \
    %D%/fuzz_frame \
    %D%/fuzz_message
fuzz_corpus = \
    %D%/corpus/conf/all \
    %D%/corpus/frame/hello \
    %D%/corpus/frame/inspect \
    %D%/corpus/frame/log \
    %D%/corpus/frame/start \
    %D%/corpus/frame/status \
    %D%/corpus/frame/submit \
    %D%/corpus/message/hello \
    %D%/corpus/message/inspect \
    %D%/corpus/message/log \
    %D%/corpus/message/start \
    %D%/corpus/message/status \
    %D%/corpus/message/submit
check_PROGRAMS += $(fuzz_targets)
EXTRA_PROGRAMS += %D%/make_corpus
EXTRA_DIST += $(fuzz_corpus)

dist_check_SCRIPTS += %D%/replay.sh
if !FUZZERS
TESTS += %D%/replay.sh
endif

if FUZZERS
fuzz_driver =
fuzz_flags = -fsanitize=fuzzer
else
fuzz_driver = %D%/driver.c
fuzz_flags =
endif
EXTRA_DIST += %D%/driver.c

%C%_fuzz_conf_SOURCES = %D%/fuzz_conf.c %D%/fuzz.h $(fuzz_driver)
%C%_fuzz_conf_LDFLAGS = $(AM_LDFLAGS) $(fuzz_flags)
%C%_fuzz_conf_LDADD = $(COMMON_LIBS)

%C%_fuzz_frame_SOURCES = %D%/fuzz_frame.c %D%/fuzz.h $(fuzz_driver)
%C%_fuzz_frame_LDFLAGS = $(AM_LDFLAGS) $(fuzz_flags)
%C%_fuzz_frame_LDADD = $(PROTO_LIBS)

%C%_fuzz_message_SOURCES = %D%/fuzz_message.c %D%/fuzz.h $(fuzz_driver)
%C%_fuzz_message_LDFLAGS = $(AM_LDFLAGS) $(fuzz_flags)
%C%_fuzz_message_LDADD = $(PROTO_LIBS)

%C%_make_corpus_SOURCES = %D%/make_corpus.c
%C%_make_corpus_LDADD = $(PROTO_LIBS)
