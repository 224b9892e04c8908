#include "base/element.h"

#include <assert.h>

static const struct element_row {
    const char *name;
    int64_t n_bytes;
} elements[] = {
    [ELEMENT_F32] = {"f32", 4}, [ELEMENT_F64] = {"f64", 8}, [ELEMENT_BF16] = {"bf16", 2},
    [ELEMENT_F16] = {"f16", 2}, [ELEMENT_I32] = {"i32", 4}, [ELEMENT_U8] = {"u8", 1},
};
static_assert(sizeof elements / sizeof elements[0] == ELEMENT_COUNT, "a row each");

const char *element_name(enum element type)
{
    return elements[type].name;
}

int64_t element_bytes(enum element type)
{
    return elements[type].n_bytes;
}
