/* element.h: the types of numbers in memory. */
#ifndef CLEAVE_BASE_ELEMENT_H
#define CLEAVE_BASE_ELEMENT_H

#include <stdint.h>

enum element {
    ELEMENT_F32, /* where nothing else is said */
    ELEMENT_F64,
    ELEMENT_BF16, /* the upper half of an F32 */
    ELEMENT_F16,
    ELEMENT_I32,
    ELEMENT_U8,
    ELEMENT_COUNT
};

const char *element_name(enum element type); /* "f32" */
int64_t element_bytes(enum element type);

#endif
