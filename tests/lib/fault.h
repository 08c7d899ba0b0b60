/* Faults that enter below the code: the n-th allocation fails.
 *
 * A program that wants it is linked with $(HEAP_FAULTS), which turns our calls
 * of malloc, calloc, realloc and strdup to those here; libevent is told to use
 * them too. A test repeats what it does with n = 0, 1, 2, ... until a run has
 * met no fault:
 *
 *     for (long n = 0; fault_start(n); n++) {
 *         ... must succeed, or fail cleanly ...
 *         fault_stop();
 *     }
 */
#ifndef GEMS_TESTS_FAULT_H
#define GEMS_TESTS_FAULT_H

#include <stdbool.h>

/* Lets n allocations pass and the next one fail, once. False if the run before
 * this one met no fault: the end of the loop. */
bool fault_start(long n);
/* No more faults. Did one happen? */
bool fault_stop(void);
/* Leaves libevent's own allocations alone: 2.1 goes on without the callback
 * that starts writing when that could not be allocated, and is then silent. */
void fault_spare_libevent(bool is_spared);

#endif
