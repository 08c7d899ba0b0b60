/* Catches what a test makes the code log, so that an unexpected line fails it. */
#ifndef GEMS_TESTS_LOG_CATCH_H
#define GEMS_TESTS_LOG_CATCH_H

#include <stdbool.h>

void log_catch_start(void);
/* Was there a line that contains this text? Each line counts once. */
bool log_catch_expect(const char *text);
/* Ends catching. NULL, or the first error or warning that nobody expected. */
const char *log_catch_end(void);

#endif
