# GEMS_SYSTEMD: where units, sysusers and tmpfiles go; under the prefix unless
# said otherwise, so that distcheck and a user's install stay inside it.
AC_DEFUN([GEMS_SYSTEMD], [
AC_ARG_WITH([systemdsystemunitdir],
  [AS_HELP_STRING([--with-systemdsystemunitdir=DIR], [folder of systemd units])],
  [], [with_systemdsystemunitdir='${prefix}/lib/systemd/system'])
AC_ARG_WITH([sysusersdir],
  [AS_HELP_STRING([--with-sysusersdir=DIR], [folder of sysusers.d])],
  [], [with_sysusersdir='${prefix}/lib/sysusers.d'])
AC_ARG_WITH([tmpfilesdir],
  [AS_HELP_STRING([--with-tmpfilesdir=DIR], [folder of tmpfiles.d])],
  [], [with_tmpfilesdir='${prefix}/lib/tmpfiles.d'])
AC_SUBST([systemdsystemunitdir], [$with_systemdsystemunitdir])
AC_SUBST([sysusersdir], [$with_sysusersdir])
AC_SUBST([tmpfilesdir], [$with_tmpfilesdir])
])
