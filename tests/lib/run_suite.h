/* The main part of every Check program. */
#ifndef GEMS_TESTS_RUN_SUITE_H
#define GEMS_TESTS_RUN_SUITE_H

#include <check.h>

/* A case with one test and the timeout of all; returns it for fixtures and
 * loop tests. */
TCase *suite_case(Suite *suite, const char *name, const TTest *test);
/* Runs and frees the suite; the exit status of the program. */
int run_suite(Suite *suite);

#endif
