# GEMS_COMPILER: warnings, sanitizers, coverage, warnings as errors.
# -ffp-contract=off and no -ffast-math: the numbers must not depend on how a
# compiler fuses operations (docs/ARCHITECTURE.md, section 6).
AC_DEFUN([GEMS_COMPILER], [
AC_ARG_ENABLE([sanitize],
  [AS_HELP_STRING([--enable-sanitize=LIST],
    [build with sanitizers: address,undefined or thread])],
  [], [enable_sanitize=no])
AC_ARG_ENABLE([coverage],
  [AS_HELP_STRING([--enable-coverage], [build for gcov])],
  [], [enable_coverage=no])
AC_ARG_ENABLE([werror],
  [AS_HELP_STRING([--enable-werror], [make warnings errors])],
  [], [enable_werror=no])
AS_CASE([$enable_sanitize], [yes], [enable_sanitize=address,undefined])
GEMS_CFLAGS="-std=gnu11 -pthread -ffp-contract=off -fno-strict-aliasing"
GEMS_CFLAGS="$GEMS_CFLAGS -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion"
GEMS_CFLAGS="$GEMS_CFLAGS -Wstrict-prototypes -Wmissing-prototypes -Wvla"
GEMS_LDFLAGS="-pthread"
AS_IF([test "$enable_sanitize" != no], [
  GEMS_CFLAGS="$GEMS_CFLAGS -fsanitize=$enable_sanitize -fno-omit-frame-pointer"
  GEMS_LDFLAGS="$GEMS_LDFLAGS -fsanitize=$enable_sanitize"])
AS_CASE([$enable_sanitize], [*undefined*],
  [GEMS_CFLAGS="$GEMS_CFLAGS -fno-sanitize-recover=undefined"])
AS_IF([test "$enable_coverage" = yes], [
  GEMS_CFLAGS="$GEMS_CFLAGS --coverage"
  GEMS_LDFLAGS="$GEMS_LDFLAGS --coverage"])
AS_IF([test "$enable_werror" = yes], [GEMS_CFLAGS="$GEMS_CFLAGS -Werror"])
AC_SUBST([GEMS_CFLAGS])
AC_SUBST([GEMS_LDFLAGS])
AM_CONDITIONAL([SANITIZE], [test "$enable_sanitize" != no])
])
