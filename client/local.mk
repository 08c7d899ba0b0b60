noinst_LIBRARIES += libclient.a
libclient_a_CPPFLAGS = $(AM_CPPFLAGS) $(YAML_CFLAGS) $(JANSSON_CFLAGS) $(EVENT_CFLAGS) \
    $(PROTOBUF_C_CFLAGS)
libclient_a_CFLAGS = $(AM_CFLAGS)
libclient_a_SOURCES = \
    %D%/args.c %D%/args.h \
    %D%/call.c %D%/call.h \
    %D%/chrome.c %D%/chrome.h \
    %D%/cmd_cancel.c \
    %D%/cmd_checkpoint.c \
    %D%/cmd_checkpoints.c \
    %D%/cmd_drain.c \
    %D%/cmd_events.c \
    %D%/cmd_fetch.c \
    %D%/cmd_list.c \
    %D%/cmd_logs.c \
    %D%/cmd_nodes.c \
    %D%/cmd_pause.c \
    %D%/cmd_plan.c \
    %D%/cmd_resume.c \
    %D%/cmd_schedules.c \
    %D%/cmd_status.c \
    %D%/cmd_submit.c \
    %D%/cmd_trace.c \
    %D%/cmd_undrain.c \
    %D%/cmd_version.c \
    %D%/cmd_watch.c \
    %D%/command.h \
    %D%/draw.c %D%/draw.h \
    %D%/exit.c \
    %D%/fetch.c %D%/fetch.h \
    %D%/follow.c %D%/follow.h \
    %D%/inspect.c %D%/inspect.h \
    %D%/jobfile.c %D%/jobfile.h \
    %D%/jobkey.c %D%/jobkey.h \
    %D%/jobvalue.c %D%/jobvalue.h \
    %D%/offline.c %D%/offline.h \
    %D%/output.c %D%/output.h \
    %D%/planview.c %D%/planview.h \
    %D%/request.c %D%/request.h \
    %D%/target.c %D%/target.h \
    %D%/view.c %D%/view.h \
    %D%/view_json.c

# What a program with libclient.a needs.
CLIENT_LIBS = libclient.a $(PROTO_LIBS) $(YAML_LIBS) $(JANSSON_LIBS)

bin_PROGRAMS += gems-client
gems_client_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
gems_client_SOURCES = %D%/main.c
gems_client_LDADD = $(CLIENT_LIBS)

bashcompletiondir = $(datadir)/bash-completion/completions
dist_bashcompletion_DATA = %D%/completion/gems-client

exampledir = $(docdir)/examples
dist_example_DATA = \
    examples/fashion-mnist.yaml \
    examples/imagefolder.yaml \
    examples/synthetic.yaml
EXTRA_DIST += quickstart
