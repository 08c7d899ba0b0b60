# GEMS_ONEDNN: the cpu back end (auto; --with-onednn=yes requires it).
# The back end is written against the 2.x API, which 3.x changed.
AC_DEFUN([GEMS_ONEDNN], [
AC_ARG_WITH([onednn],
  [AS_HELP_STRING([--with-onednn], [CPU back end over oneDNN 2.6 (auto; yes: required)])],
  [], [with_onednn=auto])
have_onednn=no
AS_IF([test "$with_onednn" != no], [
  gems_save_LIBS=$LIBS
  AC_CHECK_HEADER([oneapi/dnnl/dnnl.h], [
    AC_CHECK_LIB([dnnl], [dnnl_memory_desc_init_by_tag],
      [have_onednn=yes])])
  LIBS=$gems_save_LIBS
  AS_IF([test "$have_onednn" = no && test "$with_onednn" = yes],
    [AC_MSG_ERROR([--with-onednn: oneDNN 2.x is missing (Debian: libdnnl-dev)])])])
AS_IF([test "$have_onednn" = yes], [
  # Debian's oneDNN is built with GNU OpenMP: threads are set through it.
  AC_OPENMP
  DNNL_CFLAGS="$OPENMP_CFLAGS"
  DNNL_LIBS="-ldnnl -lgomp -lm"
  AC_DEFINE([HAVE_ONEDNN], [1], [CPU back end over oneDNN.])
  gems_backends="$gems_backends cpu"])
AC_SUBST([DNNL_CFLAGS])
AC_SUBST([DNNL_LIBS])
AM_CONDITIONAL([HAVE_ONEDNN], [test "$have_onednn" = yes])
])
