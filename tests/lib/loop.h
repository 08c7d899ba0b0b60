/* Runs an event loop until something has happened, with a deadline. */
#ifndef GEMS_TESTS_LOOP_H
#define GEMS_TESTS_LOOP_H

#include <stdbool.h>

struct event_base;

/* Turns the loop until *is_done; false after 20 seconds without it. */
bool loop_until(struct event_base *base, const bool *is_done);
/* Turns the loop for that long. */
void loop_for_ms(struct event_base *base, int ms);

#endif
