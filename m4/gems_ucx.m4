# GEMS_UCX: the ucx transport (auto; --with-ucx=yes requires it).
AC_DEFUN([GEMS_UCX], [
AC_ARG_WITH([ucx],
  [AS_HELP_STRING([--with-ucx], [transport over UCX (auto; yes: required)])],
  [], [with_ucx=auto])
have_ucx=no
AS_IF([test "$with_ucx" != no], [
  PKG_CHECK_MODULES([UCX], [ucx >= 1.12], [have_ucx=yes], [
    AS_IF([test "$with_ucx" = yes],
      [AC_MSG_ERROR([--with-ucx: UCX 1.12 or newer is missing (Debian: libucx-dev)])])])])
AS_IF([test "$have_ucx" = yes], [
  AC_DEFINE([HAVE_UCX], [1], [Transport over UCX.])
  gems_transports="$gems_transports ucx"])
AM_CONDITIONAL([HAVE_UCX], [test "$have_ucx" = yes])
])
