/* random.h: random numbers that depend on a key and an index, never on the worker or the order of
 * drawing.
 *
 * Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"): a keyed bijection
 * of a 128-bit counter. Weights, dropout masks and shuffles are functions of (seed, stream, index),
 * so every partition of the work draws the same numbers as one worker.
 */
#ifndef CLEAVE_BASE_RANDOM_H
#define CLEAVE_BASE_RANDOM_H

#include <stdint.h>

/* What a number is drawn for; keeps the uses of one seed apart. */
enum random_use {
    RANDOM_WEIGHTS = 1,
    RANDOM_DROPOUT,
    RANDOM_SHUFFLE,
    RANDOM_SYNTHETIC,
    RANDOM_TEST,
    RANDOM_AUGMENT
};

struct random_key {
    uint64_t seed;
    uint32_t use;    /* enum random_use */
    uint32_t stream; /* layer, parameter, epoch ... */
};

/* The four 32-bit words of block `block`; word i of the endless sequence is words[i % 4] of block
 * i / 4. `step` is a second 32-bit index (training step; 0 where there is none). */
void random_block(struct random_key key, uint32_t step, uint64_t block, uint32_t words[4]);

/* Element `index` of the sequence, as 32 bits, as a uniform in [0, 1), as a standard normal. */
uint32_t random_word(struct random_key key, uint32_t step, uint64_t index);
double random_uniform(struct random_key key, uint32_t step, uint64_t index);
double random_normal(struct random_key key, uint32_t step, uint64_t index);

/* The element at place `index` of a pseudo-random permutation of 0..count-1, in O(1) memory and
 * expected O(1) time (a Feistel network with cycle walking). count > 0, index < count. */
uint64_t random_permute(struct random_key key, uint64_t count, uint64_t index);

#endif
