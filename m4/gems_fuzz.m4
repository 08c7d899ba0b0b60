# GEMS_FUZZ: build the programs of tests/fuzz with libFuzzer (clang only).
AC_DEFUN([GEMS_FUZZ], [
AC_ARG_ENABLE([fuzzers],
  [AS_HELP_STRING([--enable-fuzzers], [fuzz targets with libFuzzer (needs CC=clang)])],
  [], [enable_fuzzers=no])
AS_IF([test "$enable_fuzzers" = yes], [
  gems_save_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS -fsanitize=fuzzer-no-link,address,undefined"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [],
    [AC_MSG_ERROR([--enable-fuzzers: $CC has no libFuzzer (try CC=clang)])])
  CFLAGS=$gems_save_CFLAGS
  GEMS_CFLAGS="$GEMS_CFLAGS -fsanitize=fuzzer-no-link,address,undefined"
  GEMS_LDFLAGS="$GEMS_LDFLAGS -fsanitize=address,undefined"])
AM_CONDITIONAL([FUZZERS], [test "$enable_fuzzers" = yes])
])
