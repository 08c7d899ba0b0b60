/* A fuzz target: one function that must survive any bytes.
 *
 * The same source is linked with driver.c (make check: corpus and a fixed
 * number of mutations of it) or with libFuzzer (configure --enable-fuzzers).
 */
#ifndef GEMS_TESTS_FUZZ_H
#define GEMS_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* The name is libFuzzer's. Always 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#endif
