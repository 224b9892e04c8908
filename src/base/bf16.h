/* bf16.h: numbers with the range of a float and 8 bits of it: a float's upper half. */
#ifndef CLEAVE_BASE_BF16_H
#define CLEAVE_BASE_BF16_H

#include <stdint.h>
#include <string.h>

static inline float bf16_widen(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* To the nearest, of two equally near ones to the even one; a NaN stays one. */
static inline uint16_t bf16_round(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)(x == x ? rounded : bits >> 16 | 0x40u);
}

#endif
