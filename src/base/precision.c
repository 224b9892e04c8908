#include "base/precision.h"

#include <assert.h>
#include <stddef.h>

const char *const arithmetic_names[ARITHMETIC_COUNT + 1] = {
    [ARITHMETIC_F32] = "fp32",  [ARITHMETIC_F64] = "fp64", [ARITHMETIC_TF32] = "tf32",
    [ARITHMETIC_BF16] = "bf16", [ARITHMETIC_F16] = "fp16",
};

/* All of one type. */
#define OF(TYPE)                                                                  \
    .activation = (TYPE), .weight = (TYPE), .master = (TYPE), .gradient = (TYPE), \
    .statistic = (TYPE)

/* Tensors of the step in a narrow type, all that is summed over steps or samples in F32. */
#define MIXED(TYPE)                                                                         \
    .activation = (TYPE), .weight = (TYPE), .master = ELEMENT_F32, .gradient = ELEMENT_F32, \
    .statistic = ELEMENT_F32

static const struct precision_info policies[] = {
    [PRECISION_FLOAT] = {.products = ARITHMETIC_F32, OF(ELEMENT_F32)},
    [PRECISION_DOUBLE] = {.products = ARITHMETIC_F64, OF(ELEMENT_F64)},
    [PRECISION_TF32] = {.products = ARITHMETIC_TF32, OF(ELEMENT_F32)},
    [PRECISION_BF16] = {.products = ARITHMETIC_BF16, MIXED(ELEMENT_BF16)},
    [PRECISION_FP16] = {.products = ARITHMETIC_F16, MIXED(ELEMENT_F16)},
};
static_assert(sizeof policies / sizeof policies[0] == PRECISION_COUNT, "a row each");

const char *const precision_names[PRECISION_COUNT + 1] = {
    [PRECISION_FLOAT] = "float", [PRECISION_DOUBLE] = "double", [PRECISION_TF32] = "tf32",
    [PRECISION_BF16] = "bf16",   [PRECISION_FP16] = "fp16",
};

const struct precision_info *precision_get_info(enum precision precision)
{
    return &policies[precision];
}
