/* Memory that runs out at the n-th request. A program that uses it is linked
 * with HEAP_FAULT_LINK. Requests of shared libraries are not counted; those of
 * Check are, so nothing may be asserted while a fault is to come. */
#ifndef GEMS_TESTS_HEAP_FAULT_H
#define GEMS_TESTS_HEAP_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* The n-th request from now on (0: the next one) fails, once. */
void heap_fault_arm(uint32_t n);
/* Ends it; true if the fault has happened. */
bool heap_fault_disarm(void);

/* Runs `attempt` with a fault at request 0, 1, 2 ... until a run meets none.
 * It must answer GEMS_E_NOMEM where one was met, and 0 at the end; what it
 * took it must give back. Returns the number of faults met. */
uint32_t heap_fault_everywhere(int (*attempt)(void *arg), void *arg);

#endif
