# Units and what belongs to them, with the paths of this installation.
EXTRA_DIST += %D%/gemsd.service.in %D%/gems-worker.service.in %D%/tmpfiles.d/gems.conf.in
dist_noinst_DATA += %D%/gemsd.conf %D%/gems-worker.conf
nodist_systemdsystemunit_DATA = %D%/gemsd.service %D%/gems-worker.service
dist_sysusers_DATA = %D%/sysusers.d/gems.conf
nodist_tmpfiles_DATA = %D%/tmpfiles.d/gems.conf
CLEANFILES += $(nodist_systemdsystemunit_DATA) $(nodist_tmpfiles_DATA)

fill_in_paths = $(AM_V_GEN)$(MKDIR_P) $(@D) && $(SED) -e 's|@sbindir[@]|$(sbindir)|g' \
    -e 's|@sysconfdir[@]|$(sysconfdir)|g' -e 's|@pkglibexecdir[@]|$(pkglibexecdir)|g'
%D%/gemsd.service: %D%/gemsd.service.in Makefile
	$(fill_in_paths) $(srcdir)/%D%/gemsd.service.in >$@
%D%/gems-worker.service: %D%/gems-worker.service.in Makefile
	$(fill_in_paths) $(srcdir)/%D%/gems-worker.service.in >$@
%D%/tmpfiles.d/gems.conf: %D%/tmpfiles.d/gems.conf.in Makefile
	$(fill_in_paths) $(srcdir)/%D%/tmpfiles.d/gems.conf.in >$@
