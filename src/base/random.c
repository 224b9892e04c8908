#include "base/random.h"

#include <math.h>

enum { ROUNDS = 10 };

/* One Philox round: two 32x32 -> 64 bit products, halves swapped and keyed. */
static void philox_round(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
    uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t c1 = c[1], c3 = c[3];
    c[0] = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c[1] = (uint32_t)p1;
    c[2] = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c[3] = (uint32_t)p0;
}

void random_block(struct random_key key, uint32_t step, uint64_t block, uint32_t words[4])
{
    /* Counter: block (64 bits), step, and use with stream folded in; key: the seed. A stream has
     * 28 bits, a use 4, so no two (use, stream) pairs meet. */
    words[0] = (uint32_t)block;
    words[1] = (uint32_t)(block >> 32);
    words[2] = step;
    words[3] = key.use << 28 ^ key.stream;
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    for (int r = 0; r < ROUNDS; r++) {
        philox_round(words, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

uint32_t random_word(struct random_key key, uint32_t step, uint64_t index)
{
    uint32_t words[4];
    random_block(key, step, index / 4, words);
    return words[index % 4];
}

double random_uniform(struct random_key key, uint32_t step, uint64_t index)
{
    return random_word(key, step, index) * 0x1p-32;
}

double random_normal(struct random_key key, uint32_t step, uint64_t index)
{
    /* Box-Muller on the two words of the index's own half block. */
    uint32_t words[4];
    random_block(key, step, index / 2, words);
    const uint32_t *pair = words + 2 * (index % 2);
    double u = (pair[0] + 0.5) * 0x1p-32, v = pair[1] * 0x1p-32;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t random_permute(struct random_key key, uint64_t count, uint64_t index)
{
    unsigned half_bits = 1;
    while (half_bits < 32 && (uint64_t)1 << 2 * half_bits < count)
        half_bits++;
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t value = index;
    do { /* a bijection of [0, 4^half_bits); walk until back inside [0, count) */
        uint64_t left = value >> half_bits, right = value & mask;
        for (uint32_t r = 0; r < 6; r++) {
            uint64_t next = left ^ (random_word(key, r, 4 * right) & mask);
            left = right;
            right = next;
        }
        value = left << half_bits | right;
    } while (value >= count);
    return value;
}
