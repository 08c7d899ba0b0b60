check_PROGRAMS += test_jobfile
TESTS += test_jobfile
test_jobfile_CPPFLAGS = $(AM_CPPFLAGS) $(CHECK_CFLAGS)
test_jobfile_SOURCES = %D%/test_jobfile.c
test_jobfile_LDADD = $(CLIENT_LIBS) $(CHECK_LIBS_ALL)
