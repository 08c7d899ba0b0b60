#include "tests/lib/run_suite.h"

#include <stdlib.h>

enum { CASE_TIMEOUT_S = 60 };

TCase *suite_case(Suite *suite, const char *name, const TTest *test)
{
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, CASE_TIMEOUT_S);
    tcase_add_test(tcase, test);
    suite_add_tcase(suite, tcase);
    return tcase;
}

int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
