/* fuzz.h: what a fuzz target gives. driver.c runs it anywhere; libFuzzer can, with clang. */
#ifndef CLEAVE_TESTS_FUZZ_H
#define CLEAVE_TESTS_FUZZ_H

#include "data_files.h"

/* One input: must neither crash nor leak, whatever the bytes. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

enum { FUZZ_SEEDS_MAX = 16 };

/* Good inputs to start from; returns how many. */
int fuzz_seeds(struct file_bytes seeds[FUZZ_SEEDS_MAX]);

/* One of them that is a text. */
static inline struct file_bytes fuzz_text(const char *text)
{
    struct file_bytes f = {(uint8_t *)strdup(text), strlen(text)};
    assert(f.bytes);
    return f;
}

#endif
